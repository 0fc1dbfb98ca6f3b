"""The end offsets of changelogs, and the offsets up to which this worker's standbys are read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from faust.types.tuples import TP

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from faust.types.app import AppT

#: A request to the consumer for an offset of one partition; None if the consumer has no offset.
Ask: TypeAlias = Callable[["AIOKafkaConsumer", TP], Coroutine[object, None, int | None]]
#: Seconds to wait for the ends and positions of changelogs.
ASK_S = 2.0


async def ends_of(app: AppT, tps: Sequence[TP]) -> dict[TP, int]:
    """Return the end offset of each partition in ``tps`` whose broker answers in time."""
    return await _request_each_on_thread(app, _end_offset_of, tps)


async def read_to(app: AppT, ends: Mapping[TP, int]) -> dict[TP, int]:
    """Return the offset up to which each standby has been read.

    Offsets before the end without a record, such as those of transaction markers, count as read.
    """
    tables = app.tables
    offsets = tables.recovery.standby_offsets
    # Before a copy is followed, its partition's position is where auto_offset_reset puts new consumers.
    follower = getattr(tables.recovery, "standbys", None)
    followed = ends.keys() if follower is None else follower.followed
    read = {tp: 0 if (offset := offsets.get(tp)) is None else offset + 1 for tp in ends}
    positions = await _request_each_on_thread(
        app, _position_of, [tp for tp, end in ends.items() if read[tp] < end and tp in followed]
    )
    # Fetched records that wait in the queue are not applied yet, so their partition's position does not
    # count.
    waiting = {event.message.tp for event in tables.changelog_queue._queue} if positions else ()
    for tp, position in positions.items():
        if tp not in waiting:
            read[tp] = max(read[tp], position)
    return read


async def _request_each_on_thread(app: AppT, ask: Ask, tps: Sequence[TP]) -> dict[TP, int]:
    """Run ``ask`` for each partition on the consumer's thread; return the answers that arrive in time.

    The function does not use Faust's call_thread(), which serves a limited number of calls at a time:
    commits might wait.
    """
    if not tps:
        return {}
    thread, loop = app.consumer._thread, asyncio.get_running_loop()
    answers, running = asyncio.Queue[dict[TP, int]](), list[asyncio.Task[None]]()

    async def ask_all() -> None:
        found = await _answers_in_time(ask, thread._consumer, tps)
        with contextlib.suppress(RuntimeError):  # the app's loop is closed, and no task waits
            loop.call_soon_threadsafe(answers.put_nowait, found)

    try:
        # Create the coroutine on the thread: a stopped loop would never await it.
        thread.thread_loop.call_soon_threadsafe(
            lambda: running.append(asyncio.ensure_future(ask_all()))
        )
        async with asyncio.timeout(2 * ASK_S):
            return await answers.get()
    except (TimeoutError, RuntimeError):  # the thread has stopped, or has closed its loop
        return {}
    finally:
        with contextlib.suppress(RuntimeError):
            thread.thread_loop.call_soon_threadsafe(_cancel, running)


def _cancel(tasks: Iterable[asyncio.Task[object]]) -> None:
    """Cancel the tasks that have not ended."""
    for task in tasks:
        task.cancel()


async def _answers_in_time(
    ask: Ask, consumer: AIOKafkaConsumer, tps: Sequence[TP]
) -> dict[TP, int]:
    """Send one request per partition; return the answers that arrive in time.

    A joint request to aiokafka waits until all partitions answer. A deleted partition never answers
    a request for its end or position.
    """
    asked = {tp: asyncio.ensure_future(ask(consumer, tp)) for tp in tps}
    try:
        await asyncio.wait(asked.values(), timeout=ASK_S)
    finally:
        _cancel(asked.values())
    told = await asyncio.gather(*asked.values(), return_exceptions=True)
    return {tp: answer for tp, answer in zip(asked, told, strict=True) if isinstance(answer, int)}


async def _end_offset_of(consumer: AIOKafkaConsumer, tp: TP) -> int | None:
    return (await consumer.end_offsets([tp]))[tp]  # type: ignore[no-any-return]


async def _position_of(consumer: AIOKafkaConsumer, tp: TP) -> int | None:
    return await consumer.position(tp)  # type: ignore[no-any-return]
