"""The report of a store's newest days: merged, cut and sorted."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.model import Member
from faust_assigner.pipeline.history import output
from faust_assigner.pipeline.history.options import HistoryOptions
from faust_assigner.pipeline.history.quality import Gates
from faust_assigner.pipeline.history.report import REPORTED, About, Report, owner_row
from faust_assigner.pipeline.history.store import PENDING
from faust_assigner.pipeline.ledgers.current import GroupState
from faust_assigner.pipeline.ledgers.refusals import Refused
from tests.unit.pipeline.history.made import stored

FIRST, LAST = date(2026, 11, 20), date(2026, 11, 21)


def at(day: int, hour: int) -> datetime:
    """Return a time in November 2026."""
    return datetime(2026, 11, day, hour, tzinfo=UTC)


def days(first: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    """Return rows of the two days; each row has the values of its table's test."""
    return {"2026-11-20": first, "2026-11-21": last}


def report(folder: Path, rows: Any) -> Report:
    """Return the report of a store with these rows."""
    store = stored(folder, rows)
    options = HistoryOptions(("one", "two"), str(folder))
    return output.report_of(store, store.load(), options, Refused(accepted=6, lines=2))


def movement(group: str, deploy: str, hour: int, *counts: int, policy: str = "p") -> dict[str, Any]:
    """Return a row of the table of deploys, on the day of its test."""
    names = ("decisions", "assigned", "moved", "cold_moves", "standby_hits")
    told = {"group_id": group, "deploy": deploy, "policy": policy, "first": hour}
    return {**told, **dict(zip(names, counts, strict=True))}


def test_deploys_are_summed_over_days_by_group_release_and_policy(tmp_path: Path) -> None:
    """The rows are in the order of the first decision within each group."""
    before = [
        movement("g", "v1", 9, 1, 20, 3, 4, 5),
        movement("g", "v1", 8, 9, 9, 9, 9, 9, policy="q"),
        movement("h", "v1", 7, 1, 1, 1, 1, 1),
    ]
    after = [movement("g", "v1", 2, 10, 2, 30, 40, 50), movement("g", "v0", 3, 1, 2, 3, 4, 5)]
    rows = days(
        {"deploys": [{**row, "first": at(20, row["first"])} for row in before]},
        {"deploys": [{**row, "first": at(21, row["first"])} for row in after]},
    )
    found = report(tmp_path, rows).tables["deploys"]
    assert found == [
        {**movement("g", "v1", 9, 9, 9, 9, 9, 9, policy="q"), "first": at(20, 8)},
        {**movement("g", "v1", 9, 11, 22, 33, 44, 55), "first": at(20, 9)},
        {**movement("g", "v0", 3, 1, 2, 3, 4, 5), "first": at(21, 3)},
        {**movement("h", "v1", 7, 1, 1, 1, 1, 1), "first": at(20, 7)},
    ]


def slow(partition: int, seconds: float, source: str, recoveries: int, **more: Any) -> Any:
    """Return a row of the slowest recoveries."""
    told = {"group_id": "g", "topic": "t", "partition": partition, "max_s": seconds}
    counts = {"recoveries": recoveries, "records": 10 * recoveries}
    return {**told, **counts, "source": source, "decision_id": source.upper(), **more}


def test_a_partition_has_its_slowest_recovery_and_the_counts_of_all_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest comes first; of two equal times the last source in order counts."""
    first = [slow(0, 9.0, "replay", 1), slow(1, 2.0, "local", 3), slow(2, 0.5, "x", 7)]
    last = [slow(0, 4.0, "standby", 20), slow(1, 2.0, "snapshot", 40)]
    last.append(slow(0, 2.0, "a", 5, group_id="f"))
    rows = days({"slowest": first}, {"slowest": last})
    found = report(tmp_path / "a", rows).tables["slowest"]
    wanted = [
        slow(0, 9.0, "replay", 21, dt=FIRST),
        slow(0, 2.0, "a", 5, group_id="f", dt=LAST),
        slow(1, 2.0, "snapshot", 43, dt=LAST),
        slow(2, 0.5, "x", 7, dt=FIRST),
    ]
    assert found == wanted
    monkeypatch.setattr(output, "ROWS_KEPT", {"rebalances": 9, "slowest": 3})
    assert report(tmp_path / "b", rows).tables["slowest"] == wanted[:3]


def test_owners_are_those_of_the_newest_day_of_each_group(tmp_path: Path) -> None:
    """A group without a decision on the last day keeps its former owners."""

    def owner(group: str, member: str) -> dict[str, Any]:
        return {"group_id": group, "member_id": member, "active_partitions": 2}

    rows = days(
        {"owners": [owner("g", "old"), owner("h", "b"), owner("h", "a")]},
        {"owners": [owner("g", "new"), owner("f", "c")]},
    )
    found = report(tmp_path, rows).tables["owners"]
    assert [(row["group_id"], row["dt"], row["member_id"]) for row in found] == [
        ("f", LAST, "c"),
        ("g", LAST, "new"),
        ("h", FIRST, "a"),
        ("h", FIRST, "b"),
    ]


def rebalance(group: str, name: str, when: datetime, moved: int, cold: int) -> dict[str, Any]:
    """Return a row of the rebalances."""
    told = {"group_id": group, "decision_id": name, "ts": when}
    return {**told, "tasks_moved": moved, "tasks_cold": cold}


def test_the_report_of_a_store_counts_its_days_its_tasks_and_its_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums cover all rebalances, including those beyond the report's rows."""
    monkeypatch.setattr(output, "ROWS_KEPT", {"rebalances": 2, "slowest": 1})
    monkeypatch.setattr(output, "REPORT_DAYS", 2)
    rows = days(
        {
            "rebalances": [
                rebalance("h", "d1", at(20, 9), 2, 1),
                rebalance("g", "d2", at(20, 5), 30, 4),
            ]
        },
        {"rebalances": [rebalance("g", "d3", at(21, 8), 500, 60)]},
    )
    rows["2026-11-19"] = {"rebalances": [rebalance("g", "d0", at(19, 1), 7_000, 7_000)]}
    roles = ("active", "standby", "active", "warmup", "active")
    rows[PENDING] = {"placements": [{"role": role} for role in roles]}
    found = report(tmp_path, rows)
    assert [row["decision_id"] for row in found.tables["rebalances"]] == ["d1", "d3"]
    assert found.about == About(("one", "two"), at(20, 5), at(21, 8), 532, 65, 2, 3)
    assert (found.without_decision, found.refused, found.generation) == (3, 12, 1)
    assert found.quality is not None
    assert (found.quality.lines_accepted, found.quality.lines_refused) == (6, 2)
    assert found.quality.placements_without_decision == 3
    told = json.loads(found.to_json())
    assert list(told) == [*REPORTED, "about", "quality"]
    assert told["about"] == {
        "sources": ["one", "two"],
        "first": "2026-11-20T05:00:00+00:00",
        "last": "2026-11-21T08:00:00+00:00",
        "tasks_moved": 532,
        "tasks_cold": 65,
        "days": 2,
        "days_in_all": 3,
        "version": found.about.version,
        "generation": 1,
    }
    empty = json.loads(replace(found, generation=0).to_json())
    assert empty["about"] == {**told["about"], "generation": 0}
    assert [row["dt"] for row in told["rebalances"]] == ["2026-11-20", "2026-11-21"]


