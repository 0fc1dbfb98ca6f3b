"""Detecting snapshots of a deleted and recreated topic."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from faust_assigner.snapshots.manifest import Manifest, format_time_ms, snapshot_id
from faust_assigner.snapshots.trust import earlier_topic, newest_topic_id

TODAY, BEFORE = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


def taken(at: int, next_offset: int, topic_id: str | None = None, partition: int = 0) -> Manifest:
    """Return a snapshot taken at ``at`` seconds."""
    return Manifest(
        topic="t-changelog",
        partition=partition,
        snapshot_id=snapshot_id(next_offset),
        next_offset=next_offset,
        keys=1,
        bytes=1,
        sha256="ab" * 32,
        created_at=format_time_ms(at * 1000),
        files=("a.sst",),
        topic_id=topic_id,
    )


def shown(
    manifest: Manifest,
    others: Sequence[Manifest] = (),
    *,
    topic_id: str | None = TODAY,
    end: int | None = 100,
) -> str | None:
    """Return the reason against ``manifest`` for partitions 0 and 1 that end at ``end``."""
    ends = {} if end is None else {0: end, 1: end}
    return earlier_topic(manifest, [manifest, *others], topic_id=topic_id, ends=ends)


def test_the_topics_own_snapshots_are_believed() -> None:
    """The snapshot has the topic's id, or no id and no contradicting snapshot."""
    assert shown(taken(1, 100, TODAY)) is None
    assert shown(taken(1, 50), [taken(2, 100), taken(0, 900), taken(2, 10, partition=1)]) is None
    assert shown(taken(1, 50, BEFORE), topic_id=None) is None


def test_another_topic_id_is_refused_however_the_offsets_lie() -> None:
    """The new log has grown beyond the old snapshot: only the id shows the difference."""
    assert BEFORE in str(shown(taken(1, 50, BEFORE)))


def test_a_snapshot_beyond_the_end_is_refused() -> None:
    """A log never shrinks, so the snapshot's topic id does not matter."""
    for topic_id in (TODAY, None):
        assert "recreated or truncated" in str(shown(taken(1, 101, topic_id)))


@pytest.mark.parametrize(
    "newer",
    [
        taken(2, 101),
        taken(2, 101, partition=1),
        taken(2, 60, BEFORE),
        taken(2, 60, BEFORE, partition=1),
        taken(2, 49),
    ],
)
def test_one_without_id_falls_with_any_newer_one_that_cannot_be_true(newer: Manifest) -> None:
    """The newer snapshot is beyond the end, has another id, or is shorter than the older one."""
    assert "names no topic id" in str(shown(taken(1, 50), [newer]))
    older = replace(newer, created_at=format_time_ms(0))
    assert shown(taken(1, 50), [older]) is None
    at_once = replace(newer, created_at=format_time_ms(1000))
    assert shown(taken(1, 50), [at_once]) is None, "neither is newer"
    assert shown(taken(1, 50, TODAY), [newer]) is None


def test_without_kafka_the_newest_id_counts() -> None:
    """``verify`` and ``gc`` detect the older topic without a cluster."""
    snapshots = [taken(1, 50, BEFORE), taken(2, 20, TODAY), taken(3, 30)]
    assert newest_topic_id(snapshots) == TODAY
    assert BEFORE in str(shown(snapshots[0], snapshots, end=None))
    assert newest_topic_id([taken(1, 1)]) is None
    at_once = [taken(2, 20, TODAY, 1), taken(2, 50, BEFORE, 3), taken(2, 90, TODAY, 2)]
    assert newest_topic_id(at_once) == BEFORE, "of the highest partition, whatever the order"
