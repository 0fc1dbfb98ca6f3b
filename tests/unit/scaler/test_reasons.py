"""The order of all reasons against a change, the notes, and the memory's edge cases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.scaler import look as under_test
from faust_assigner.scaler.look import Look, Source
from faust_assigner.scaler.memory import Memory, Sample, observed, rate_at_work
from faust_assigner.scaler.recommend import recommend
from faust_assigner.scaler.settings import Settings


def member(name: str, **more: Any) -> Any:
    """Return a report's member at rest."""
    told = {"answer": "answered", "detail": "", "is_leaving": False, "warmups": {}}
    told |= {"restore_remaining_records": 0, "not_live": (), "not_ready": (), "capacity": None}
    return SimpleNamespace(name=name, **{**told, **more})


def partition(topic: str, number: int, reason: str = "", **more: Any) -> Any:
    """Return a report's partition, standing still for a reason."""
    standing = SimpleNamespace(reason=reason) if reason else None
    told = {"owner": "w", "committed": 1, "end": 9, "is_changelog": False}
    return SimpleNamespace(topic=topic, partition=number, standing=standing, **{**told, **more})


def report(*members: Any, partitions: Any = (), **more: Any) -> Any:
    """Return a report of a settled group."""
    told = {"is_settled": True, "state": "Stable", "group": "shop", "problems": ()}
    return SimpleNamespace(members=members, partitions=partitions, **{**told, **more})


def view(among: Any = None) -> Any:
    """Return a view of a member with or without a first round's answer."""
    given = None if among is None else SimpleNamespace(among=among)
    return SimpleNamespace(member=SimpleNamespace(given=given))


def busy(told: Any, *views: Any) -> list[str]:
    """Return the reasons against a change."""
    return list(under_test._reasons_to_wait(told, views))


def test_all_reasons_of_a_restless_group_in_their_order() -> None:
    """The group's reason comes first, then each member's, then the partitions' by reason."""
    members = (
        member("a", answer="silent", detail="no route", is_leaving=True),
        member(
            "b",
            is_leaving=True,
            restore_remaining_records=1_200,
            warmups={"log": (3, 1, 2), "other": (0,)},
            not_live=("it hangs",),
            not_ready=("it waits",),
        ),
        member("c", not_ready=("first", "second")),
    )
    partitions = [
        partition("t", 1, "round"),
        partition("t", 2, "restoring"),
        partition("u", 0, "restoring"),
        partition("t", 3, "record"),
        partition("t", 4, "hand_over"),
        partition("t", 5, "group"),
    ]
    told = report(*members, partitions=partitions, is_settled=False, state="Preparing")
    assert busy(told, view({1})) == [
        "a rebalance is in progress (Preparing)",
        "worker a does not answer (silent: no route)",
        "worker b is stopping",
        "worker b restores state, 1,200 records remain",
        "worker b warms up log 1-3, other 0",
        "worker b is not ready: it hangs",
        "worker c is not ready: first",
        "t 2, u 0 restores its tables",
        "t 1 waits for a rebalance",
        "t 4 is handed over",
        "t 5 waits for the group's coordinator",
    ]


@pytest.mark.parametrize(
    ("views", "waits"),
    [((view(), view({1})), True), ((view({1}), view()), True), ((view(), view(())), False)],
)
def test_the_second_round_of_any_member_is_waited_for(views: Any, waits: bool) -> None:
    """An answer for no other members announces no second round."""
    why = ["the second of two rounds of a rebalance is about to begin"]
    assert busy(report(member("a"), partitions=[partition("t", 0)]), *views) == why * waits


@pytest.mark.parametrize(
    ("members", "ends", "is_settled", "missing"),
    [
        ((member("a"),), (None, None), True, True),
        ((member("a"),), (None, 0), True, False),
        ((member("a"),), (), True, True),
        ((), (None,), True, False),
        ((), (None,), False, False),
    ],
)
def test_end_offsets_are_missing_if_a_settled_group_has_none(
    members: Any, ends: Any, is_settled: bool, missing: bool
) -> None:
    """Offset 0 is an end offset; a group without members needs no end offsets."""
    partitions = [partition("t", number, end=end) for number, end in enumerate(ends)]
    told = report(*members, partitions=partitions, is_settled=is_settled)
    assert busy(told) == ["the brokers did not return end offsets"] * missing


