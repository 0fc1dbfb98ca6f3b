"""Progress of restores: figures and log lines, with a clock that the test moves."""

from __future__ import annotations

import pytest

from faust_assigner.app.recovery.progress import BETWEEN_S, SILENT_S, Figures, Progress


class Clock:
    """A clock that the test moves."""

    now = 100.0

    def __call__(self) -> float:
        """Return the current time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Return a clock."""
    return Clock()


@pytest.fixture
def progress(clock: Clock) -> Progress:
    """Two partitions: one lacks 1,000 records, the other 400 of 500."""
    made = Progress(clock)
    made.begin({"a": (0, 1000), "b": (100, 500), "complete": (7, 7)})
    return made


def test_remaining_rate_and_end_are_of_all_partitions(progress: Progress, clock: Clock) -> None:
    """400 of 1,400 records in 2 s leave 5 s."""
    clock.now += 2
    progress.move("a", 300)
    progress.move("b", 200)
    assert progress.figures() == Figures(2, 1000, 200.0, 5.0)


def test_the_rate_is_that_of_the_last_seconds(progress: Progress, clock: Clock) -> None:
    """The figures show a restore that slows down."""
    for at in range(0, 800, 80):
        progress.move("a", at + 80)
        clock.now += 1
        progress.figures()
    fast = progress.figures().records_per_s
    for _ in range(20):
        clock.now += 1
        progress.figures()
    assert fast == pytest.approx(80)
    assert progress.figures().records_per_s == 0.0
    assert progress.figures().eta_s is None


def test_a_rate_between_rare_looks_is_that_since_the_last_look(
    progress: Progress, clock: Clock
) -> None:
    """A sample is kept until a later sample is 10 s old: the rate covers at least 10 s."""
    for at in (90, 180, 990):
        clock.now += 9
        progress.move("a", at)
        found = progress.figures().records_per_s
    assert found == pytest.approx((990 - 90) / 18)


def test_offsets_never_go_back_nor_beyond_the_end(progress: Progress, clock: Clock) -> None:
    """Two readers may report a partition, and a changelog may grow."""
    clock.now += 1
    for at in (400, 300, 5000):
        progress.move("b", at)
    progress.move("unknown", 9)
    assert progress.figures().remaining == 1000
    assert progress.passed == 400


def test_short_restores_are_silent(progress: Progress, clock: Clock) -> None:
    """A restore of a second is not worth a line."""
    clock.now += SILENT_S - 0.1
    assert progress.line() is None
    for tp in ("a", "b"):
        progress.move(tp, 1000)
        progress.finish(tp)
    assert progress.is_idle
    assert progress.end() is None


def test_a_line_comes_every_few_seconds_and_one_at_the_end(
    progress: Progress, clock: Clock
) -> None:
    """The worker asks every half second."""
    lines = {}
    for tick in range(1, 31):
        clock.now += 0.5
        progress.move("a", tick * 20)
        if line := progress.line():
            lines[tick * 0.5] = line
    assert sorted(lines) == [SILENT_S, SILENT_S + BETWEEN_S, SILENT_S + 2 * BETWEEN_S]
    assert lines[SILENT_S] == (
        "Restoring 2 partitions: 1,320 records remain, 40 records/s, the end is in about 33 s"
    )
    progress.finish("a")
    progress.finish("b")
    assert progress.end() == "Restored 600 records in 15.0 s, 40 records/s"


def test_what_stands_still_has_no_end_to_be_foreseen(progress: Progress, clock: Clock) -> None:
    """A broker without answers causes such a standstill."""
    clock.now += 3
    assert progress.line() == (
        "Restoring 2 partitions: 1,400 records remain, 0 records/s, the end is not predictable yet"
    )


