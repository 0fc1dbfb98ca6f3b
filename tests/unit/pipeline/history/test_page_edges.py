"""Figures of the page at their edges: zero, the newest of many, and names beside ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from faust_assigner.model import Member
from faust_assigner.pipeline.history.answers import RELEASES_SHOWN
from faust_assigner.pipeline.history.options import HistoryOptions
from faust_assigner.pipeline.history.output import _identity, _over_days, _slowest, check
from faust_assigner.pipeline.history.page import to_html
from faust_assigner.pipeline.history.report import REPORTED, Report, owner_row
from faust_assigner.pipeline.history.store import Manifest
from faust_assigner.pipeline.ledgers.current import GroupState
from faust_assigner.pipeline.ledgers.refusals import EmptyLedger, Refused

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)


def report(**tables: list[dict[str, Any]]) -> Report:
    """Return a report with these tables."""
    return Report({**{name: [] for name in REPORTED}, **tables})


def test_a_spread_of_zero_is_a_figure() -> None:
    """Only a history without a settled round has no worst spread."""
    rows = [{"max_spread": spread, "idle_members": 0} for spread in (None, 0.0)]
    found = dict(report(balance=rows).headline())
    assert found["worst spread (topic partitions)"] == "0"


def test_an_owner_is_named_by_its_instance_id_beside_its_member_id() -> None:
    """The instance id stays over restarts; the name of a member id does not."""
    member = Member("m-9", ["a"], actives={"a": [3]}, instance_id="worker-3")
    row = owner_row(GroupState("g", "d", (member,), {"a": 4}, ()), member)
    assert (row["member"], row["member_id"], row["rack"]) == ("worker-3", "m-9", None)


def test_the_page_has_the_newest_releases() -> None:
    """The first of 21 releases is left out; the newest is the last."""
    rows = [
        {
            "group_id": "g", "decision_id": f"d{n}", "ts": NOON + timedelta(hours=n), "dt": NOON.date(),
            "trigger": "join", "deploy": f"v{n:02d}.x", "policy": "p", "members": 3, "moved": 1,
            "tasks_moved": 1, "tasks_cold": 0, "tasks_orphaned": 0, "solve_ms": 1.0,
            "longest_recovery_s": None,
        }
        for n in range(RELEASES_SHOWN + 1)
    ]  # fmt: skip
    page = to_html(report(rebalances=rows), {}, title="t").decode()
    assert [f"v{n:02d}.x" in page for n in range(RELEASES_SHOWN + 1)] == [False] + 20 * [True]


def test_names_and_reasons_are_text_and_no_markup() -> None:
    """A group, a file or the title may contain anything; a picture is markup."""
    refused = [{"file": "<i>f", "line": 3, "reason": "<script>alert(1)</script>"}]
    page = to_html(
        report(quarantine=refused), {"members": "<svg><b>drawn</b></svg>"}, title="<u>t</u>"
    ).decode()
    assert "&lt;i&gt;f" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<title>&lt;u&gt;t&lt;/u&gt;</title>" in page
    assert "<svg><b>drawn</b></svg>" in page


def test_a_report_is_the_same_only_with_the_same_limits() -> None:
    """A gate that passes with another limit is another result."""

    def told(limit: str, passed: bool = True, generation: int = 3) -> Any:
        gates = [{"gate": "max-age", "limit": limit, "found": "x", "passed": passed}]
        return _identity({"about": {"generation": generation}, "quality": {"gates": gates}})

    others = [told("2 h"), told("1 h", False), told("1 h", generation=4)]
    assert told("1 h") == (3, [("max-age", "1 h", True)])
    assert told("1 h") not in others


def test_a_partition_has_its_longest_recovery_and_the_counts_of_all_days() -> None:
    """Equally long ones are in the order of their places."""
    names = (
        "group_id",
        "topic",
        "partition",
        "recoveries",
        "records",
        "max_s",
        "source",
        "decision_id",
    )
    told = [
        ("g", "u", 0, 1, 5, 3.0, "local", "d"),
        ("g", "t", 1, 2, 7, 3.0, "replay", "e"),
        ("g", "t", 1, 3, 11, 2.0, "local", "f"),
        ("g", "t", 0, 4, 13, 9.0, "local", "a"),
        ("g", "t", 0, 5, 17, 9.0, "replay", "a"),
    ]
    found = _slowest([dict(zip(names, each, strict=True)) for each in told])
    assert [tuple(each.values()) for each in found] == [
        ("g", "t", 0, 9, 30, 9.0, "replay", "a"),
        ("g", "t", 1, 5, 18, 3.0, "replay", "e"),
        ("g", "u", 0, 1, 5, 3.0, "local", "d"),
    ]


def test_a_release_of_several_days_began_with_its_first_decision() -> None:
    """Its counts are summed; releases are in the order of their groups and beginnings."""
    days = [("h", "a", 1, 0, 1), ("g", "b", 2, 9, 2), ("g", "b", 1, 5, 4), ("g", "a", 3, 7, 8)]
    names = ("group_id", "deploy", "dt", "first", "moved")
    told = [
        dict(zip(names, (*key, day, NOON + timedelta(hours=at), moved), strict=True))
        for *key, day, at, moved in days
    ]
    found = _over_days(told, ("group_id", "deploy"))
    assert [tuple(each.values()) for each in found] == [
        ("g", "b", NOON + timedelta(hours=5), 6),
        ("g", "a", NOON + timedelta(hours=7), 8),
        ("h", "a", NOON, 1),
    ]


@pytest.mark.parametrize(("stream", "generation"), [(True, 0), (False, 3), (True, 3)])
def test_only_a_later_visit_of_a_stream_may_find_no_line(stream: bool, generation: int) -> None:
    """The first visit is checked as any other run."""
    options = HistoryOptions(("l",), "out", stream=stream, fail_if_empty=True)
    before = Manifest(generation=generation)
    if stream and generation:
        check(Refused(), before, options)
    else:
        with pytest.raises(EmptyLedger):
            check(Refused(), before, options)
