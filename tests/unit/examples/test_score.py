"""The demo's own arithmetic: what counts as a move, as cold, as standing still."""

from __future__ import annotations

from examples.orders.score import Settled, minimum_moves, score, standstill


def owns(**workers: set[int]) -> dict[str, frozenset[int]]:
    """Ownership by keyword."""
    return {name: frozenset(partitions) for name, partitions in workers.items()}


def test_a_move_to_a_standby_is_warm_and_one_to_a_stranger_is_cold() -> None:
    """Partition 2 goes to its standby, partition 3 to a worker that never had it."""
    before = Settled(owns(a={0, 1, 2, 3}, b={4, 5}), owns(b={2}))
    after = Settled(owns(a={0, 1}, b={2, 4, 5}, c={3}), {})
    result = score("join", before, after, {}, {2: 1.5, 3: 2.5, 0: 0.5})
    assert (result.moves, result.cold) == (2, 1)
    assert (result.moved_gaps_s, result.kept_gaps_s) == ((1.5, 2.5), (0.5,))


def test_files_on_disk_make_a_return_warm() -> None:
    """A worker that was away and kept its files takes a partition back warm."""
    after = Settled(owns(a={0}, b={1}), {})
    assert score("return", Settled(owns(a={0, 1}), {}), after, owns(b={1}), {}).cold == 0


def test_a_worker_without_an_active_is_idle() -> None:
    """Idle workers are those with nothing to process."""
    after = Settled(owns(a={0, 1}, b=set()), {})
    assert score("join", Settled(owns(a={0, 1}), {}), after, {}, {}).idle == 1


def test_minimum_moves_of_a_join_a_leave_and_nothing() -> None:
    """Twelve partitions: a fourth worker needs three, a dead one's four must go, no change needs none."""
    three = owns(a={0, 1, 2, 3}, b={4, 5, 6, 7}, c={8, 9, 10, 11})
    four = owns(a={0, 1, 2}, b={4, 5, 6}, c={8, 9, 10}, d={3, 7, 11})
    two = owns(a={0, 1, 2, 3, 8, 9}, b={4, 5, 6, 7, 10, 11})
    assert [minimum_moves(three, then) for then in (four, two, three)] == [3, 4, 0]


def test_a_repeat_fills_no_pause() -> None:
    """Offset 5 done again at t=12 is no progress: the pause lasts from 10.5 to 14."""
    orders = [(10.0, 0, 4), (10.5, 0, 5), (12.0, 0, 5), (14.0, 0, 6)]
    assert standstill(orders, 10.0, 15.0) == {0: 3.5}
