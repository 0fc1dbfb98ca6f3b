"""Failed sends of abandoned transactions: one log line counts them, and a sender still gets the error."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import ProducerFenced
from faust.exceptions import ProducerSendError
from faust.topics import Topic
from faust.types.tuples import FutureMessage

from faust_assigner.app.transactions import refusals
from faust_assigner.app.transactions.refusals import RefusedSends


async def publish_failed(error: BaseException) -> FutureMessage:
    """Return the message of a send that failed with ``error``, after Faust's callback."""
    channel = SimpleNamespace(get_topic_name=lambda: "out")
    message = FutureMessage(SimpleNamespace(channel=channel, callback=None))
    sent = asyncio.get_running_loop().create_future()
    sent.set_exception(error)
    topic: Any = SimpleNamespace(
        app=SimpleNamespace(sensors=SimpleNamespace(on_send_error=lambda *_: None))
    )
    Topic._on_published(topic, sent, message, None, None)
    return message


@pytest.mark.parametrize("is_counted", [True, False])
async def test_only_errors_that_are_counted_have_no_lines_of_their_own(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_counted: bool
) -> None:
    """Faust logs a warning of each failed send, and asyncio a traceback of each error that is not read."""
    monkeypatch.setattr(refusals, "COUNT_S", 0.0)
    refused = RefusedSends()
    for error in (ProducerFenced(), ProducerSendError("abandoned")):
        if is_counted:
            refused.add(error)
        await publish_failed(error)
    del error
    gc.collect()
    await asyncio.sleep(0.01)
    if is_counted:
        assert caplog.messages == [
            "Sends of abandoned transactions that failed: 2; their records are processed again"
        ]
    else:
        assert [line[:13] for line in sorted(caplog.messages)] == ["FutureMessage"] * 2 + [
            "_on_published"
        ] * 2


async def test_a_sender_that_awaits_its_message_gets_the_counted_error() -> None:
    """The agent decides what to do about it."""
    error = ProducerSendError("abandoned")
    RefusedSends().add(error)
    with pytest.raises(ProducerSendError):
        await (await publish_failed(error))


async def test_each_line_counts_the_sends_since_the_last_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record may continue to send for minutes after the fence."""
    monkeypatch.setattr(refusals, "COUNT_S", 0.0)
    refused = RefusedSends()
    for count in (3, 1):
        for _ in range(count):
            refused.add(ProducerSendError("abandoned"))
        await asyncio.sleep(0.01)
    assert ["failed: 3;" in line for line in caplog.messages] == [True, False]
    assert "failed: 1;" in caplog.messages[1]


async def test_the_error_of_a_task_is_logged_though_it_came_from_a_counted_send(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The task has read the error and failed with it."""
    error = ProducerSendError("abandoned")
    RefusedSends().add(error)

    async def fail() -> None:
        raise error

    task = asyncio.create_task(fail())
    await asyncio.wait({task})
    del task
    gc.collect()
    assert "Task exception was never retrieved" in caplog.text
