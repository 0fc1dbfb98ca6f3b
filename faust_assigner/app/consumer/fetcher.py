"""aiokafka's fetcher, except that no partition waits for a different partition.

There is one fetch in flight for each broker. aiokafka delays the next fetch in three cases:

- while a partition of the broker has no position yet. aiokafka looks up one partition at a time, on the same
  connection as the requests of the next rebalance;
- for up to 0.1 s, while the app has not taken the fetched records;
- for another 0.2 s, if a fetch ends while the app takes records: aiokafka still counts it as in flight.

The broker holds a fetch until a partition in the fetch has records: up to 1.5 s with Faust. So the kept
partitions of a worker stood still whenever the worker gained partitions.

If a partition cannot be read, the other partitions continue. aiokafka raises an error, which ends Faust's
worker, and then each next owner of the partition. aiokafka also skips the records of other partitions that
the same call had taken.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping
from time import monotonic, time
from types import SimpleNamespace
from typing import TYPE_CHECKING

from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import TopicPartitionState
from aiokafka.errors import RecordTooLargeError
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from aiokafka.util import create_task
from faust.types.tuples import TP

from faust_assigner.app.consumer.committed_offsets import UNKNOWN_OFFSET
from faust_assigner.app.consumer.live_views import PartitionSubset
from faust_assigner.app.consumer.set_aside import FATAL_ERRORS, SetAside
from faust_assigner.concurrency.cancellation import is_cancelled

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer.subscription_state import Assignment, SubscriptionState
    from aiokafka.protocol.fetch import FetchRequest
    from aiokafka.structs import ConsumerRecord

    Records = dict[TP, list[ConsumerRecord[bytes, bytes]]]

#: The time limits in milliseconds of a fetch that omits a wanted partition, and of any other fetch.
WAIT_MS, IDLE_WAIT_MS = 20, 100


class FairFetcher(Fetcher):  # type: ignore[misc]
    """A fetcher that requests each partition without buffered records independently of other partitions.

    Brokers hold a fetch for at most 0.1 s. Cost: ten requests a second to each broker when idle.
    """

    #: Returns whether the app takes records of a partition now. A paused partition is not fetched.
    is_wanted: Callable[[TP], bool] = staticmethod(lambda tp: True)
    #: Returns whether partitions are about to be resumed. Until then fetches have a short time limit.
    is_hurried: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(
        self, client: AIOKafkaClient, subscriptions: SubscriptionState, **options: object
    ) -> None:
        self._subscription_state = subscriptions
        self._reads_committed = options.get("isolation_level") == "read_committed"
        #: aiokafka's state of a partition -> the running task that looks up its position.
        self._looked_up: dict[TopicPartitionState, asyncio.Task[bool]] = {}
        #: Partitions whose last taken records reached the end of their log.
        self._at_end: set[TP] = set()
        #: Partitions that cannot be read now.
        self.aside = SetAside()
        #: Partitions for which the broker answers with an error.
        self.refused = SetAside()
        #: The counter ``unreadable_partitions``: the number of failed reads.
        self.counters: Counter[str] = Counter()
        super().__init__(client, subscriptions, **options)

    def _get_actions_per_node(self, assignment: Assignment) -> object:
        """Return the fetches to send now; no partition waits for a different partition."""
        # A revoked partition that returns counts as new, because a different member has owned it meanwhile.
        self._at_end &= assignment.tps
        now = monotonic()
        wanted = [
            tp
            for tp in assignment.tps
            if tp not in self._records
            and self.is_wanted(tp)
            and not self._is_set_aside(assignment.state_value(tp), now)
        ]
        self._look_up(assignment, wanted)
        shown = [tp for tp in wanted if assignment.state_value(tp) not in self._looked_up]
        is_whole = not (
            self._looked_up or self.is_hurried() or any(map(self.is_wanted, self._records))
        )
        self._fetch_max_wait_ms = IDLE_WAIT_MS if is_whole else WAIT_MS
        if len(self._in_flight) > len(self._pending_tasks - set(self._looked_up.values())):
            # A fetch has ended; aiokafka removes it from its set one step of the loop after this check.
            asyncio.get_running_loop().call_soon(self.wake)
        return super()._get_actions_per_node(
            SimpleNamespace(tps=shown, state_value=assignment.state_value)
        )

    def _look_up(self, assignment: Assignment, tps: list[TP]) -> None:
        """Start one task for each of ``tps`` without a position; the tasks run beside the fetches.

        aiokafka combines the committed offsets that all tasks await into one request to the group.
        """
        for tp in tps:
            state, node = assignment.state_value(tp), self._client.cluster.leader_for_partition(tp)
            if state.has_valid_position or state in self._looked_up or node in (None, -1):
                continue
            self._looked_up[state] = task = create_task(
                self._update_fetch_positions(assignment, node, [tp])
            )
            task.add_done_callback(lambda _, state=state: self._end_lookup(state))
            # The fetcher waits for its pending tasks, so the end of a lookup wakes it.
            self._pending_tasks.add(task)

    def _end_lookup(self, state: TopicPartitionState) -> None:
        """Remove an ended lookup; without a position, refresh the metadata: the leader may have changed."""
        del self._looked_up[state]
        if not state.has_valid_position:
            self._client.force_metadata_update()

    def _is_set_aside(self, state: TopicPartitionState, now: float) -> bool:
        return self.aside.is_set_aside(state, now) or self.refused.is_set_aside(state, now)

    async def _proc_fetch_request(
        self, assignment: Assignment, node_id: int, request: FetchRequest
    ) -> bool:
        """Send one fetch; if it ends early without records, as after an error, wait up to ``WAIT_MS``."""
        asked = [
            (TopicPartition(topic, p), offset)
            for topic, parts in request.topics
            for p, offset, *_ in parts
        ]
        began, began_ms = monotonic(), int(1000 * time())
        brought: bool = await super()._proc_fetch_request(assignment, node_id, request)
        if is_cancelled():
            return brought  # aiokafka suppresses the cancellation; do not sleep below
        self._note_refusals(assignment, asked, began_ms)
        if not brought and (early := began + WAIT_MS / 1000 - monotonic()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(early)
        return brought

    def _note_refusals(
        self, assignment: Assignment, asked: Collection[tuple[TP, int]], began_ms: int
    ) -> None:
        states = [(tp, assignment.state_value(tp), o) for tp, o in asked if tp in assignment.tps]
        self.refused.note_answer(states, self._records, began_ms, monotonic())

    async def fetched_records(
        self,
        partitions: Container[TP] | None,
        timeout: float | None = 0,
        max_records: int | None = None,
    ) -> Records:
        """Return fetched records, as :meth:`_turn` selects; wait up to ``timeout`` seconds for records."""
        deadline = monotonic() + (timeout or 0)
        while not (found := await self._turn(partitions, max_records)):
            if (left := deadline - monotonic()) <= 0:
                break
            waiter = self._create_fetch_waiter()
            done, _ = await asyncio.wait([waiter], timeout=left)
            if not done or self._closed:
                waiter.cancel()
                return {}
            waiter.result()  # raises the errors of the group
        return found

    async def _turn(self, partitions: Container[TP] | None, max_records: int | None) -> Records:
        """Take up to half of the records from partitions that keep up, and the rest evenly from backlogs.

        A partition keeps up once it has been read to its end; until then it counts as a backlog. aiokafka
        empties one partition after the other, so in a busy worker each partition waits for all others. If
        a partition cannot be read, it is set aside, and this method returns no records: the records of the
        other partitions are fetched again.
        """
        if self._subscription_state.reassignment_in_progress:
            await self._subscription_state.wait_for_assignment()
        states = self._states()
        before = {state: state.position for state in states.values() if state.has_valid_position}
        share = PartitionSubset(partitions)
        found: Records = {}
        there = {tp for tp in self._records if tp in share}
        keep_up = self._at_end & there
        try:
            if max_records and max_records > 1 and 0 < len(keep_up) < len(there):
                share = PartitionSubset(partitions, only=keep_up)
                found = await super().fetched_records(share, 0, max_records // 2)
                there -= keep_up
            if max_records is None:
                found = await super().fetched_records(share)
                there.clear()
            backlogs = [tp for tp in self._records if tp in there]
            left = (max_records or 0) - sum(map(len, found.values()))
            for waiting, tp in zip(range(len(backlogs), 0, -1), backlogs, strict=True):
                if left <= 0:
                    break
                share = PartitionSubset(partitions, only={tp})
                # Put ``tp`` first: otherwise aiokafka checks each partition before ``tp`` again and again.
                self._records.move_to_end(tp, last=False)
                some = await super().fetched_records(share, 0, max(1, left // waiting))
                left -= sum(map(len, some.values()))
                found |= some
        except Exception as error:
            self._put_back(states, before)
            # aiokafka has removed the finished partitions, so the first remaining partition has failed.
            failed = next((tp for tp in self._records if tp in share), None)
            if failed is None or failed not in states or isinstance(error, FATAL_ERRORS):
                raise
            del self._records[failed]
            self._set_unreadable_aside(failed, states[failed], error)
            return {}
        self._note(found, states)
        return found

    def _states(self) -> dict[TP, TopicPartitionState]:
        """Return aiokafka's state of each assigned partition that has fetched records."""
        subscription = self._subscription_state.subscription
        assignment = None if subscription is None else subscription.assignment
        return (
            {}
            if assignment is None
            else {tp: assignment.state_value(tp) for tp in self._records if tp in assignment.tps}
        )

    def _put_back(self, states: Mapping[TP, TopicPartitionState], before: Mapping[TP, int]) -> None:
        """Seek partitions back to their positions in ``before`` and drop their fetched records."""
        for tp, state in states.items():
            if state in before and state.position != before[state]:
                state.seek(before[state])
                self._records.pop(tp, None)

    def _note(self, found: Records, states: Mapping[TP, TopicPartitionState]) -> None:
        """Move the partitions in ``found`` to the end of the queue, and note which of them keep up."""
        for tp in found:
            if tp in self._records:
                self._records.move_to_end(tp)
        self._at_end = (self._at_end - found.keys()) | set(filter(self._is_at_end, found))
        if len(self.aside):
            for tp in found:
                self.aside.note_success(states[tp])

    def _set_error(self, tp: TP, error: Exception) -> None:
        """Handle the error of one partition; set it aside for a truncated record, which aiokafka skips."""
        if not isinstance(error, RecordTooLargeError):
            super()._set_error(tp, error)
            return
        state = self._subscription_state.subscription.assignment.state_value(tp)
        self._set_unreadable_aside(tp, state, error)
        asyncio.get_running_loop().call_soon(state.seek, state.position)

    def _set_unreadable_aside(self, tp: TP, state: TopicPartitionState, error: Exception) -> None:
        self.aside.unreadable(tp, state, error, monotonic())
        self.counters["unreadable_partitions"] += 1

    def _is_at_end(self, tp: TP) -> bool:
        """Return whether the app has taken all records of ``tp`` up to the last known end of its log."""
        state = self._subscription_state.subscription.assignment.state_value(tp)
        end = state.lso if self._reads_committed else state.highwater
        return end is None or state.position >= end

    def wake(self) -> None:
        """Check again which partitions to fetch; called on the consumer's thread."""
        waiting = self._wait_consume_future
        if waiting is not None and not waiting.done():
            waiting.set_result(None)


def change_assignment(
    own: Assignment, tps: Collection[TP], subscriptions: SubscriptionState, fetcher: FairFetcher
) -> None:
    """Replace the partitions of ``own`` by ``tps``; kept partitions keep states, records and fetches.

    The function never awaits, so the fetcher sees either the old or the new partitions.
    """
    for tp in own.tps - set(tps):
        _leave(own, tp)
        fetcher._records.pop(tp, None)
    for tp in set(tps) - own.tps:
        own._tp_state[tp] = TopicPartitionState(own)
    own._topic_partitions = frozenset(tps)
    subscriptions._notify_assignment_waiters()
    fetcher.wake()


def _leave(own: Assignment, tp: TP) -> None:
    """Give ``tp`` a new state without a position, so that aiokafka discards fetches in flight."""
    state = own._tp_state[tp]
    # Without a result, aiokafka would wait for this lookup for ever and send its broker no fetch.
    for waiting in state._committed_futs:
        if not waiting.done():
            waiting.set_result(OffsetAndMetadata(UNKNOWN_OFFSET, ""))
    state.resume()
    own._tp_state[tp] = TopicPartitionState(own)
