"""The time of a table's partition: what a commit, a late record and a change of owner do to it."""

from __future__ import annotations

from faust.types import TP

from faust_assigner.app.tables.window_times import Times

SOURCE = TP("orders", 0)


def test_the_record_at_the_committed_offset_does_not_move_the_time() -> None:
    """A committed offset is that of the next record: this one may be processed again."""
    times = Times()
    times.reach(SOURCE, 4, 0, 40.0, 0.0)
    times.reach(SOURCE, 5, 0, 50.0, 0.0)
    times.commit({SOURCE: 5})
    assert times.time(0) == 40.0
    times.commit({SOURCE: 6})
    assert times.time(0) == 50.0


def test_a_late_record_does_not_turn_back_the_time_at_the_end() -> None:
    """The partition's end is counted on from its latest timestamp."""
    times = Times()
    times.reach(SOURCE, 0, 0, 100.0, 0.0)
    times.reach(SOURCE, 1, 0, 30.0, 5.0)
    assert times.at_the_end(0, 10.0, 1_000.0, 60.0) == 110.0


def test_the_time_at_the_end_runs_from_the_last_record_of_the_latest_time() -> None:
    """Records of one time may come for a while: time did not pass meanwhile."""
    times = Times()
    times.reach(SOURCE, 0, 0, 100.0, 0.0)
    times.reach(SOURCE, 1, 0, 100.0, 5.0)
    assert times.at_the_end(0, 10.0, 1_000.0, 60.0) == 105.0


def test_the_first_record_of_a_source_is_committed_by_a_commit_alone() -> None:
    """A source that never changed the table has nothing to commit."""
    times = Times()
    assert times.is_committed(SOURCE)
    times.reach(SOURCE, 0, 0, 100.0, 0.0)
    assert not times.is_committed(SOURCE)
    times.commit({SOURCE: 1})
    assert times.is_committed(SOURCE)


def test_a_record_from_the_future_is_at_most_now_at_the_end() -> None:
    """Its partition's time stands still until the machine's clock has reached it."""
    times = Times()
    times.reach(SOURCE, 0, 0, 500.0, 0.0)
    assert [times.at_the_end(0, now, 100.0 + now, 60.0) for now in (0.0, 10.0, 500.0)] == [
        100.0,
        110.0,
        600.0,
    ]


def test_a_partition_that_comes_back_is_waited_for_as_long_as_at_first() -> None:
    """Its patience begins when it comes, not when it came the time before."""
    times = Times()
    assert times.at_the_end(0, 0.0, 1_000.0, 60.0) is None
    assert times.at_the_end(0, 60.0, 1_060.0, 60.0) == 1_060.0
    times.forget(0)
    assert times.at_the_end(0, 100.0, 1_100.0, 60.0) is None
    assert times.at_the_end(0, 160.0, 1_160.0, 60.0) == 1_160.0


def test_what_was_committed_before_a_partition_went_says_nothing_when_it_is_back() -> None:
    """Its records are processed again from what the group has committed, which may be earlier."""
    times = Times()
    times.reach(SOURCE, 9, 0, 90.0, 0.0)
    times.commit({SOURCE: 10})
    assert times.is_committed(SOURCE)
    times.forget(0)
    times.reach(SOURCE, 7, 0, 70.0, 0.0)
    assert not times.is_committed(SOURCE)
    assert times.time(0) is None


def test_a_partition_that_goes_takes_no_others_time_along() -> None:
    """Each has sources of its own number."""
    times, other = Times(), TP("orders", 1)
    times.reach(other, 3, 1, 30.0, 0.0)
    times.forget(0)
    times.commit({other: 4})
    assert (times.time(1), times.is_committed(other)) == (30.0, True)


def test_a_source_is_committed_where_its_highest_record_is() -> None:
    """With concurrency a lower one may be done last."""
    times = Times()
    times.reach(SOURCE, 9, 0, 90.0, 0.0)
    times.reach(SOURCE, 7, 0, 70.0, 0.0)
    times.commit({SOURCE: 9})
    assert not times.is_committed(SOURCE)
    times.commit({SOURCE: 10})
    assert times.is_committed(SOURCE)


def test_a_newer_time_of_before_closes_no_window_of_a_partition_that_is_back() -> None:
    """What it had reached before it went may not be committed: its records come again."""
    times = Times()
    times.reach(SOURCE, 9, 0, 900.0, 0.0)
    times.forget(0)
    assert times.at_the_end(0, 1.0, 1_000.0, 60.0) is None
    times.reach(SOURCE, 7, 0, 70.0, 2.0)
    assert times.at_the_end(0, 3.0, 1_000.0, 60.0) == 71.0
