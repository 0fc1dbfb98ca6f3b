"""Looks at made groups, with the settings and disks that deploy-check reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faust_assigner.deploy.judge import Budget, judge
from faust_assigner.deploy.play import Question
from faust_assigner.deploy.read import Seen, read_evidence
from faust_assigner.deploy.report import Check, Report
from faust_assigner.deploy.steps import Known
from faust_assigner.status.evidence import Evidence, Heard
from faust_assigner.status.report import ANSWERED
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.worker_status import TableStatus
from tests.support.status import LOG, MadeGroup

SETTINGS: Mapping[str, str] = {
    "table_standby_replicas": "1",
    "broker_session_timeout": "60",
    "FAUST_ASSIGNER_WARMUPS": "1",
    "FAUST_ASSIGNER_ACCEPTABLE_RECOVERY_LAG": "100",
    "FAUST_ASSIGNER_LEAVE_S": "20",
}
POLICY = WarmupPolicy(acceptable_recovery_lag=100, acceptable_from_nothing=100)
STOP_W1 = Question(kind="stop", workers=("w1",))


def whole(made: MadeGroup, *, leader: str = "m0") -> MadeGroup:
    """Play an event and the round that completes it."""
    made.round(leader=leader, warmups=POLICY)
    while made.last is not None and made.last.follows:
        made.round(leader=leader, warmups=POLICY)
    return made


def at_rest(members: int = 3, **options: Any) -> MadeGroup:
    """Return a cooperative group of this many members at rest."""
    made = MadeGroup(**options).join(*(f"m{n}" for n in range(members)), holds=True)
    for _ in range(3):
        whole(made)
    return made


def evidence(made: MadeGroup, *, lags: Mapping[str, int] | None = None, **more: Any) -> Evidence:
    """Return a look; ``lags`` are a member's missing records, ``more`` changes every worker."""
    tables = tuple(
        TableStatus(
            name=t, changelog=t, store="rocksdb", bytes=dict.fromkeys(map(str, range(6)), 1000)
        )
        for t in sorted(made.changelogs)
    )
    base: dict[str, Any] = {"settings": SETTINGS, "tables": tables, "disk_free_bytes": 10**9}
    return made.evidence(
        heard={
            made.claims[name].url: Heard(
                answer=ANSWERED,
                status=made.status_of(name, lag=(lags or {}).get(name, 0), **base | more),
            )
            for name in made.claims
        }
    )


def look(made: MadeGroup, **more: Any) -> Seen:
    """Return the evidence after reading."""
    return read_evidence(evidence(made, **more))


def asked(
    found: Seen, question: Question = STOP_W1, budget: Budget | None = None, **known: Any
) -> Report:
    """Return deploy-check's answer."""
    return judge(found, question, budget or Budget(), Known(**known))


def check(report: Report, name: str) -> Check:
    """Return the check whose name begins with this text."""
    (found,) = [one for one in report.checks if one.name.startswith(name)]
    return found


__all__ = ["LOG", "asked", "at_rest", "check", "evidence", "look", "whole"]
