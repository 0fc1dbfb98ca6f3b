"""aiokafka's fetcher, except that a live partition does not wait for any other.

There is one fetch in flight for each broker. aiokafka sends none while some partition of that broker has no
position yet (each is asked for in turn, on the connection on which the next round is waited for), nor within
a tenth of a second of records that nobody has taken; and one that ends while records are taken counts as in
flight for another 0.2 s. The broker holds a fetch until some partition named in it has records: up to 1.5 s
with Faust. So what a worker keeps stands still whenever it gains something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container
from types import SimpleNamespace
from typing import Any

from aiokafka.consumer.fetcher import READ_COMMITTED, Fetcher
from aiokafka.util import create_task

from faust_assigner.app.repairs.fetching import put_back

#: Milliseconds that a broker may hold a fetch: while a partition is left out of it, and while none is.
WAIT_MS, IDLE_WAIT_MS = 20, 100


class Share(Container[Any]):
    """Of ``partitions``, seen live, where None means all: those in ``only``, or those not in ``but_not``."""

    def __init__(self, partitions: Container[Any] | None, *, only: Collection[Any] | None = None,
                 but_not: Collection[Any] = ()) -> None:
        self.partitions, self.only, self.but_not = partitions, only, but_not

    def __contains__(self, tp: object) -> bool:
        return (tp not in self.but_not and (self.only is None or tp in self.only)
                and (not self.partitions or tp in self.partitions))


class PromptFetcher(Fetcher):  # type: ignore[misc]
    """A fetcher that asks for what lacks records, whatever the others do.

    Brokers hold a fetch for a moment only. Cost: ten requests a second when idle.
    """

    #: Whether records of a partition are taken at present; what is paused is neither looked up nor fetched.
    is_wanted: Callable[[Any], bool] = staticmethod(lambda tp: True)
    #: Whether partitions are about to be resumed.
    is_hurried: Callable[[], bool] = staticmethod(lambda: False)
    #: State of a partition whose position is being looked up -> the task that does it.
    _looked_up: dict[Any, Any]
    #: Partitions of which a turn has taken all that their log held, and none since has left any of it.
    _at_end: set[Any]

    def _get_actions_per_node(self, assignment: Any) -> Any:
        """What to send now: of each partition on its own merits."""
        self._at_end &= assignment.tps  # what comes back has been elsewhere
        wanted = [tp for tp in assignment.tps if tp not in self._records and self.is_wanted(tp)]
        self._look_up(assignment, wanted)
        shown = [tp for tp in wanted if assignment.state_value(tp) not in self._looked_up]
        is_whole = not (self._looked_up or self.is_hurried() or any(map(self.is_wanted, self._records)))
        self._fetch_max_wait_ms = IDLE_WAIT_MS if is_whole else WAIT_MS
        if len(self._in_flight) > len(self._pending_tasks - set(self._looked_up.values())):
            # One of them has been dealt with, and is taken out of the books a step after this look.
            asyncio.get_running_loop().call_soon(self.wake)
        return super()._get_actions_per_node(SimpleNamespace(tps=shown, state_value=assignment.state_value))

    def _look_up(self, assignment: Any, tps: list[Any]) -> None:
        """Begin to look for the positions that ``tps`` lack, beside the fetches; all at once.

        aiokafka asks the group for everything that is waited for in one request: hence a task for each.
        """
        for tp in tps:
            state, node = assignment.state_value(tp), self._client.cluster.leader_for_partition(tp)
            if state.has_valid_position or state in self._looked_up or node in (None, -1):
                continue
            self._looked_up[state] = task = create_task(self._update_fetch_positions(assignment, node, [tp]))
            task.add_done_callback(lambda _, state=state: self._looked(state))
            # The fetcher waits for these as for its fetches.
            self._pending_tasks.add(task)

    def _looked(self, state: Any) -> None:
        """An answer came; where it was no position, perhaps another broker leads the partition by now."""
        del self._looked_up[state]
        if not state.has_valid_position:
            self._client.force_metadata_update()

    async def fetched_records(self, partitions: Any, timeout: float = 0,
                              max_records: int | None = None) -> dict[Any, list[Any]]:
        """Records that were fetched: up to half from partitions that keep up, the rest from backlogs in turn.

        aiokafka begins each turn with what was fetched first, until that has been emptied. What was taken
        over a moment ago counts as a backlog until it has been read to its end once.
        """
        found: dict[Any, list[Any]] = {}
        asked = Share(partitions)
        there = {tp for tp in self._records if tp in asked}
        keep_up = self._at_end & there
        if max_records and max_records > 1 and 0 < len(keep_up) < len(there):
            found = await super().fetched_records(Share(partitions, only=keep_up), 0, max_records // 2)
            try:
                rest = max_records - sum(map(len, found.values()))
                found |= await super().fetched_records(Share(partitions, but_not=keep_up), 0, rest)
            except Exception:
                put_back(self.seek_to, found)
                raise
        if not found:
            found = await super().fetched_records(partitions, timeout, max_records)
        for tp in found:
            if tp in self._records:
                self._records.move_to_end(tp)
        at_end = set(filter(self._is_at_end, found))
        self._at_end = (self._at_end - found.keys()) | at_end
        return found

    def _is_at_end(self, tp: Any) -> bool:
        """Whether the last fetch of ``tp`` held the end of its log, and all of it has been taken."""
        state = self._subscriptions.subscription.assignment.state_value(tp)
        end = state.lso if self._isolation_level == READ_COMMITTED else state.highwater
        return end is None or state.position >= end

    def wake(self) -> None:
        """Look again what there is to fetch. On the consumer's thread."""
        self._notify(self._wait_consume_future)


def make_prompt(fetcher: Any) -> None:
    """Turn ``fetcher``, a Fetcher that has not been assigned anything, into a prompt one."""
    fetcher._looked_up, fetcher._at_end = {}, set()
    fetcher.__class__ = PromptFetcher
