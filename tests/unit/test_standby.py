"""StandbyAssignor: a test for each promise."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from faust_assigner.model import NOBODY, Ints
from faust_assigner.standby import StandbyAssignor, StandbyProblem
from faust_assigner.standbys.derive import _existing_copies
from faust_assigner.standbys.failover import measure, standby_spread
from faust_assigner.standbys.shares import settled_racks
from tests.support.standby_boards import (
    RACKS,
    SIZES,
    after_death,
    after_join,
    even_owners,
    fresh,
    place,
    problem,
    racks_of,
    with_answer,
)


def test_no_tasks_give_no_rows() -> None:
    """An app without tables needs no standbys."""
    assert place(problem([], 3, replicas=2)).shape == (0, 2)


def test_no_members_and_no_groups_give_no_rows() -> None:
    """An empty group and an empty cluster get an empty answer."""
    nothing = problem([], 0, eligible=np.zeros((0, 0)))
    assert StandbyAssignor().place(nothing).shape == (0, 1)


def test_no_replicas_give_no_columns() -> None:
    """R = 0 is an answer without columns."""
    assert place(problem([0, 1], 2, replicas=0)).shape == (2, 0)


def test_a_lone_member_has_no_standbys() -> None:
    """R' = min(R, members - 1) = 0."""
    assert (place(problem([0, 0, 0], 1, replicas=2)) == NOBODY).all()


def test_more_replicas_than_peers_fill_all_peers() -> None:
    """With R >= M every other member holds every task, and the rest of the row is padding."""
    placed = place(problem([0, 1, 2], 3, replicas=5))
    assert [sorted(row[:2]) for row in placed.tolist()] == [[1, 2], [0, 2], [0, 1]]


def test_a_task_without_owner_gets_no_standby() -> None:
    """A standby would have no owner to take over from."""
    assert place(problem([0, NOBODY, 1], 3)).ravel()[1] == NOBODY


def test_only_subscribers_hold_standbys() -> None:
    """Two groups have different subscribers; standbys stay among each group's subscribers."""
    given = problem(
        [0, 1, 2, 2, 3, 3],
        4,
        replicas=2,
        group=[0, 0, 0, 1, 1, 1],
        eligible=[[1, 1, 1, 0], [0, 0, 1, 1]],
    )
    placed = place(given)
    assert [sorted(row) for row in placed[:3].tolist()] == [[1, 2], [0, 2], [0, 1]]
    assert placed[3:].tolist() == [[3, NOBODY], [2, NOBODY], [2, NOBODY]]


def test_the_spread_leaves_out_members_that_may_hold_no_standby() -> None:
    """One of three members subscribes to no stateful topic; the others hold two standbys each."""
    given = problem([0, 1, 0, 1], 3, eligible=[[1, 1, 0]])
    assert standby_spread(given, place(given)) == 0


def test_a_standby_that_exists_stays() -> None:
    """No standby is restored if all standbys exist."""
    given = fresh(6, 30, 1, None)
    placed = place(given)
    assert (place(with_answer(given, placed)) == placed).all()


def test_a_vacated_active_becomes_the_standby() -> None:
    """The old owner has the state, so no standby is restored."""
    given = problem([0, 0, 1, 1, 2, 2], 3, copies=[(0, 1), (1, 2), (2, 0), (3, 2), (4, 0), (5, 1)])
    assert place(given).ravel().tolist() == [1, 2, 0, 2, 0, 1]


def test_a_standby_is_kept_before_a_vacated_active() -> None:
    """Of two warm copies the former standby stays and the vacated active is dropped."""
    given = problem(
        [0, 1, 2], 3, standbys=[(0, 2), (1, 0), (2, 1)], copies=[(0, 1), (1, 2), (2, 0)]
    )
    assert place(given).ravel().tolist() == [2, 0, 1]


def test_even_loads_come_before_saved_restores() -> None:
    """All copies are on a single member: most of them are moved."""
    given = problem([0, 0, 0, 2, 2, 2], 3, standbys=[(t, 1) for t in range(6)])
    assert standby_spread(given, place(given)) == 0


