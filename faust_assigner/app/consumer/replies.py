"""The replies to ``agent.ask()``, ``map()`` and ``join()``: one channel reads them, late ones are dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from faust.agents.models import ReqRepResponse
from faust.agents.replies import ReplyConsumer, ReplyPromise
from faust.models import maybe_model

if TYPE_CHECKING:
    from faust.app import App
    from faust.types.topics import TopicT


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
