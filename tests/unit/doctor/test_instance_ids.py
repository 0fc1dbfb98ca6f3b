"""Two processes with a shared instance id: both answer, or the second one replaces the first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.doctor.codes import Finding
from faust_assigner.doctor.facts import GroupFacts
from faust_assigner.doctor.group_checks import check_group, check_group_grace
from faust_assigner.status.evidence import Evidence
from tests.support.status import MadeGroup
from tests.unit.doctor.test_group_checks import SETTINGS, facts

REPLACED = (
    "a worker joined with this id between the two queries, and replaced a different worker "
    "or its own former process; repeat the command: if this continues, two workers share the id"
)


def static(*instances: str | None) -> GroupFacts:
    """Return a group whose members have these instance ids."""
    made = MadeGroup()
    for n, instance_id in enumerate(instances):
        made.join(f"m{n}", instance_id=instance_id)
    return facts(made.round().round())


def told(evidence: Evidence, **changes: dict[str, Any]) -> Evidence:
    """Return the evidence with changes in the workers' answers, by the host name of the URL."""
    heard = {}
    for url, one in evidence.heard.items():
        name = url.removeprefix("http://").partition(":")[0]
        assert one.status is not None
        heard[url] = replace(one, status=replace(one.status, **changes.get(name, {})))
    return replace(evidence, heard=heard)


def as_members(evidence: Evidence, **ids: str) -> Evidence:
    """Return the evidence with new member ids for some members."""
    members = tuple(
        replace(one, member_id=ids.get(one.member_id, one.member_id))
        for one in evidence.group.members
    )
    return replace(evidence, group=replace(evidence.group, members=members))


def of(found: GroupFacts) -> list[tuple[str, str, str]]:
    """Return the findings about instance ids."""
    return [(one.subject, one.level, one.text) for one in check_group(found) if one.code == "FA002"]


def test_each_id_of_several_processes_is_named_with_all_of_them_in_order() -> None:
    """Processes of both looks are sorted by host and pid; a single process is no finding."""
    found = static("b", "b2", "a", None)
    first = told(
        found.evidence,
        w0={"host": "h2", "pid": 10}, w1={"instance_id": "b", "host": "h2", "pid": 9},
        w2={"host": "h1", "pid": 7}, w3={"instance_id": "a", "app": "other"},
    )  # fmt: skip
    later = told(
        first,
        w0={"host": "h1", "pid": 30}, w2={"host": "h1", "pid": 8},
    )  # fmt: skip
    assert of(replace(found, evidence=first)) == [
        ("b", "error", "two processes have it: process 9 on h2, process 10 on h2")
    ]
    assert of(replace(found, evidence=first, later=later)) == [
        ("a", "error", "two processes have it: process 7 on h1, process 8 on h1"),
        ("b", "error", "two processes have it: process 30 on h1, process 9 on h2, process 10 on h2"),
    ]  # fmt: skip


def test_each_id_that_changed_its_member_between_the_looks_is_a_warning() -> None:
    """A dynamic member's new id and an id present in only a single look are no findings."""
    found = static("c", None, "a", "b")
    later = as_members(found.evidence, m0="m8", m1="m7", m2="m9")
    assert of(replace(found, later=later)) == [
        ("a", "warning", REPLACED),
        ("c", "warning", REPLACED),
    ]
    assert of(replace(found, later=found.evidence)) == of(found) == []
    gone = replace(
        later, group=replace(later.group, members=later.group.members[:1]), heard={}
    )  # fmt: skip
    assert of(replace(found, later=gone)) == [("c", "warning", REPLACED)]


def grace(found: GroupFacts, grace_s: float) -> list[Finding]:
    """Return the findings about the supervisor's grace period."""
    return list(check_group_grace(found, grace_s))


@pytest.mark.parametrize(
    ("grace_s", "expected"),
    [
        (14.9, [("i3, w2, w4", "warning"), ("w0", "error"), ("w1", "error")]),
        (15.0, [("w0", "error"), ("w1", "error")]),
        (30.0, [("w0", "warning"), ("w1", "warning")]),
        (35.0, [("w1", "warning")]),
        (40.0, []),
    ],
)
def test_the_grace_is_compared_with_each_workers_own_hand_over(
    grace_s: float, expected: list[tuple[str, str]]
) -> None:
    """Shortest hand-over first; static workers and workers without repairs hand nothing over."""
    made = MadeGroup()
    for n in range(5):
        made.join(f"m{n}", instance_id="i3" if n == 3 else None)
    made.round().round()

    def leave(said: str, **more: str) -> dict[str, Any]:
        return {"settings": {**SETTINGS, "FAUST_ASSIGNER_LEAVE_S": said, **more}}

    odd = {
        "m0": leave("20"), "m1": leave("25"), "m2": leave("90", FAUST_ASSIGNER_REPAIRS="0"),
        "m3": leave("90"), "m4": leave("soon"),
    }  # fmt: skip
    found = grace(facts(made, odd), grace_s)
    assert [(one.subject, one.level) for one in found] == expected