def test_rows_of_several_days_are_in_the_order_of_their_keys(tmp_path: Path) -> None:
    """Groups come before days, and policies last."""

    def row(group: str, policy: str) -> dict[str, Any]:
        return {"group_id": group, "policy": policy, "decisions": 1}

    rows = days(
        {"movement": [row("h", "p"), row("g", "q")]}, {"movement": [row("g", "r"), row("g", "p")]}
    )
    found = report(tmp_path, rows).tables["movement"]
    assert [(row["group_id"], row["dt"], row["policy"]) for row in found] == [
        ("g", FIRST, "q"),
        ("g", LAST, "p"),
        ("g", LAST, "r"),
        ("h", FIRST, "p"),
    ]


def test_the_head_of_the_page_names_period_older_days_sources_and_version() -> None:
    """The lines also cover histories without older days or without a decision."""
    about = About(("a", "b"), at(20, 5), at(21, 8), days=31, days_in_all=1_031, version="7")
    assert about.lines() == [
        ("period", "2026-11-20 05:00:00 to 2026-11-21 08:00:00 UTC"),
        ("older", "1,000 days, in the Parquet folders"),
        ("read from", "a, b"),
        ("written by", "faust-assigner 7"),
    ]
    assert About(("a",), days=3, days_in_all=3, version="7").lines() == [
        ("period", "no decision"),
        ("read from", "a"),
        ("written by", "faust-assigner 7"),
    ]


def test_a_report_is_written_again_only_for_a_new_generation_or_another_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is written before the report, so a run after a crash rewrites both."""
    monkeypatch.setattr(output.plots, "draw", lambda report: {})
    store = stored(tmp_path, days({"samples": [{"ts": at(20, 1)}]}, {}))
    manifest = store.load()
    written: list[str] = []
    write = store.folder.write
    monkeypatch.setattr(
        store.folder, "write", lambda name, data: (written.append(name), write(name, data))
    )

    def publish(**gates: Any) -> list[str]:
        written.clear()
        options = HistoryOptions(("one",), str(tmp_path), gates=Gates(**gates))
        output.publish(store, manifest, options, Refused())
        return list(written)

    both = ["report.html", "report.json"]
    assert publish(max_age_s=1.0) == both
    assert publish(max_age_s=1.0) == []
    assert publish(max_age_s=1e12) == both
    assert publish(min_days=1) == both
    assert publish(min_days=1) == []
    assert publish(min_days=5) == both


def test_a_members_row_counts_its_tasks_and_leaves_the_leader_topic_out() -> None:
    """Two topics with equal counts share their tasks; a member without an instance id has its own id."""
    member = Member(
        "m-1",
        ["a", "b", "wide"],
        actives={"wide": [5], "b": [1, 2], "a": [1, 2, 3], "app-__assignor-__leader": [0]},
        standbys={"a": [0], "b": [0, 4]},
        rack_id="r1",
    )
    partitions = {"a": 6, "b": 6, "wide": 9, "app-__assignor-__leader": 1}
    assert owner_row(GroupState("g", "d", (member,), partitions, ("a", "b")), member) == {
        "member_id": "m-1",
        "member": "m-1",
        "rack": "r1",
        "tasks": 4,
        "active_partitions": 6,
        "active": "a 1-3; b 1-2; wide 5",
        "standby_partitions": 3,
    }
