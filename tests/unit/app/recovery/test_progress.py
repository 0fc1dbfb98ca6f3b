"""How far restores are: figures and lines by a clock that the test moves."""

from __future__ import annotations

import pytest

from faust_assigner.app.recovery.progress import BETWEEN_S, SILENT_S, Figures, Progress


class Clock:
    """Seconds that pass when told."""

    now = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """At some time."""
    return Clock()


@pytest.fixture
def progress(clock: Clock) -> Progress:
    """Two partitions: 1,000 records, and 500 of which 100 are here."""
    made = Progress(clock)
    made.begin({"a": (0, 1000), "b": (100, 500), "complete": (7, 7)})
    return made


def test_remaining_rate_and_end_are_of_all_partitions(progress: Progress, clock: Clock) -> None:
    """400 of 1,400 records in 2 s: 5 s more."""
    clock.now += 2
    progress.move("a", 300)
    progress.move("b", 200)
    assert progress.figures() == Figures(2, 1000, 200.0, 5.0)


def test_the_rate_is_that_of_the_last_seconds(progress: Progress, clock: Clock) -> None:
    """A restore that slows down says so."""
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
    """A look is kept until a later one is ten seconds old: the rate covers ten seconds at least."""
    for at in (90, 180, 990):
        clock.now += 9
        progress.move("a", at)
        found = progress.figures().records_per_s
    assert found == pytest.approx((990 - 90) / 18)


def test_offsets_never_go_back_nor_beyond_the_end(progress: Progress, clock: Clock) -> None:
    """Two who tell of one partition, or a changelog that grows."""
    clock.now += 1
    for at in (400, 300, 5000):
        progress.move("b", at)
    progress.move("unknown", 9)
    assert progress.figures().remaining == 1000
    assert progress.passed == 400


def test_short_restores_are_silent(progress: Progress, clock: Clock) -> None:
    """Nobody reads a line of what took a second."""
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
    """Asked every half second, as the worker does."""
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
    """A broker that does not answer."""
    clock.now += 3
    assert progress.line() == (
        "Restoring 2 partitions: 1,400 records remain, 0 records/s, the end is not predictable yet"
    )


def test_a_second_restore_begins_anew(progress: Progress, clock: Clock) -> None:
    """With its own time and its own records."""
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
    """The time of the last line is of the restore that has ended."""
    clock.now += 60
    assert progress.line() is not None
    assert progress.end() is not None
    clock.now += 60
    progress.begin({"c": (0, 100)})
    assert progress.line() is None
    progress.move("c", 100)
    progress.finish("c")
    assert progress.end() is None
