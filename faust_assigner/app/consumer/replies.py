"""The replies to ``agent.ask()``, ``map()`` and ``join()``: one channel reads them, late ones are dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from faust.agents.agent import Agent
from faust.agents.models import ReqRepResponse
from faust.agents.replies import ReplyConsumer, ReplyPromise
from faust.models import maybe_model
from mode.utils.aiter import aiter

if TYPE_CHECKING:
    from faust.app import App
    from faust.types.agents import ActorRefT, ReplyToArg
    from faust.types.channels import ChannelT
    from faust.types.streams import StreamT
    from faust.types.topics import TopicT
    from faust.types.tuples import TP


def read_replies_once(app: App) -> None:
    """Make Faust subscribe to a topic of replies with the channel that the reader of the replies reads.

    Stock Faust subscribes with one channel and reads a second channel, which it registers 3 s later. The
    first channel keeps each reply of ``agent.ask()``, so the reply is never acknowledged. A stop waits for
    these replies, and the worker stands still when the channel's queue is full. If the partition is
    assigned before these 3 s have passed, no reply is read until the next rebalance.
    """
    app.topic = partial(_topic, app.topic)


def _topic(create: Callable[..., TopicT], *topics: str, **options: Any) -> Any:
    topic = create(*topics, **options)
    if options.get("value_type") is ReqRepResponse:
        return topic.clone(is_iterator=True)
    return topic


class Replies(ReplyConsumer):  # type: ignore[misc]
    """Reads the replies of one worker; a reply that no request waits for is dropped.

    Stock Faust keeps the correlation id of each reply for ever, about a kilobyte. A reply to a cancelled
    request, or a second reply to a request, ends its reader of replies, and so the worker. A second reply
    comes if the agent processes the request again. If the first request is cancelled within the three seconds
    in which stock Faust starts the reader, no request gets its reply.
    """

    def __init__(self, app: App, **options: object) -> None:
        super().__init__(app, **options)
        #: Correlation id -> the promise of the reply, while the request waits.
        self.promises: WeakValueDictionary[str, ReplyPromise] = WeakValueDictionary()
        #: Topic of replies -> the task that starts its reader; a cancelled request does not cancel it.
        self._starts: dict[str, asyncio.Task[None]] = {}

    async def add(self, correlation_id: str, promise: ReplyPromise) -> None:
        """Wait for the reply to ``promise``; start to read its topic of replies."""
        self.promises[correlation_id] = promise
        begin = partial(super().add, "", promise)  # one key for all: Faust keeps each key for ever
        start = self._starts.get(promise.reply_to)
        if start is not None and start.done() and (start.cancelled() or start.exception()):
            self._fetchers.pop(promise.reply_to, None)  # Faust's mark that the reader is starting
            start = None
        if start is None:
            start = asyncio.get_running_loop().create_task(begin())
            self._starts[promise.reply_to] = start
        await asyncio.shield(start)

    async def _drain_replies(self, channel: Any) -> None:
        async for reply in channel.stream():
            promise = self.promises.pop(reply.correlation_id, None)
            if promise is None or promise.done():
                continue
            try:
                promise.fulfill(reply.correlation_id, maybe_model(reply.value))
            except Exception as error:  # such as a model whose fields differ in the agent's version
                promise.set_exception(error)


class AskedAgent(Agent):  # type: ignore[misc]
    """An agent that reads on after an error, and may be asked for more than 1,000 values at once.

    Stock Faust ends the worker if 1,000 replies wait for the end of ``join()`` or the reader of ``map()``.
    """

    #: The runs after an error that are not stopped, the latest for each stream.
    _later_runs: Sequence[ActorRefT] = ()

    def actor_from_stream(
        self,
        stream: StreamT[object] | None,
        *,
        index: int | None = None,
        active_partitions: set[TP] | None = None,
        channel: ChannelT[object] | None = None,
    ) -> ActorRefT:
        """Create a run of the agent; after an error ``stream`` is the stream of the failed run.

        Faust passes the stream's ``channel``, too, only after an error.
        """
        failed = stream if channel is not None else None
        if failed is not None:
            failed.begin_again()
        run: ActorRefT = super().actor_from_stream(
            stream, index=index, active_partitions=active_partitions, channel=channel
        )
        if stream is None:
            run.stream.keep_processors()
        if failed is not None:
            others = (r for r in self._later_runs if r.stream is not failed and not r.should_stop)
            self._later_runs = (*others, run)
        return run

    async def on_stop(self) -> None:
        """Start the later runs that Faust's supervisor has not started yet; then stop all runs.

        The supervisor starts a later run up to five seconds after the error, and stops started runs only. The
        task of such a run, which reads meanwhile, would not end if it waits behind a ``group_by``.
        """
        for run in self._later_runs:
            await run.maybe_start()
        await super().on_stop()

    async def kvmap(self, items: Any, reply_to: ReplyToArg | None = None) -> AsyncIterator[Any]:
        """Send the (key, value) pairs ``items``; yield each reply as it arrives."""
        arrived: asyncio.Queue[ReplyPromise] = asyncio.Queue()
        waiting = set[ReplyPromise]()
        async for key, value in aiter(items):
            sent = await self._request(key, value, reply_to)
            waiting.add(sent)
            sent.add_done_callback(arrived.put_nowait)
            while not arrived.empty():
                waiting.discard(reply := arrived.get_nowait())
                yield reply.result()
        while waiting:
            waiting.discard(reply := await arrived.get())
            yield reply.result()

    async def kvjoin(self, items: Any, reply_to: ReplyToArg | None = None) -> list[Any]:
        """Send the (key, value) pairs ``items``; return their replies in the same order."""
        sent = [await self._request(key, value, reply_to) async for key, value in aiter(items)]
        return list(await asyncio.gather(*sent))

    async def _request(self, key: Any, value: Any, reply_to: ReplyToArg | None) -> ReplyPromise:
        """Send a request as ``ask()`` does; return the promise of its reply."""
        promise = await self.ask_nowait(
            value, key=key, reply_to=reply_to or self.app.conf.reply_to, force=True
        )
        await self.app._reply_consumer.add(promise.correlation_id, promise)
        await self.app.maybe_start_client()
        return promise