def test_copies_that_cannot_be_standbys_are_ignored() -> None:
    """Such copies are on the owner, on an unsubscribed member, or of a task without an owner."""
    given = problem(
        [0, NOBODY, 1],
        3,
        eligible=[[1, 1, 0]],
        standbys=[(0, 0), (0, 2), (1, 1), (2, 2)],
        wanted=[(0, 0), (0, 2), (1, 0)],
    )
    assert place(given).ravel().tolist() == [1, NOBODY, 0]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_wanted_standby_is_placed(replicas: int) -> None:
    """The target member of a promoted task gets its copy at any cost."""
    given = problem(
        even_owners(5, 25),
        5,
        replicas=replicas,
        standbys=[(t, (t + 3) % 5) for t in range(25)],
        wanted=[(0, 4), (1, 4), (6, 0), (24, 2)],
    )
    placed = place(given)
    for task, member in [(0, 4), (1, 4), (6, 0), (24, 2)]:
        assert member in placed[task]


def test_a_wanted_standby_counts_as_one_of_the_replicas() -> None:
    """The wanted standby takes one of the task's replicas and adds none."""
    given = problem([0, 1, 2, 3], 4, replicas=2, wanted=[(0, 3), (1, 3), (2, 3)])
    assert (place(given) == 3).sum(axis=1).tolist() == [1, 1, 1, 0]


def test_no_standby_in_its_actives_rack() -> None:
    """The rule holds while another rack has an eligible member."""
    given = problem(even_owners(9, 90), 9, rack=[0] * 7 + [1, 1])
    figures = measure(given, place(given))
    assert (figures.same_rack, figures.same_rack_avoidable) == (0, 0)


def test_standbys_in_the_home_rack_when_the_others_are_full() -> None:
    """Of two replicas one goes to the only foreign member, the other stays in the home rack."""
    given = problem(even_owners(4, 16), 4, replicas=2, rack=[0, 0, 0, 1])
    figures = measure(given, place(given))
    assert (figures.same_rack, figures.same_rack_avoidable) == (12, 0)


def test_each_standby_in_another_rack_while_racks_last() -> None:
    """A task uses R' + 1 distinct racks if there are so many."""
    given = problem(even_owners(9, 45), 9, replicas=2, rack=[0, 0, 0, 0, 1, 1, 1, 2, 2])
    racks = given.rack[place(given)]
    assert all(
        {given.rack[o], *row} == {0, 1, 2} for o, row in zip(given.owner, racks, strict=True)
    )


def test_every_other_rack_is_used_before_one_is_used_twice() -> None:
    """Three replicas over two foreign racks: both are used."""
    given = problem(even_owners(8, 24), 8, replicas=3, rack=[0, 0, 1, 1, 1, 1, 2, 2])
    racks = given.rack[place(given)]
    for home, row in zip(given.rack[given.owner], racks, strict=True):
        assert set(row) == {0, 1, 2} - {home}


def test_all_in_one_rack_is_as_no_racks() -> None:
    """A rack shared by all members has no effect."""
    without, one = fresh(5, 40, 2, None), problem(even_owners(5, 40), 5, replicas=2, rack=[3] * 5)
    assert (place(without) == place(one)).all()


def test_who_names_no_rack_is_a_rack_of_its_own() -> None:
    """The first worker with a rack id in a roll-out does not get all standbys."""
    given = problem(even_owners(10, 100), 10, rack=[0] + [NOBODY] * 9)
    assert standby_spread(given, place(given)) <= 1


def test_a_standby_in_the_wrong_rack_moves() -> None:
    """Racks come before saved restores."""
    given = problem([0, 1, 2, 3], 4, rack=[0, 0, 1, 1], standbys=[(0, 1), (1, 0), (2, 3), (3, 2)])
    assert measure(given, place(given)).same_rack == 0


def test_loads_follow_capacities() -> None:
    """A member with twice the capacity has twice the standbys."""
    capacity = [1.0, 1.0, 2.0, 1.0, 1.0]
    owner = np.repeat(np.arange(5), [20, 20, 40, 20, 20])
    loads = np.bincount(place(problem(owner, 5, capacity=capacity)).ravel(), minlength=5)
    assert loads[2] >= 1.6 * np.delete(loads, 2).max()


def test_the_answer_does_not_depend_on_the_order_of_the_copies() -> None:
    """The copies are a set of pairs."""
    given = problem(
        even_owners(6, 48),
        6,
        standbys=[(t, (t * 5 + 1) % 6) for t in range(48)],
        copies=[(t, (t * 5 + 2) % 6) for t in range(48)],
    )
    order = np.random.default_rng(4).permutation(len(given.copy_task))
    shuffled = replace(
        given,
        copy_task=given.copy_task[order],
        copy_member=given.copy_member[order],
        copy_was_standby=given.copy_was_standby[order],
    )
    assert (place(given) == place(shuffled)).all()


#: ``make test`` leaves out the sizes with 1,000 tasks or more.
SOME_SLOW = [pytest.param(*size, marks=[pytest.mark.slow] * (size[1] >= 1_000)) for size in SIZES]