def test_a_second_restore_begins_anew(progress: Progress, clock: Clock) -> None:
    """The second restore has its own time and records."""
    clock.now += 60
    progress.move("a", 1000)
    progress.finish("a")
    progress.finish("b")
    progress.end()
    assert progress.figures() == Figures()
    progress.begin({"c": (0, 100)})
    clock.now += 1
    progress.move("c", 50)
    assert progress.figures() == Figures(1, 50, 50.0, 1.0)


def test_a_long_restore_makes_no_line_of_the_short_one_after_it(
    progress: Progress, clock: Clock
) -> None:
    """The last line's time belongs to the ended restore."""
    clock.now += 60
    assert progress.line() is not None
    assert progress.end() is not None
    clock.now += 60
    progress.begin({"c": (0, 100)})
    assert progress.line() is None
    progress.move("c", 100)
    progress.finish("c")
    assert progress.end() is None


def test_the_total_is_of_all_restores_and_the_passed_records_of_this_one(
    progress: Progress, clock: Clock
) -> None:
    """A repeated or earlier position adds nothing; each partition has its own position."""
    assert (progress.next_offset("a"), progress.next_offset("b")) == (0, 100)
    assert progress.next_offset("complete") == progress.next_offset("unknown") == 0
    for tp, at in (("a", 30), ("a", 30), ("b", 107), ("b", 90), ("complete", 9)):
        progress.move(tp, at)
    assert (progress.next_offset("a"), progress.next_offset("b")) == (30, 107)
    assert (progress.total, progress.passed) == (37, 37)
    progress.finish("a")
    assert (progress.next_offset("a"), progress.is_idle) == (0, False)
    progress.finish("b")
    progress.finish("b")
    assert progress.is_idle
    assert progress.end() is None
    assert (progress.total, progress.passed) == (37, 0)
    progress.begin({"c": (5, 9)})
    progress.move("c", 8)
    assert (progress.total, progress.passed) == (40, 3)


def test_a_restore_given_up_has_no_partitions_and_keeps_its_time(
    progress: Progress, clock: Clock
) -> None:
    """A later restore continues the former: rate and line cover both parts."""
    clock.now += 4
    progress.move("a", 400)
    progress.give_up()
    assert progress.is_idle
    progress.move("a", 500)
    assert progress.figures() == Figures(0, 0, 100.0, 0.0)
    clock.now += 4
    progress.begin({"a": (400, 1000), "b": (500, 500)})
    progress.move("a", 600)
    assert progress.figures() == Figures(1, 400, 75.0, pytest.approx(400 / 75))


def test_a_restore_without_records_begins_nothing(clock: Clock) -> None:
    """The time starts with the first partition that lacks records."""
    progress = Progress(clock)
    assert progress.figures() == Figures()
    assert progress.line() is None
    progress.begin({"complete": (7, 7), "beyond": (9, 7)})
    assert progress.is_idle
    clock.now += 60
    assert progress.line() is None
    progress.begin({"a": (0, 1)})
    clock.now += SILENT_S - 0.1
    assert progress.line() is None
    clock.now += 0.1
    assert progress.line() is not None


def test_partitions_that_join_a_restore_do_not_begin_it_anew(
    progress: Progress, clock: Clock
) -> None:
    """The start time and the samples stay."""
    clock.now += SILENT_S
    progress.move("a", 200)
    progress.begin({"c": (0, 50)})
    assert progress.line() == (
        "Restoring 3 partitions: 1,250 records remain, 100 records/s, the end is in about 12 s"
    )
    clock.now += BETWEEN_S - 0.1
    assert progress.line() is None
    clock.now += 0.1
    assert progress.line() is not None


def test_a_restore_of_no_time_has_an_end_line(progress: Progress, clock: Clock) -> None:
    """The rate covers the whole time since the begin."""
    clock.now += 10
    assert progress.line() is not None
    progress.move("a", 1000)
    progress.move("b", 500)
    clock.now += 10
    assert progress.end() == "Restored 1,400 records in 20.0 s, 70 records/s"
    assert progress.end() is None
