"""The time of a table's partition: the effects of commits, late records and changes of owner."""

from __future__ import annotations

from faust.types import TP

from faust_assigner.app.tables.window_times import Times

SOURCE = TP("orders", 0)


def test_the_record_at_the_committed_offset_does_not_move_the_time() -> None:
    """The committed offset is the next record's: this record may be processed again."""
    times = Times()
    times.reach(SOURCE, 4, 0, 40.0, 0.0)
    times.reach(SOURCE, 5, 0, 50.0, 0.0)
    times.commit({SOURCE: 5})
    assert times.time(0) == 40.0
    times.commit({SOURCE: 6})
    assert times.time(0) == 50.0


def test_a_late_record_does_not_turn_back_the_time_at_the_end() -> None:
    """The time at the end continues from the latest timestamp."""
    times = Times()
    times.reach(SOURCE, 0, 0, 100.0, 0.0)
    times.reach(SOURCE, 1, 0, 30.0, 5.0)
    assert times.at_the_end(0, 10.0, 1_000.0, 60.0) == 110.0


def test_the_time_at_the_end_runs_from_the_last_record_of_the_latest_time() -> None:
    """Several records may have the same time: no time passes between them."""
    times = Times()
    times.reach(SOURCE, 0, 0, 100.0, 0.0)
    times.reach(SOURCE, 1, 0, 100.0, 5.0)
    assert times.at_the_end(0, 10.0, 1_000.0, 60.0) == 105.0


def test_the_first_record_of_a_source_is_committed_by_a_commit_alone() -> None:
    """A source without changes of the table has nothing to commit."""
    times = Times()
    assert times.is_committed(SOURCE)
    times.reach(SOURCE, 0, 0, 100.0, 0.0)
    assert not times.is_committed(SOURCE)
    times.commit({SOURCE: 1})
    assert times.is_committed(SOURCE)


def test_a_record_from_the_future_is_at_most_now_at_the_end() -> None:
    """The partition's time stands still until the machine's clock has reached it."""
    times = Times()
    times.reach(SOURCE, 0, 0, 500.0, 0.0)
    assert [times.at_the_end(0, now, 100.0 + now, 60.0) for now in (0.0, 10.0, 500.0)] == [
        100.0,
        110.0,
        600.0,
    ]


def test_a_partition_that_comes_back_is_waited_for_as_long_as_at_first() -> None:
    """The wait starts at the new assignment, not at the former one."""
    times = Times()
    assert times.at_the_end(0, 0.0, 1_000.0, 60.0) is None
    assert times.at_the_end(0, 60.0, 1_060.0, 60.0) == 1_060.0
    times.forget(0)
    assert times.at_the_end(0, 100.0, 1_100.0, 60.0) is None
    assert times.at_the_end(0, 160.0, 1_160.0, 60.0) == 1_160.0


def test_what_was_committed_before_a_partition_went_says_nothing_when_it_is_back() -> None:
    """Records are processed again from the group's committed offset, which may be earlier."""
    times = Times()
    times.reach(SOURCE, 9, 0, 90.0, 0.0)
    times.commit({SOURCE: 10})
    assert times.is_committed(SOURCE)
    times.forget(0)
    times.reach(SOURCE, 7, 0, 70.0, 0.0)
    assert not times.is_committed(SOURCE)
    assert times.time(0) is None


def test_a_partition_that_goes_takes_no_others_time_along() -> None:
    """Each partition has sources of its own number."""
    times, other = Times(), TP("orders", 1)
    times.reach(other, 3, 1, 30.0, 0.0)
    times.forget(0)
    times.commit({other: 4})
    assert (times.time(1), times.is_committed(other)) == (30.0, True)


def test_a_source_is_committed_where_its_highest_record_is() -> None:
    """With concurrency a lower record may be the last to end."""
    times = Times()
    times.reach(SOURCE, 9, 0, 90.0, 0.0)
    times.reach(SOURCE, 7, 0, 70.0, 0.0)
    times.commit({SOURCE: 9})
    assert not times.is_committed(SOURCE)
    times.commit({SOURCE: 10})
    assert times.is_committed(SOURCE)


