"""Unreadable values: they block no call, and the next writer overwrites them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.errors import NotFound
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.records import Action, Assigned, Consumer, OpenHandoff
from faust_assigner.service.server.convert import messages_of, states
from faust_assigner.service.serving.acks import Answer
from faust_assigner.service.serving.relay import snapshot
from faust_assigner.service.store.base import Event, KeyValue
from faust_assigner.service.view import Entry
from tests.support.assigning.consumers import Bench, virtually
from tests.unit.service.stories import ALL, AT, put, store, view_of

T = TypeVar("T")
#: Values of a later version, of a different program, and no document at all.
GARBAGE = (
    b'{"consumer_name": "a", "topic": "t", "partition": 0, "phase": "Paused", "status": "Asleep"}',
    b"{}",
    b"\xff",
    b"[" * 100_000,
)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_consumer_registers_over_what_nobody_can_read(garbage: bytes) -> None:
    """Otherwise the name would be blocked forever."""

    async def story() -> None:
        kept = store()
        await put(kept, ALL.consumer("a"), garbage)
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2})
            assert await node.deregister("a") is Action.SHUTDOWN_NOW
            await b.consumer(node, "a")
            await b.settles(2)
        await kept.close()

    virtually(story)


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize(
    "answer",
    [
        lambda node: node.acks.ready(Answer("a", AT)),
        lambda node: node.acks.released(Answer("a", AT)),
        lambda node: node.acks.warm_failed(Answer("a", AT), "no"),
        lambda node: node.acks.abort(AT, None),
    ],
)
def test_an_answer_to_what_nobody_can_read_is_refused(
    answer: Callable[[AssignerNode], Any], garbage: bytes
) -> None:
    """An unreadable hand-off or owner counts as missing."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node()
            for key in (ALL.handoff(AT), ALL.assignment(AT)):
                await put(kept, key, garbage)
                with pytest.raises(NotFound):
                    await answer(node)
        await kept.close()

    virtually(story)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_topics_count_that_nobody_can_read_is_asked_for_anew(garbage: bytes) -> None:
    """A starting instance writes its configured count; a consumer's subscription asks Kafka."""

    async def count(topic: str) -> int | None:
        return {"asked": 3}.get(topic)

    async def story() -> None:
        kept = store()
        for topic in ("told", "asked"):
            await put(kept, ALL.topic(topic), garbage)
        async with Bench(lambda: kept) as b:
            node = await b.node({"told": 2}, count=count)
            await b.consumer(node, "a", consumer=Consumer(name="a", topics=("told", "asked")))
            await b.settles(5)
        await kept.close()

    virtually(story)


def values(entries: Mapping[Any, Entry[T]]) -> list[T]:
    """The values of one kind in a view."""
    return [entry.value for entry in entries.values()]


@pytest.mark.parametrize(
    ("key", "document"),
    [
        (
            ALL.consumer("a"),
            {"consumer_name": "a", "status": "Ready", "registered_at": 1, "rack": 5},
        ),
        (
            ALL.consumer("a"),
            {"consumer_name": "a", "status": "Ready", "registered_at": 1, "holds": {"t": [-1]}},
        ),
        (ALL.assignment(AT), {"topic": "t", "partition": 0, "owner": "a", "offset": -1}),
        (ALL.assignment(AT), {"topic": "t", "partition": 0, "owner": "a", "offset": 2**64}),
        ("/g/assignments/t/-1", {"topic": "t", "partition": -1, "owner": "a"}),
        (
            "/g/assignments/t/00",
            {"topic": "t", "partition": 0, "owner": "another name of the same partition"},
        ),
        (
            "/g/handoffs/t/-1",
            {
                "topic": "t",
                "partition": -1,
                "old_owner": "a",
                "new_owner": "b",
                "phase": "Ready",
                "started_at": 1,
            },
        ),
        (ALL.epochs, {"base": 2**64}),
    ],
)
def test_what_does_not_fit_on_the_wire_stops_neither_streams_nor_screens(
    key: str, document: dict[str, Any]
) -> None:
    """The value is ignored, or sent as far as possible."""
    owner = Assigned(AT, "a", offset=1)
    view = view_of(Consumer(name="a"), topics={"t": 1})
    for name, value in (
        (ALL.assignment(AT), codec.dump_assigned(owner)),
        (key, json.dumps(document).encode()),
    ):
        view.apply(Event(name, 50, KeyValue(name, value, 50, 50)))
    told = [message for command in snapshot(view, "a") for message in messages_of(command)]
    assert told[0].assignment.snapshot
    handoffs = [OpenHandoff(one, 1, 0.0) for one in values(view.handoffs)]
    screens = list(
        states("", 1, *map(values, (view.topics, view.consumers, view.assignments)), handoffs)
    )
    assert {one.owner for one in screens[0].assignments} <= {"a"}