@pytest.mark.parametrize("racks", RACKS)
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(("members", "tasks"), SOME_SLOW)
def test_a_first_start_meets_the_failover_bound(
    members: int, tasks: int, replicas: int, racks: str
) -> None:
    """After a death no load exceeds the maximum + ceil(tasks / peers); no rack has two copies."""
    given = fresh(members, tasks, replicas, RACKS[racks])
    placed = place(given)
    figures = measure(given, placed)
    assert figures.member_death.excess == 0
    assert figures.same_rack == 0
    if racks == "no racks":
        assert figures.spread <= 1
    assert (place(with_answer(given, placed)) == placed).all()


def _restored_above_the_bound(given: StandbyProblem, placed: Ints) -> set[tuple[int, int]]:
    """Return (task, member) of the new copies on pairs above the bound (R = 1)."""
    rack, _ = settled_racks(given.rack)
    pair = np.zeros((given.members, given.members), dtype=int)
    np.add.at(pair, (given.owner, placed[:, 0]), 1)
    tasks = np.bincount(given.owner, minlength=given.members)
    peers = np.array([(rack != home).sum() or given.members - 1 for home in rack])
    above = given.load + pair > given.load.max() + np.ceil(tasks / peers)[:, None]
    held = set(zip(given.copy_task.tolist(), given.copy_member.tolist(), strict=True))
    over = np.flatnonzero(above[given.owner, placed[:, 0]])
    return set(zip(over.tolist(), placed[over, 0].tolist(), strict=True)) - held


@pytest.mark.parametrize("event", ["join", "leave"])
@pytest.mark.parametrize("racks", RACKS)
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(("members", "tasks"), SOME_SLOW)
def test_after_a_join_or_a_leave_the_bound_is_missed_by_one_at_most(
    members: int, tasks: int, replicas: int, racks: str, event: str
) -> None:
    """Only kept copies miss the bound; standbys stay even and outside the rack of their active."""
    given = fresh(members, tasks, replicas, RACKS[racks])
    placed = place(given)
    if event == "join":
        rack = int(racks_of(members + 1, RACKS[racks])[-1])
        changed = after_join(given, placed, rack)
    else:
        changed = after_death(given, placed, members // 2)
    answer = place(changed)
    figures = measure(changed, answer)
    assert figures.member_death.excess <= 1
    assert figures.same_rack_avoidable == 0
    if racks == "no racks":
        assert figures.spread <= 1
    if replicas == 1:
        assert not _restored_above_the_bound(changed, answer)
    assert (place(with_answer(changed, answer)) == answer).all()


@pytest.mark.parametrize(("members", "tasks"), SIZES)
def test_a_join_restores_hardly_more_than_the_newcomers_share(members: int, tasks: int) -> None:
    """Without racks only the newcomer's own standbys are restored."""
    given = fresh(members, tasks, 1, None)
    changed = after_join(given, place(given), NOBODY)
    share = -(-tasks // (members + 1))
    assert measure(changed, place(changed)).fresh_copies <= share


def test_what_an_owner_gave_up_is_a_copy_and_was_no_standby() -> None:
    """An existing standby stays; a vacated active becomes a standby where needed."""
    previous: Any = SimpleNamespace(
        owner=np.array([0, 1]),
        copy_task=np.array([0, 1]),
        copy_member=np.array([2, 2]),
        copy_was_standby=np.array([True, False]),
    )
    task, member, was_standby = _existing_copies(previous, np.array([1, 1]), np.array([0, 1]))
    found = zip(task.tolist(), member.tolist(), was_standby.tolist(), strict=True)
    assert list(found) == [(0, 0, False), (0, 2, True), (1, 2, False)]


@pytest.mark.parametrize(
    ("members", "owner"),
    [
        (6, [2, 1, 2, 0, 2, 2, 2, 0, 1, 0, 1, 2, 0, 0, 0, 1]),
        (5, [2, 1, 0, 1, 0, 0, 1, 2, 2, 2, 0, 1]),
    ],
)
def test_rehearsed_trades_stay_among_subscribers(members: int, owner: list[int]) -> None:
    """A trade between tasks with different subscribers would lower the load after a death here."""
    everybody, three = [True] * members, [m < 3 for m in range(members)]
    group = np.repeat([0, 1], len(owner) // 2)
    given = problem(owner, members, replicas=2, group=group, eligible=[everybody, three])
    placed = StandbyAssignor().place(given)
    assert placed[group == 1].max() < 3