def test_a_newer_time_of_before_closes_no_window_of_a_partition_that_is_back() -> None:
    """A time reached before the revocation may be uncommitted: its records come again."""
    times = Times()
    times.reach(SOURCE, 9, 0, 900.0, 0.0)
    times.forget(0)
    assert times.at_the_end(0, 1.0, 1_000.0, 60.0) is None
    times.reach(SOURCE, 7, 0, 70.0, 2.0)
    assert times.at_the_end(0, 3.0, 1_000.0, 60.0) == 71.0


def test_times_are_kept_by_partition_and_by_source() -> None:
    """Records of two sources advance a partition; a commit of an unknown source has no effect."""
    times, other, third = Times(), TP("clicks", 0), TP("orders", 1)
    times.reach(SOURCE, 4, 0, 40.0, 1.0)
    times.reach(other, 2, 0, 60.0, 2.0)
    times.reach(third, 9, 1, 10.0, 3.0)
    assert times.topics == {"orders", "clicks"}
    times.commit({other: 3, TP("unknown", 0): 7})
    assert (times.time(0), times.time(1)) == (60.0, None)
    assert [times.is_committed(tp) for tp in (SOURCE, other, third)] == [False, True, False]
    times.commit({SOURCE: 5, third: 10})
    assert (times.time(0), times.time(1)) == (60.0, 10.0)
    assert times.is_committed(SOURCE)
    assert times.at_the_end(0, 12.0, 1_000.0, 5.0) == 70.0
    assert times.at_the_end(1, 12.0, 1_000.0, 5.0) == 19.0


def test_one_commit_passes_all_records_before_it() -> None:
    """The partition's time is the latest record time; an earlier time has no effect."""
    times = Times()
    for offset, timestamp in ((1, 10.0), (2, 30.0), (3, 20.0), (4, 30.0), (5, 50.0)):
        times.reach(SOURCE, offset, 0, timestamp, 0.0)
    times.commit({SOURCE: 2})
    assert times.time(0) == 10.0
    times.commit({SOURCE: 5})
    assert times.time(0) == 30.0
    times.commit({SOURCE: 6})
    assert times.time(0) == 50.0
    times.reach(SOURCE, 7, 0, 5.0, 0.0)
    times.commit({SOURCE: 8})
    assert times.time(0) == 50.0


def test_times_below_zero_and_at_zero_are_times() -> None:
    """One record has a time before 1970, the other has time 0."""
    times = Times()
    times.reach(SOURCE, 0, 0, -5.0, 0.0)
    times.commit({SOURCE: 1})
    assert times.time(0) == -5.0
    times.reach(SOURCE, 1, 0, 0.0, 2.0)
    times.commit({SOURCE: 2})
    assert times.time(0) == 0.0
    assert times.at_the_end(0, 2.0, 100.0, 60.0) == 0.0


def test_a_partition_without_records_waits_for_its_patience_to_the_moment() -> None:
    """The wait starts at the first check of the partition, not at the worker's start."""
    times = Times()
    assert times.at_the_end(3, 100.0, 1_000.0, 60.0) is None
    assert times.at_the_end(3, 159.9, 1_059.0, 60.0) is None
    assert times.at_the_end(3, 160.0, 1_060.0, 60.0) == 1_060.0
    assert times.at_the_end(4, 160.0, 1_060.0, 60.0) is None
    assert times.at_the_end(5, 160.0, 1_060.0, 0.0) == 1_060.0


def test_a_forgotten_partition_loses_all_of_its_sources() -> None:
    """Uncommitted times are removed too; topics that changed the table stay known."""
    times, other = Times(), TP("clicks", 0)
    for source in (SOURCE, other, TP("orders", 1)):
        times.reach(source, 4, source.partition, 40.0, 0.0)
    times.forget(0)
    times.commit({SOURCE: 9, other: 9, TP("orders", 1): 9})
    assert (times.time(0), times.time(1), times.topics) == (None, 40.0, {"orders", "clicks"})
    times.reach(SOURCE, 2, 0, 20.0, 0.0)
    assert not times.is_committed(SOURCE)
    times.commit({SOURCE: 3})
    assert times.time(0) == 20.0
