"""The replies to ``agent.ask()``: each is read by one channel, and a late reply is dropped."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from faust.agents.agent import Agent
from faust.agents.models import ReqRepResponse
from faust.agents.replies import ReplyPromise

if TYPE_CHECKING:
    from faust.app import App
    from faust.types.agents import ReplyToArg
    from faust.types.core import HeadersArg
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


class Reply(ReplyPromise):  # type: ignore[misc]
    """The promise of a reply; a reply that arrives after its cancellation or timeout is dropped.

    Stock Faust raises InvalidStateError in the task that reads the replies, and so the worker ends. This
    happens if a request with ``asyncio.wait_for`` times out shortly before the reply arrives, or if the
    caller waits for something in its ``except`` block.
    """

    def fulfill(self, correlation_id: str, value: object) -> None:
        """Set the result, unless the request has ended."""
        if not self.done():
            super().fulfill(correlation_id, value)


class AskedAgent(Agent):  # type: ignore[misc]
    """An agent whose ``ask()`` may be cancelled."""

    async def ask_nowait(
        self,
        value: object = None,
        *,
        key: object = None,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: HeadersArg | None = None,
        reply_to: ReplyToArg | None = None,
        correlation_id: str | None = None,
        force: bool = False,
    ) -> Reply:
        """Send the request as Faust does; return the promise of its reply."""
        promise = await super().ask_nowait(
            value,
            key=key,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            reply_to=reply_to,
            correlation_id=correlation_id,
            force=force,
        )
        return Reply(promise.reply_to, promise.correlation_id)
