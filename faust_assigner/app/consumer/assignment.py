"""aiokafka's assignment, changed in place: a new one would clear every buffer and end every fetch."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from aiokafka.consumer.subscription_state import TopicPartitionState
from aiokafka.structs import OffsetAndMetadata

#: "No offset was committed".
UNKNOWN_OFFSET = -1


def change(own: Any, tps: Collection[Any], subscriptions: Any, fetcher: Any) -> None:
    """Make ``own``, an active Assignment, one of ``tps``; states, buffers and fetches of what stays live on.

    No await: the fetcher sees the old partitions or the new ones.
    """
    for tp in own.tps - set(tps):
        _leave(own, tp)
        fetcher._records.pop(tp, None)
    for tp in set(tps) - own.tps:
        own._tp_state[tp] = TopicPartitionState(own)
    own._topic_partitions = frozenset(tps)
    subscriptions._notify_assignment_waiters()
    # The fetcher looks again what there is to fetch.
    fetcher._notify(fetcher._wait_consume_future)


def _leave(own: Any, tp: Any) -> None:
    """Leave a state without a position: what is in flight for the partition is discarded by it."""
    state = own._tp_state[tp]
    for (
        waiting
    ) in state._committed_futs:  # else the node of the partition stays "in flight" for ever
        if not waiting.done():
            waiting.set_result(OffsetAndMetadata(UNKNOWN_OFFSET, ""))
    state.resume()
    own._tp_state[tp] = TopicPartitionState(own)
