"""Keys whose values nobody can read: they are in nobody's way, and whoever writes there overwrites them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from faust_assigner.service.errors import NotFound
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.records import Action, Consumer
from tests.support.assigning.consumers import Bench, virtually
from tests.unit.service.stories import ALL, AT, put, store

#: A later version's, another program's, and no document at all.
GARBAGE = (b'{"consumer_name": "a", "topic": "t", "partition": 0, "phase": "Paused", "status": "Asleep"}',
           b"{}", b"\xff", b"[" * 100_000)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_consumer_registers_over_what_nobody_can_read(garbage: bytes) -> None:
    """Else its name would be taken for ever."""

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
@pytest.mark.parametrize("answer", [
    lambda node: node.partition_ready("a", AT),
    lambda node: node.partition_released("a", AT),
    lambda node: node.warm_failed("a", AT, reason="no"),
    lambda node: node.abort_warm(AT),
])
def test_an_answer_to_what_nobody_can_read_is_refused(
    answer: Callable[[AssignerNode], Any], garbage: bytes,
) -> None:
    """As where there is no hand-off; and an owner that nobody can read is none."""

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
    """At the start of an instance that was told it, and of Kafka where a consumer wants the topic."""

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