def test_the_sources_of_a_report_are_its_known_partitions_without_tables_and_leader() -> None:
    """A partition without an owner has an empty owner name."""
    partitions = [
        partition("t", 0, owner=None, committed=None),
        partition("t", 1, end=None),
        partition("t", 2, committed=0, end=0),
        partition("log", 0, is_changelog=True),
        partition("shop-__assignor-__leader", 0),
        partition("other-__assignor-__leader", 0),
    ]
    assert under_test._sources(report(partitions=partitions)) == {
        ("t", 0): Source(owner="", committed=None, end=9),
        ("t", 2): Source(owner="w", committed=0, end=0),
        ("other-__assignor-__leader", 0): Source(owner="w", committed=1, end=9),
    }


def test_all_notes_of_a_look() -> None:
    """The notes cover capacities, partitions without a commit, and the report's problems."""
    sources = {
        ("t", 2): Source(owner="w", committed=None, end=5),
        ("t", 0): Source(owner="w", committed=None, end=0),
        ("t", 1): Source(owner="w", committed=None, end=5),
        ("t", 3): Source(owner="w", committed=0, end=5),
    }
    members = [
        member(name, capacity=capacity)
        for name, capacity in zip("abc", (1.0, None, 2.0), strict=True)
    ]
    told = report(*members, problems=("first", "second"))
    assert list(under_test._notes(told, sources)) == [
        "the workers' capacities differ; sizes are computed as if all workers were alike",
        "t 1-2: no offset is committed yet, so the lag is unknown",
        "first",
        "second",
    ]
    assert list(under_test._notes(report(*members[:2]), {})) == []


@pytest.mark.parametrize(
    ("texts", "found"),
    [(("1", "10", "2"), 10), (("x", ""), None), ((None,), None), (("0", "-3", "²"), 0), ((), None)],
)
def test_the_standbys_of_the_workers_are_compared_as_numbers(texts: Any, found: int | None) -> None:
    """A worker without an answer has no number."""
    views: Any = [
        SimpleNamespace(
            status=None
            if text is None
            else SimpleNamespace(settings={"table_standby_replicas": text})
        )
        for text in texts
    ]
    assert under_test._standbys(views) == found


# -- the memory -----------------------------------------------------------------------------------


def seen(at: float, *places: tuple[str, int | None, int], **more: Any) -> Look:
    """Return a look at partitions: owner, committed, end."""
    sources = {
        ("t", number): Source(owner=owner, committed=committed, end=end)
        for number, (owner, committed, end) in enumerate(places)
    }
    return Look(taken_at=at, members=2, tasks=3, sources=sources, **more)


def test_a_commit_of_zero_is_a_commit() -> None:
    """Records up to the next commit were processed."""
    first = observed(Memory(), seen(0, ("a", 0, 50)), Settings())
    after = observed(first, seen(10, ("a", 20, 50)), Settings())
    assert (after.samples[-1].processed, after.rates) == (20, (2.0,))
    back = observed(first, seen(10, ("a", None, 60)), Settings())
    assert (back.samples[-1].processed, back.samples[-1].arrived) == (0, 10)


@pytest.mark.parametrize(("late_s", "rate"), [(65.0, 100 / 65), (65.1, 9.0)])
def test_arrivals_are_averaged_from_a_look_up_to_65_seconds_ago(late_s: float, rate: float) -> None:
    """An older look is skipped; without a younger look the last look counts."""
    samples = (Sample(at=1_000.0), Sample(at=1_055.0, arrived=10, arrival=1.0))
    before = Memory(samples=samples, last=seen(1_055.0, ("a", 0, 0)))
    after = observed(before, seen(1_000.0 + late_s, ("a", 0, 90)), Settings())
    wanted = rate if late_s == 65.0 else 90 / (late_s - 55.0)
    assert after.samples[-1].arrival == pytest.approx(wanted)


def test_a_rate_over_less_than_a_second_is_one() -> None:
    """A sole worker has all tasks."""
    samples = (Sample(at=10.0, processed=0), Sample(at=10.5, processed=5))
    memory = Memory(samples=samples, tasks=3)
    assert memory.processed_rate() == 10.0
    assert rate_at_work(memory, 1) == 10.0


def test_members_that_join_before_any_recommendation_are_its_begin() -> None:
    """A group without members and without a size is not away from its size."""
    found, memory = recommend(seen(5, ("a", 0, 0)), Settings(), Memory())
    assert (found.present, memory.parted_at) == (2, None)
    empty = Look(taken_at=5, members=0, tasks=0)
    _, memory = recommend(empty, Settings(), Memory(size=0))
    assert memory.parted_at is None
