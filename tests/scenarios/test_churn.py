"""Two hundred random joins and leaves: evenness, warmth and rest, with standbys."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from faust_assigner import Member, Plan, plan
from faust_assigner.checks.invariants import carried, check
from tests.support.examples import examples

#: Two stateful groups (the second with two tables) and a stateless topic.
PARTITIONS = {
    "orders": 32,
    "orders-log": 32,
    "users": 20,
    "users-log": 20,
    "seen-log": 20,
    "clicks": 27,
}
CHANGELOGS = {"orders-log", "users-log", "seen-log"}


def answer(members: list[Member], replicas: int) -> Plan:
    """Return the planner's answer."""
    return plan(members, PARTITIONS, replicas=replicas, changelogs=CHANGELOGS)


def spread(values: np.ndarray) -> int:  # type: ignore[type-arg]
    """Return the largest minus the smallest."""
    return int(values.max() - values.min())


def standby_loads(now: Plan) -> np.ndarray:  # type: ignore[type-arg]
    """Return each member's number of standbys."""
    held = now.flat_standby[now.flat_standby >= 0]
    return np.bincount(held, minlength=len(now.member_ids))


@pytest.mark.parametrize(("replicas", "seed"), [pytest.param(1, 1, marks=pytest.mark.slow), (2, 3)])
def test_two_hundred_joins_and_leaves_stay_even_warm_and_settled(replicas: int, seed: int) -> None:
    """The standby spread is always <= 1, loads are even after joins, no avoidable move is cold."""
    rng = Random(seed)
    members = [Member(f"m{i:03d}", list(PARTITIONS)) for i in range(5)]
    last = answer(members, replicas)
    for step in range(examples(200, 50)):
        members = carried(members, last)
        join = len(members) == 3 or (len(members) < 14 and rng.random() < 0.5)
        if join:
            members.append(Member(f"m{step + 5:03d}", list(PARTITIONS)))
        else:
            members.pop(rng.randrange(len(members)))
        now = answer(members, replicas)
        violations = check(
            members,
            PARTITIONS,
            now,
            replicas=replicas,
            changelogs=CHANGELOGS,
            planner=(lambda again: answer(list(again), replicas)) if step % 5 == 0 else None,
        )
        assert violations == [], f"step {step}"
        assert spread(standby_loads(now)) <= 1, f"step {step}"
        if join:
            report = now.report()
            assert report["load_max"] - report["load_min"] <= 1, f"step {step}"
            assert report["group_spread"] <= 1, f"step {step}"
        orphans = (now.previous.owner == -1) & now.flat_cold
        assert not orphans.any(), (
            f"step {step}: an orphan landed cold while a member with its state lives"
        )
        last = now


def test_a_restarted_member_gets_back_tasks_whose_files_it_holds() -> None:
    """Among the tasks that must move to the member, those with files on the member move."""
    members = [Member(f"m{i}", list(PARTITIONS)) for i in range(4)]
    first = answer(members, 1)
    members = carried(members, first)
    files = {t: first.actives("m3")[t] for t in CHANGELOGS if t in first.actives("m3")}
    while_down = answer(members[:3], 1)
    back = [*carried(members[:3], while_down), Member("m3", list(PARTITIONS), standbys=files)]
    now = answer(back, 1)
    stateful = [g for g, group in enumerate(now.groups) if group.changelogs]
    got = sum(int((now.owner[g] == 3).sum()) for g in stateful)
    assert got > 0
    assert sum(int(((now.owner[g] == 3) & now.standby_hit[g]).sum()) for g in stateful) == got
    assert now.report()["cold_moves"] == 0


def test_all_members_restarting_with_files_lose_nothing() -> None:
    """No member owns a task: every task goes to a member with its files, evenly."""
    members = [Member(f"m{i}", list(PARTITIONS)) for i in range(4)]
    first = answer(members, 1)
    with_files = [
        Member(
            m.member_id,
            m.topics,
            standbys={
                t: sorted(
                    {
                        *first.actives(m.member_id).get(t, ()),
                        *first.standbys(m.member_id).get(t, ()),
                    }
                )
                for t in CHANGELOGS
            },
        )
        for m in members
    ]
    now = answer(with_files, 1)
    assert now.report()["cold_moves"] == 0
    assert now.report()["load_max"] - now.report()["load_min"] <= 1


def test_a_bounce_with_its_memory_moves_nothing() -> None:
    """A static member returns with its former claims and gets the same plan."""
    members = [Member(f"m{i}", list(PARTITIONS)) for i in range(5)]
    first = answer(members, 1)
    again = answer(carried(members, first), 1)
    assert again.moves == 0
    assert [again.actives(i) for i in again.member_ids] == [
        first.actives(i) for i in first.member_ids
    ]
    older = [replace(m, generation=-1) for m in carried(members, first)]
    assert answer(older, 1).moves == 0
