"""The standby objective against brute force and min-cost flow, and rules without an oracle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faust_assigner.model import NOBODY, Ints
from faust_assigner.standby import StandbyAssignor, StandbyProblem
from faust_assigner.standbys.failover import measure
from tests.property.standby_oracle import brute_force, least_cost, pair_caps, terms
from tests.support.examples import examples
from tests.support.standby_boards import even_owners, place, problem, with_answer


def _instance(
    chance: np.random.Generator, members: int, tasks: int, replicas: int, racks: int
) -> StandbyProblem:
    """Return evenly owned tasks in random order, with random left-over copies."""
    owner = chance.permutation(even_owners(members, tasks))
    copies = {
        (int(t), int(m))
        for t, m in zip(
            chance.integers(tasks, size=2 * tasks),
            chance.integers(members, size=2 * tasks),
            strict=True,
        )
        if owner[t] != m
    }
    ordered = sorted(copies)
    was = chance.random(len(ordered)) < 0.6
    return problem(
        owner,
        members,
        replicas=replicas,
        rack=None if racks == 0 else chance.integers(racks, size=members).tolist(),
        standbys=[pair for pair, yes in zip(ordered, was, strict=True) if yes],
        copies=[pair for pair, yes in zip(ordered, was, strict=True) if not yes],
    )


def _loose(board: StandbyProblem) -> dict[tuple[int, int], int]:
    """Return no failover caps: with several replicas, pair counts do not determine promotions."""
    return {(o, m): board.tasks for o in range(board.members) for m in range(board.members)}


@pytest.mark.parametrize("seed", range(150))
def test_tiny_answers_are_optimal(seed: int) -> None:
    """All terms equal the optimum over all answers: 2-4 members, up to 6 tasks, one replica."""
    chance = np.random.default_rng(seed)
    board = _instance(chance, int(chance.integers(2, 5)), int(chance.integers(1, 7)), 1, seed % 3)
    caps = pair_caps(board)
    assert terms(board, place(board), caps) == brute_force(board, caps)


@pytest.mark.parametrize("seed", range(60))
def test_tiny_answers_with_two_replicas_have_the_most_racks_and_even_loads(seed: int) -> None:
    """Racks and even loads equal the best of every answer."""
    chance = np.random.default_rng(1_000 + seed)
    board = _instance(chance, 4, int(chance.integers(1, 6)), 2, seed % 3)
    caps = _loose(board)
    ours, best = terms(board, place(board), caps), brute_force(board, caps)
    assert ours[:2] == best[:2]
    if len(set(board.rack.tolist())) == 1:
        assert ours[2] == best[2]


#: The number of instances below, of 120, allowed a restore above the optimum.
NEAR_MISSES = 4


def test_answers_of_some_dozens_of_tasks_are_optimal() -> None:
    """All terms but the last equal the optimum; a few cases have one or two restores more."""
    misses = 0
    for seed in range(120):
        chance = np.random.default_rng(5_000 + seed)
        board = _instance(
            chance, int(chance.integers(3, 9)), int(chance.integers(10, 31)), 1, seed % 3
        )
        caps = pair_caps(board)
        ours, best = terms(board, place(board), caps), least_cost(board, caps)
        assert ours[:-1] == best[:-1], f"seed {seed}"
        assert ours[-1] <= best[-1] + 2, f"seed {seed}"
        misses += ours[-1] > best[-1]
    assert misses <= NEAR_MISSES


@st.composite
def boards(draw: st.DrawFn) -> StandbyProblem:
    """Draw uneven owners, several groups, partial racks, wishes and capacities."""
    members, groups = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    tasks = draw(st.integers(0, 24))
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    eligible = chance.random((groups, members)) < draw(st.sampled_from([0.6, 1.0]))
    group = np.sort(chance.integers(groups, size=tasks))
    owner = np.array(
        [
            chance.choice(np.flatnonzero(eligible[g])) if eligible[g].any() else NOBODY
            for g in group
        ],
        dtype=np.int64,
    )
    pairs = sorted(
        {
            (int(t), int(m))
            for t in range(tasks)
            for m in range(members)
            if owner[t] != m and chance.random() < 0.4
        }
    )
    was = chance.random(len(pairs)) < 0.6
    wanted = sorted(
        {
            int(t): int(chance.integers(members)) for t in range(tasks) if chance.random() < 0.1
        }.items()
    )
    return problem(
        owner,
        members,
        replicas=draw(st.integers(0, 4)),
        group=group,
        eligible=eligible,
        rack=chance.integers(NOBODY, 3, size=members),
        wanted=wanted,
        standbys=[pair for pair, yes in zip(pairs, was, strict=True) if yes],
        copies=[pair for pair, yes in zip(pairs, was, strict=True) if not yes],
        capacity=chance.choice([1.0, 1.0, 2.0], size=members),
        load=np.bincount(owner[owner >= 0], minlength=members)
        + chance.integers(0, 4, size=members),
    )


@settings(max_examples=examples(200, 60), deadline=None)
@given(boards())
def test_any_board_gets_a_valid_answer_that_stays(board: StandbyProblem) -> None:
    """``place`` checks the validity; an unchanged board gets the same answer."""
    placed = place(board)
    if not len(board.wanted_task):
        assert (place(with_answer(board, placed)) == placed).all()


@settings(max_examples=examples(200, 60), deadline=None)
@given(boards())
def test_wanted_standbys_are_placed_while_they_fit(board: StandbyProblem) -> None:
    """The case covers each wish of an eligible member other than the owner."""
    placed = place(board)
    for task, member in zip(board.wanted_task, board.wanted_member, strict=True):
        owner = board.owner[task]
        if (
            owner not in (NOBODY, member)
            and board.eligible[board.group[task], member]
            and board.replicas
        ):
            assert member in placed[task]


@settings(max_examples=examples(150, 60), deadline=None)
@given(boards())
def test_no_avoidable_standby_beside_its_active(board: StandbyProblem) -> None:
    """Only a wish may place a standby in the rack of its active."""
    none = np.zeros(0, dtype=np.int64)
    plain = replace(board, wanted_task=none, wanted_member=none)
    assert measure(plain, place(plain)).same_rack_avoidable == 0


def _first(owner: Ints, placed: Ints, dead: int) -> Ints:
    """Return the promotions by the first standby of each row."""
    return np.bincount(placed[owner == dead, 0], minlength=int(placed.max()) + 1)


@pytest.mark.parametrize("replicas", [2, 3])
def test_the_front_of_each_row_is_an_even_promotion(replicas: int) -> None:
    """Promoting the first standby of each row stays near the bound too."""
    board = problem(even_owners(9, 120), 9, replicas=replicas)
    placed = StandbyAssignor().place(board)
    for dead in range(9):
        after = _first(board.owner, placed, dead) + board.load
        assert np.delete(after, dead).max() <= board.load.max() + 2
