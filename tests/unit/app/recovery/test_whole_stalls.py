"""The error of a replay to which the broker sends nothing any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from faust_assigner.app.recovery import batched_replay
from faust_assigner.snapshots.changelog import STALL_S, Extent
from faust_assigner.snapshots.kafka_requests import UnreachableError
from tests.unit.app.recovery.test_batched_replay import Assigned


async def test_a_stalled_replay_names_the_partitions_that_it_reads_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition that is complete is not named, nor one whose turn has not come."""
    parts = [TopicPartition("log", number) for number in (5, 4, 3, 2)]
    waiting, now = list(parts), 0.0
    monkeypatch.setattr(batched_replay.time, "monotonic", lambda: now)
    monkeypatch.setattr(batched_replay, "consumer_of", lambda _, **more: Assigned([]))

    async def replace_fetcher(consumer: Any, kind: Any) -> None:
        """Keep the fetcher."""

    async def turn(consumer: Any, work: Any, ends: dict[TopicPartition, int], pace: Any) -> bool:
        nonlocal now
        if parts[0] in ends:
            del ends[parts[0]]
            return True
        now += STALL_S  # at the limit the replay still waits
        return False

    monkeypatch.setattr(batched_replay, "replace_fetcher", replace_fetcher)
    monkeypatch.setattr(batched_replay, "_take_turn", turn)
    work: Any = SimpleNamespace(
        tps=parts, is_over=lambda: False, begin=lambda: (waiting.pop(0), Extent(3, 9))
    )
    with pytest.raises(UnreachableError) as caught:
        await batched_replay.replay(
            {},
            work,
            stopped=lambda: False,
            isolation_level="read_committed",
            pace=Any,  # type: ignore[arg-type]
        )
    named = [TopicPartition("log", number) for number in (3, 4)]
    assert str(caught.value) == f"no records arrived for {STALL_S:.0f} s from {named}"
    assert (now, waiting) == (2 * STALL_S, [TopicPartition("log", 2)])
