"""A full stop with late starters: tasks return to their owners as far as the target allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from faust_assigner import Member, Plan, plan
from faust_assigner.actives.copies import copies_of
from faust_assigner.checks.invariants import check
from faust_assigner.model import NOBODY
from tests.property.instances import carried
from tests.property.test_promotions import LOGS, restarted
from tests.property.warm.test_homing import most, score
from tests.support.examples import examples

TOPICS = ("clicks", "orders", "orders-log", "users", "users-log")
SIZES = (3, 4, 5, 8, 13, 30, 70, 200)
#: The sizes; ``make test`` leaves out the three largest.
SOME_SLOW = [*SIZES[:-3], *(pytest.param(n, marks=pytest.mark.slow) for n in SIZES[-3:])]


def counts(members: int, extra: int = 0) -> dict[str, int]:
    """Return two orders, three users and one click per member, plus ``extra`` of each group."""
    return {
        "orders": 2 * members + extra,
        "orders-log": 2 * members + extra,
        "users": 3 * members + extra,
        "users-log": 3 * members + extra,
        "clicks": members + extra,
    }


def answered(group: list[Member], partitions: dict[str, int], replicas: int) -> Plan:
    """Return the plan; small groups are checked against every promise."""
    made = plan(group, partitions, replicas=replicas, changelogs=LOGS)
    if len(group) <= 8:
        assert check(group, partitions, made, replicas=replicas, changelogs=LOGS) == []
    return made


def stopped(
    members: int, partitions: dict[str, int], replicas: int, rng: Random
) -> tuple[list[Member], Plan]:
    """Return a settled group's members after a restart, and the group's last plan."""
    group = [Member(f"m{m:03d}", TOPICS) for m in range(members)]
    for generation in range(1, 4):
        group = carried(group, answered(group, partitions, replicas), generation)
        gone = rng.randrange(members)
        group = [*group[:gone], *group[gone + 1 :], Member(f"n{generation}-{gone}", TOPICS)]
    for generation in (4, 5, 6, 7):
        made = answered(group, partitions, replicas)
        group = carried(group, made, generation)
    back = [replace(restarted(m, remembers=True), former_generation=m.generation) for m in group]
    rng.shuffle(back)
    return back, made


def in_waves(
    waiting: list[Member], partitions: dict[str, int], replicas: int, rng: Random, waves: int
) -> Iterator[tuple[list[Member], Plan]]:
    """Start the members in ``waves``, one round each; yield the present members and the plan."""
    living: list[Member] = []
    cuts = sorted(rng.sample(range(1, len(waiting)), waves - 1))
    for wave, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(waiting)], strict=True)):
        living = [*living, *waiting[start:end]]
        made = answered(living, partitions, replicas)
        yield living, made
        living = carried(living, made, 20 + wave)


def owners(made: Plan) -> dict[tuple[str, int], str]:
    """Return task -> owner."""
    return {
        (group.topics[0], p): made.member_ids[m]
        for group, owner in zip(made.groups, made.owner, strict=True)
        for p, m in enumerate(owner.tolist())
    }


@pytest.mark.parametrize("members", SOME_SLOW)
@pytest.mark.parametrize("replicas", [0, 1, 2])
def test_all_find_their_tasks_again(members: int, replicas: int) -> None:
    """With equal counts all owners are as before, provided the early members kept their tasks."""
    partitions, told = counts(members), 0
    for seed in range(examples(8, 5) if members < 30 else 1):
        rng = Random(f"{members} {replicas} {seed}")
        back, before = stopped(members, partitions, replicas, rng)
        was = owners(before)
        (early, first), (late, second) = in_waves(back, partitions, replicas, rng, 2)
        here, now = {m.member_id for m in early}, owners(first)
        if all(now[task] == m for task, m in was.items() if m in here):
            told += 1
            assert owners(second) == was, seed
            assert second.moves == sum(now[task] != m for task, m in was.items())
        assert len(late) == members
        if told == examples(8, 2):
            break
    assert told or members >= 30, "of the one life of a large group the early may have moved"


@pytest.mark.parametrize("members", SOME_SLOW)
@pytest.mark.parametrize("extra", [0, 1])
def test_late_starters_are_met_as_the_oracle_would(members: int, extra: int) -> None:
    """In three waves, as many tasks stay, land warm and return as any distribution permits."""
    partitions = counts(members, extra)
    for seed in range(examples(4, 1) if members < 30 else 1):
        rng = Random(f"{members} {extra} {seed}")
        back, _ = stopped(members, partitions, 1, rng)
        for living, made in in_waves(back, partitions, 1, rng, min(3, members)):
            for g, (group, target) in enumerate(zip(made.groups, made.target, strict=True)):
                last = made.layout.of(g, made.previous.last_owner)
                home = made.layout.of(g, made.previous.home)
                copies = set(
                    zip(
                        *(side.tolist() for side in copies_of(made.layout, made.previous, g)),
                        strict=True,
                    )
                )
                dealt = [int(n) for n in np.bincount(target, minlength=len(living))]
                assert score(target.tolist(), last.tolist(), home.tolist(), copies) == most(
                    last.tolist(), home.tolist(), copies, dealt
                ), (seed, group.topics)


@pytest.mark.parametrize("members", SOME_SLOW)
def test_nothing_moves_to_and_fro(members: int) -> None:
    """One more round may move promoted tasks to their targets; then no task moves."""
    partitions = counts(members, 1)
    rng = Random(members)
    back, _ = stopped(members, partitions, 1, rng)
    *_, (living, made) = in_waves(back, partitions, 1, rng, min(4, members))
    moves = []
    for generation in range(30, 34):
        living = carried(living, made, generation)
        made = answered(living, partitions, 1)
        moves.append(made.moves)
    assert moves[1:] == [0, 0, 0]


def test_who_was_given_something_since_says_nothing_of_the_dead() -> None:
    """Member a's former partitions are older than its actives: a was not task 1's last owner."""
    members = [
        Member(
            "a",
            ["t"],
            actives={"t": [0]},
            generation=5,
            former_actives={"t": [0, 1]},
            former_generation=3,
        ),
        Member("b", ["t"], actives={"t": [2]}, generation=5),
        Member("c", ["t"], generation=-1),
    ]
    found = plan(members, {"t": 3})
    assert found.previous.former.tolist() == [NOBODY] * 3
    assert found.previous.home.tolist() == [0, 0, NOBODY]
    assert found.actives("a") == {"t": [0]}
