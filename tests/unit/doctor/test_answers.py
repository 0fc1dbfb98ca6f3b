"""Whole answers of the doctor: every finding in order, the text, and the failed checks.

``python -m tests.unit.doctor.test_answers`` writes the answers of today, to be read before they are kept.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console

from faust_assigner.doctor.app_checks import Deployment, check_app
from faust_assigner.doctor.codes import BY_CODE, LEVELS, Finding, finding
from faust_assigner.doctor.facts import AppFacts, GroupFacts, Table
from faust_assigner.doctor.group_checks import check_group, check_group_grace, unchecked
from faust_assigner.doctor.render import render
from faust_assigner.doctor.result import result
from faust_assigner.doctor.topics import TopicFacts
from faust_assigner.wire.worker_status import TableStatus
from tests.support.status import LOG, MadeGroup
from tests.unit.doctor.test_group_checks import GIB, SETTINGS, facts, table

FOLDER: Final = Path(__file__).with_name("answers")
WORST: Final = AppFacts(
    app_id="shop",
    assignor="faust.assignor:PartitionAssignor",
    is_ours=False,
    is_our_driver=False,
    brokers=("localhost", "kafka-1"),
    url="http://localhost:6066",
    instance_id="fixed",
    environment=("", "other"),
    host="pod-1",
    tables=(
        Table(name="totals", changelog="log-1", partitions=5, in_memory=True),
        Table(name="clicks", changelog="log-2", is_windowed=True, expires_s=90.0, in_memory=True),
        Table(name="days", changelog="log-3", is_windowed=True, partitions=6),
        Table(name="flags", changelog="log-4", is_global=True, partitions=1),
    ),
    sources={"orders": None, "news": 3},
    default_partitions=2,
    wrong_settings=("FAUST_ASSIGNER_X is unknown", "FAUST_ASSIGNER_Y is not a number"),
    misfits=("faust 0.1 is too old", "aiokafka 9 is too new"),
    heartbeat_s=9.0,
    session_s=5.0,
    poll_s=30.0,
    rebalance_s=40.0,
    leave_s=7.0,
    replicas=2,
    is_cooperative=False,
    has_repairs=False,
    disk_free_bytes=3 * GIB,
    stores_bytes=(GIB, 4 * GIB, 2 * GIB),
)
#: The package is used; each remaining fact is between right and wrong.
BETTER: Final = replace(
    WORST, is_ours=True, has_fixup=False, is_our_driver=True, heartbeat_s=2.0, leave_s=8.0,
    is_cooperative=True, has_repairs=True, instance_id=None, rack="a", poll_s=None,
)  # fmt: skip
TOPICS: Final = {
    "orders": TopicFacts(partitions=4, cleanup_policy="delete", retention_ms=1_000),
    "news": TopicFacts(partitions=3),
    "log-1": TopicFacts(partitions=7, cleanup_policy="delete", retention_ms=172_800_000),
    "log-2": TopicFacts(partitions=4, cleanup_policy="compact, delete", retention_ms=89_999),
    "log-3": TopicFacts(partitions=3, cleanup_policy="compact,delete", retention_ms=86_400_000),
    "log-4": TopicFacts(partitions=9, cleanup_policy="delete", retention_ms=-1),
}


def shown(findings: tuple[Finding, ...], sentences: tuple[str, ...] = ()) -> str:
    """Return each finding in the order of the checks, then the result as JSON without its reasons."""
    found = result(["the app", "the group"], findings, sentences)
    told = found.as_json()
    for one in told["findings"]:
        del one["title"], one["why"], one["fix"]
    return "\n".join(
        [
            *(f"{f.code} {f.level} [{f.subject}] {f.text}" for f in findings),
            "",
            json.dumps(told, indent=1),
            "",
        ]
    )


def app(which: AppFacts, topics: Mapping[str, TopicFacts] | None, **deployment: Any) -> str:
    """The answer about an app."""
    return shown(check_app(which, Deployment(**deployment), topics))


def sick() -> GroupFacts:
    """Five members: no two have equal settings, times, tables, versions, racks or disks."""
    made = MadeGroup(topics={"orders": 3, LOG: 3, "shop-days-changelog": 2})
    made.join("m0", rack_id="a")
    made.join("m1", rack_id="a", cooperative=False)
    made.join("m2", rack_id="", instance_id="i2")
    made.join("m3", instance_id="i3", url="http://w2:6066")
    made.join("m4", url="http://127.0.0.1:6066")
    for _ in range(2):
        made.round()
    days = TableStatus(
        name="days", changelog="shop-days-changelog", store="memory", is_windowed=True,
        expires_s=60.0, bytes={"0": 5},
    )  # fmt: skip
    odd: dict[str, dict[str, Any]] = {
        "m0": {
            "tables": (table(), days), "disk_free_bytes": GIB // 2, "software": "0.2.0",
            "counters": {"directories_left_out": 1, "corrupt_folders": 2},
            "settings": SETTINGS | {"FAUST_ASSIGNER_GROUP_RECORD_BYTES": "1500"},
        },
        "m1": {
            "faust": "0.1.0", "is_cooperative": False, "tables": (table(store="memory"), days),
            "settings": SETTINGS
            | {"FAUST_ASSIGNER_COOPERATIVE": "0", "FAUST_ASSIGNER_LEDGER": "", "FAUST_ASSIGNER_LEAVE_S": "4"},
        },
        "m2": {
            "aiokafka": "9.9.9", "disk_free_bytes": GIB - 1,
            "settings": SETTINGS | {"broker_heartbeat_interval": "30", "FAUST_ASSIGNER_LEAVE_S": "9"},
        },
        "m3": {
            "counters": {"corrupt_folders": 1},
            "settings": {
                **SETTINGS, "broker_session_timeout": "2000", "broker_max_poll_interval": "10",
                "table_standby_replicas": "2",
            },
        },
        "m4": {"settings": SETTINGS | {"FAUST_ASSIGNER_LEAVE_S": "21"}},
    }  # fmt: skip
    topics = {
        "orders": TopicFacts(partitions=3, cleanup_policy="delete", retention_ms=5_000),
        LOG: TopicFacts(partitions=4, cleanup_policy="delete", retention_ms=86_399_000),
        "shop-days-changelog": TopicFacts(
            partitions=2, cleanup_policy="compact,delete", retention_ms=59_000
        ),
        "shop-__assignor-__leader": TopicFacts(partitions=1),
    }
    found = facts(made, odd, topics=topics, session_bounds_s=(10.0, 300.0), record_bytes=2_000_000)
    # The compressed sizes of the answers differ between versions of zlib.
    members = tuple(
        replace(member, record_bytes=300 + n)
        for n, member in enumerate(found.evidence.group.members)
    )
    described = replace(found.evidence.group, members=members)
    return replace(found, evidence=replace(found.evidence, group=described))


def group() -> str:
    """The answer about the group, and about a stop of each of its workers."""
    found = sick()
    return shown((*check_group(found), *check_group_grace(found, 20.0)), unchecked(found))


def silent() -> str:
    """Return the answer about a group with a foreign member and two workers that do not answer."""
    found = sick()
    quiet = ("http://w1:6066", "http://w2:6066")
    heard = {
        url: replace(one, answer="silent", status=None, detail=f"{url} did not answer")
        if url in quiet
        else one
        for url, one in found.evidence.heard.items()
    }
    members = tuple(
        replace(member, said=None) if member.member_id == "m0" else member
        for member in found.evidence.group.members
    )
    described = replace(found.evidence.group, members=members)
    evidence = replace(
        found.evidence, heard=heard, group=described, problems=("the offsets are not known",)
    )
    found = replace(found, evidence=evidence)
    return shown((*check_group(found), *check_group_grace(found, 20.0)), unchecked(found))


ANSWERS: Final[Mapping[str, Callable[[], str]]] = {
    "app-worst": lambda: app(WORST, TOPICS, workers=9, racks=2, grace_s=7.0),
    "app-better": lambda: app(BETTER, TOPICS, workers=7, racks=2, grace_s=20.0),
    "app-alone": lambda: app(WORST, None, workers=6, racks=1),
    "group": group,
    "group-silent": silent,
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_has_each_finding_of_its_file_in_order(name: str) -> None:
    """The file beside this test has codes, levels, subjects and texts, before and after sorting."""
    assert ANSWERS[name]() == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def test_a_result_is_rendered_code_by_code_the_worst_first() -> None:
    """Eleven findings of a code are ten lines and a count; the title and the fix are shown once."""
    many = tuple(finding("FA018", f"{n} folders", subject=f"w{n:02}") for n in range(11))
    others = finding("FA017", "on w1"), finding("FA001", "stock", subject="w2"), *many[:1]
    found = result(
        ["the app", "the group"], (*many, *others), ("w3 was not checked", "w3 was not checked")
    )
    screen = io.StringIO()
    Console(file=screen, width=1_000).print(render(found))
    titles = {code: BY_CODE[code] for code in ("FA001", "FA017", "FA018")}
    assert [line.rstrip() for line in screen.getvalue().splitlines()] == [
        f"FA001 error: {titles['FA001'].title}",
        "  w2: stock",
        f"  fix: {titles['FA001'].fix}",
        "",
        f"FA018 warning: {titles['FA018'].title}",
        *(f"  w{n:02}: {n} folders" for n in range(10)),
        "  and 1 more (--json has all)",
        f"  fix: {titles['FA018'].fix}",
        "",
        f"FA017 note: {titles['FA017'].title}",
        "  on w1",
        f"  fix: {titles['FA017'].fix}",
        "",
        "not checked: w3 was not checked",
        "",
        "the app and the group: 1 error, 11 warnings, 1 note. "
        "faust-assigner doctor --explain CODE explains a code",
    ]
    assert [found.exit_code(fail_on=level) for level in LEVELS] == [1, 1, 1]
    less = found.without({"FA001", "FA017"})
    assert [less.exit_code(fail_on=level) for level in LEVELS] == [0, 1, 1]
    assert (less.looked_at, less.unchecked) == (found.looked_at, found.unchecked)
    assert [one.code for one in less.findings] == ["FA018"] * 11


if __name__ == "__main__":
    for one, answer in ANSWERS.items():
        (FOLDER / f"{one}.txt").write_text(answer(), encoding="utf-8")
