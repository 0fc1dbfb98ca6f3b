"""Deadlines of members: earliest first, ties by purpose and member, and none after a drop."""

from __future__ import annotations

from collections.abc import Iterator

from faust_assigner.coordinator.timers import SPARE_ENTRIES, Purpose, Timers


def due(timers: Timers, now_ms: int) -> Iterator[tuple[Purpose, str]]:
    """Yield every due timer, in order."""
    while (found := timers.pop_due(now_ms)) is not None:
        yield found


def test_due_timers_come_by_time_then_purpose_then_member() -> None:
    """A timer is due at its time and not a millisecond earlier, and is returned once."""
    timers = Timers()
    assert (timers.earliest(), timers.pop_due(10**9)) == (None, None)
    timers.set(Purpose.SYNC, "b", 5)
    timers.set(Purpose.SESSION, "b", 5)
    timers.set(Purpose.SESSION, "a", 5)
    timers.set(Purpose.RETRY, "", 4)
    timers.set(Purpose.SESSION, "c", 7)
    assert (timers.earliest(), list(due(timers, 3))) == (4, [])
    assert list(due(timers, 6)) == [
        (Purpose.RETRY, ""),
        (Purpose.SESSION, "a"),
        (Purpose.SESSION, "b"),
        (Purpose.SYNC, "b"),
    ]
    assert (timers.earliest(), list(due(timers, 6))) == (7, [])
    assert timers.get(Purpose.SESSION, "a") is None


def test_a_moved_deadline_rings_at_its_last_time_alone() -> None:
    """The deadline moves later, earlier, and back to the first time."""
    timers = Timers()
    for deadlines in ((5, 9), (9, 5), (5, 9, 5), (5, 9, 7)):
        for deadline in deadlines:
            timers.set(Purpose.SESSION, "a", deadline)
        assert timers.get(Purpose.SESSION, "a") == timers.earliest() == deadlines[-1]
        assert list(due(timers, deadlines[-1] - 1)) == []
        assert list(due(timers, 100)) == [(Purpose.SESSION, "a")]
        assert (timers.earliest(), timers.get(Purpose.SESSION, "a")) == (None, None)


def test_a_deadline_of_0_is_one() -> None:
    """The clock may start at 0."""
    timers = Timers()
    timers.set(Purpose.JOIN, "a", 0)
    assert (timers.get(Purpose.JOIN, "a"), timers.earliest()) == (0, 0)
    assert timers.pop_due(0) == (Purpose.JOIN, "a")


def test_a_dropped_deadline_does_not_ring() -> None:
    """A purpose's and a member's deadlines are dropped; the second member's deadlines stay."""
    timers = Timers()
    for n, purpose in enumerate(Purpose):
        timers.set(purpose, "a", 10 + n)
        timers.set(purpose, "b", 20 + n)
    timers.drop(Purpose.REBALANCE, "b")
    timers.drop(Purpose.REBALANCE, "ghost")
    timers.drop_member("a")
    assert timers.earliest() == 20
    expected = [(purpose, "b") for purpose in Purpose if purpose is not Purpose.REBALANCE]
    assert list(due(timers, 99)) == expected
    timers.set(Purpose.SESSION, "a", 30)
    assert timers.earliest() == 30


def test_deadlines_that_are_set_and_dropped_take_no_memory() -> None:
    """Each round of a member sets a deadline of weeks, and its next request drops the deadline."""
    timers = Timers()
    timers.set(Purpose.SESSION, "a", 5)
    timers.set(Purpose.SESSION, "b", 7)
    timers.set(Purpose.SESSION, "b", 8)
    for number in range(1_000):
        timers.set(Purpose.REBALANCE, f"m{number}", 10**9 + number)
        if number < 990:
            timers.drop(Purpose.REBALANCE, f"m{number}")
    assert len(timers._heap) <= 2 * 12 + SPARE_ENTRIES
    found = list(due(timers, 2 * 10**9))
    assert found == [
        (Purpose.SESSION, "a"), (Purpose.SESSION, "b"),
        *((Purpose.REBALANCE, f"m{number}") for number in range(990, 1_000)),
    ]  # fmt: skip


def test_a_renamed_deadline_rings_for_the_new_member() -> None:
    """Only the purpose's deadline is renamed; a member without a deadline changes no deadline."""
    timers = Timers()
    timers.set(Purpose.SESSION, "a", 5)
    timers.set(Purpose.SYNC, "a", 6)
    timers.set(Purpose.SESSION, "c", 7)
    timers.rename(Purpose.SESSION, "a", "b")
    timers.rename(Purpose.SESSION, "ghost", "c")
    assert list(due(timers, 9)) == [
        (Purpose.SESSION, "b"),
        (Purpose.SYNC, "a"),
        (Purpose.SESSION, "c"),
    ]
