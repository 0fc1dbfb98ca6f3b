"""The shutdown's time limit: a worker that stops waits for an unreachable broker a few seconds only.

aiokafka retries some requests for ever, for example the requests of the last commit and the last flush, and
LeaveGroup. If the last commit is skipped, the next owner processes the uncommitted records again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from mode import get_logger
from mode.threads import WorkerThread

from faust_assigner.app.consumer.commits import run_delivery_callbacks
from faust_assigner.app.consumer.waits import agents_s
from faust_assigner.app.tables.flushing import discard

if TYPE_CHECKING:
    from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Producer
    from faust.types.app import AppT

logger = get_logger(__name__)

#: Seconds that all waits for brokers may take together while the app stops. Waits for streams do not count,
#: because they have their own limit (``agents_s``).
SHUTDOWN_S = 4.0

#: The minimum limit of one step in seconds; a step gets this time even if no time is left.
LEAST_S = 0.5

#: The maximum number of cancellations of a late step, and the seconds to wait after each cancellation.
MOST_CANCELS, CANCEL_S = 20, 0.1


class ShutdownBudget:
    """The seconds ``left`` for all waits for brokers. The event ``over`` is set once no time is left."""

    def __init__(self, app: AppT, seconds: float = SHUTDOWN_S) -> None:
        self.app, self.left, self.over = app, seconds, asyncio.Event()

    async def within(
        self, what: str, step: Callable[..., Awaitable[object]], *args: object, **kwargs: object
    ) -> object:
        """Run ``step(...)`` and return its result; while the app stops, end the step when no time is left.

        Logs a timeout and then returns None. ``what`` is the step's name in the log.
        """
        if not self.app.should_stop:
            return await step(*args, **kwargs)
        began, limit = monotonic(), max(self.left, LEAST_S)
        try:
            async with asyncio.timeout(limit) as deadline:
                return await step(*args, **kwargs)
        except TimeoutError:
            if not deadline.expired():
                raise
            logger.error(
                "%s: the broker did not answer within %.1f s; this step is skipped", what, limit
            )
            return None
        finally:
            self.left -= monotonic() - began
            if self.left <= 0:
                self.over.set()


class EndsWithItsProcess(WorkerThread):  # type: ignore[misc]
    """A daemon thread for the consumer: the process can end even if its consumer was not stopped."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.daemon = True


class BoundedShutdown:
    """The last steps of consumer and producer, which end even if the broker does not answer."""

    def __init__(self, app: AppT, thread: AIOKafkaConsumerThread) -> None:
        self._app, self._thread, self.budget = app, thread, ShutdownBudget(app)
        producer: Producer = app.producer
        producer.flush = partial(self.budget.within, "Last flush", producer.flush)
        producer.on_stop = partial(self._stop_producer, producer, producer.on_stop)

    async def commit(self, force_commit: Callable[..., Awaitable[bool]], *args: object) -> bool:
        """Commit with ``force_commit``; during the shutdown, within the time left.

        Returns False during the shutdown if the consumer's thread, which would commit, has crashed.
        """
        if self._app.should_stop and self._thread.should_stop:
            return False
        return bool(await self.budget.within("Last commit", force_commit, *args))

    async def wait_for_streams(self, wait_empty: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait until the streams are empty; during the shutdown, at most while time for brokers is left.

        A record in progress gets the time that a record may take (``agents_s``).
        """
        streams, over = (
            asyncio.ensure_future(wait_empty()),
            asyncio.ensure_future(self.budget.over.wait()),
        )
        try:
            limit, ended = agents_s(self._app), set[asyncio.Future[Any]]()
            while not ended:
                ended, _ = await asyncio.wait(
                    {streams, over}, timeout=limit, return_when=asyncio.FIRST_COMPLETED
                )
                if self._app.should_stop:
                    break  # the watchdog ends a running worker
            if streams.done():
                streams.result()
            elif not ended:
                logger.error(
                    "Agents have not finished their records after %.0f s (broker_max_poll_interval); "
                    "the next owners process these records again",
                    limit,
                )
        finally:
            for task in (streams, over):
                task.cancel()
            await asyncio.gather(streams, over, return_exceptions=True)

    async def leave_group(self, commit: Callable[[], Awaitable[None]]) -> None:
        """Flush, commit and leave, so that the group can reassign this worker's partitions at once.

        Stock Faust closes its tables before it leaves, and the partitions pause meanwhile.
        """
        if self._thread.should_stop:
            return  # the thread has crashed; at its end it leaves the group
        await self._app.producer.flush()
        await commit()
        await run_delivery_callbacks()
        discard(self._app)  # the next owner processes all later records
        coordinator = getattr(self._thread._consumer, "_coordinator", None)
        if coordinator is not None and hasattr(coordinator, "close"):
            await self.budget.within(
                "Leaving the group", self._thread.call_thread, self._leave, coordinator
            )

    async def _leave(self, coordinator: Any) -> None:
        """Close the group coordinator; runs on the consumer's thread.

        In a rebalance the close waits for the group's answer, and so for all members. If the close takes too
        long, send LeaveGroup at once: otherwise the group would assign partitions to this worker.
        """
        limit = max(self._limit_s() - LEAST_S, LEAST_S)
        if not await _done_within(limit, coordinator.close):
            leave = getattr(coordinator, "_maybe_leave_group", coordinator.close)
            await _done_within(LEAST_S, leave)

    async def stop_client(self, stop: Callable[[], Awaitable[None]]) -> None:
        """Leave the group and close the client; on the consumer's thread."""
        consumer = self._thread._consumer
        if await _done_within(self._limit_s(), stop) or consumer is None:
            return
        logger.error(
            "Could not leave the group: the broker does not answer. The group removes this member "
            "after its session timeout"
        )
        await _done_within(LEAST_S, consumer._client.close)

    async def _stop_producer(self, producer: Producer, stop: Callable[[], Awaitable[None]]) -> None:
        transactional = getattr(producer, "_transaction_producers", {}).values()
        senders = [
            one for one in (getattr(producer, "_producer", None), *transactional) if one is not None
        ]
        if await _done_within(self._limit_s(), stop):
            return
        logger.error("The producer's last records may be lost: the broker does not answer")
        for sender in senders:
            await _done_within(LEAST_S, sender.client.close)

    def _limit_s(self) -> float:
        """Return the limit of one step in seconds."""
        return max(self.budget.left, LEAST_S)


async def _done_within(seconds: float, step: Callable[[], Awaitable[object]]) -> bool:
    """Run ``step()`` for at most ``seconds``; return whether the step ended in time without an error.

    Raises CancelledError only if the current task is cancelled. A stopping client cancels its own tasks, and
    aiokafka passes on their CancelledError. This error would end the thread without its stop signal, and the
    app would wait a minute for the signal. A late step is cancelled at most ``MOST_CANCELS`` times.
    """
    running = asyncio.ensure_future(step())
    try:
        await asyncio.wait({running}, timeout=seconds)
        is_late = not running.done()
        # mode's queue of calls ignores a cancellation in each waiting call.
        for _ in range(MOST_CANCELS):
            if running.done():
                break
            running.cancel()
            await asyncio.wait({running}, timeout=CANCEL_S)
    finally:
        running.cancel()
    if not running.done() or running.cancelled():
        return False
    if (error := running.exception()) is not None:
        logger.warning("A Kafka client failed while stopping: %r", error)
    return error is None and not is_late
