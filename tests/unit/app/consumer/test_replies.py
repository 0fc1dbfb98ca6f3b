"""The replies to ``agent.ask()``: the channel that reads them, and a late reply."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.agents.models import ReqRepResponse
from faust.agents.replies import ReplyConsumer

from faust_assigner.app.compose import repair
from faust_assigner.app.consumer.replies import read_replies_once


def app_in(folder: Path) -> Any:
    """Return a stock Faust app, not started."""
    return faust.App("shop", web_enabled=False, datadir=str(folder), broker="kafka://127.0.0.1:1")


@pytest.mark.parametrize("repaired", [False, True])
async def test_the_channel_of_replies_that_is_subscribed_is_the_one_that_is_read(
    tmp_path: Path, repaired: bool
) -> None:
    """Stock Faust subscribes with a second channel; its queue keeps each reply, unread."""
    app = app_in(tmp_path)
    if repaired:
        read_replies_once(app)
    orders = app.topic("orders")
    assert not orders.is_iterator, "other topics stay as Faust creates them"
    subscribed = ReplyConsumer(app)._reply_topic("replies")
    app.topics.add(subscribed)
    read = subscribed.stream().channel
    channels = {id(channel) for channel in app.topics if "replies" in channel.topics}
    assert channels == ({id(read)} if repaired else {id(subscribed), id(read)})
    assert (subscribed.get_topic_name(), subscribed.partitions, subscribed.deleting) == (
        "replies",
        1,
        True,
    )


async def sent(*_: object, **__: object) -> None:
    """Stand in for the channel's ``send``."""


@pytest.mark.parametrize("repaired", [False, True])
async def test_a_reply_after_the_timeout_of_its_request_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repaired: bool
) -> None:
    """In stock Faust the reader of the replies ends, and with it the worker."""
    app = app_in(tmp_path)
    if repaired:
        repair(app)

    @app.agent(app.topic("orders"))  # type: ignore[untyped-decorator]
    async def price(orders: Any) -> None: ...

    monkeypatch.setattr(price.channel, "send", sent)
    late = await price.ask_nowait(1, reply_to="replies", correlation_id="a")
    asked = await price.ask_nowait(2, reply_to="replies", correlation_id="b")
    late.cancel()
    replies = ReplyConsumer(app)
    replies._fetchers["replies"] = None
    for promise in (late, asked):
        await replies.add(promise.correlation_id, promise)

    async def arrived() -> Any:
        for correlation_id in ("a", "b"):
            yield ReqRepResponse("0", 7, correlation_id)

    stream = arrived()
    reading = replies._drain_replies(SimpleNamespace(stream=lambda: stream))
    if repaired:
        await reading
        assert await asked == 7
    else:
        with pytest.raises(asyncio.InvalidStateError):
            await reading
    await stream.aclose()
