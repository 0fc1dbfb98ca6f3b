"""The writes of an operator's order, of a repeated order, and of an order at the wrong time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.service.errors import WrongPhase
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.records import Consumer, Status
from faust_assigner.service.serving.orders import MOST_SAID
from tests.support.assigning.consumers import Bench, virtually
from tests.unit.service.stories import AT, store


def staged(story: Callable[[AssignerNode], Awaitable[None]]) -> None:
    """Run a scenario on an instance: ``a`` owns the only partition, and ``b`` cannot take over."""

    async def whole() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            await b.consumer(node, "a")
            await b.settles(1)
            await b.consumer(node, "b", warm_s=None)
            await story(node)
        await kept.close()

    virtually(whole)


async def make(node: AssignerNode, name: str, **fields: Any) -> None:
    """Change a registration in the store."""

    def changed(consumer: Consumer) -> Consumer:
        return replace(consumer, **fields)

    await node._mirror.reached(await node._registered.change(name, changed))


def test_a_long_reason_of_a_pause_is_cut() -> None:
    """Each instance keeps the reason in memory, and each state has it."""

    async def story(node: AssignerNode) -> None:
        await node.orders.pause("x" * (MOST_SAID + 1))
        assert node.view.pause is not None
        assert node.view.pause.reason == "x" * MOST_SAID

    staged(story)


def test_an_order_that_is_repeated_holds_from_the_revision_of_the_first() -> None:
    """The repeated order writes no key."""

    async def story(node: AssignerNode) -> None:
        orders = node.orders
        for order in (
            lambda: orders.pause("a release"),
            lambda: orders.move(AT, "b"),
            lambda: orders.pin(AT, "b"),
            lambda: orders.undrain("b"),
        ):
            assert await order() == await order()

    staged(story)


def test_a_move_replaces_a_move_that_is_not_made_so_far() -> None:
    """The last move counts; a pin must be removed first."""

    async def story(node: AssignerNode) -> None:
        await node.orders.move(AT, "b")
        assert node.view.pins[AT].value.consumer == "b"
        await node.orders.move(AT, "a")
        assert AT not in node.view.pins or node.view.pins[AT].value.consumer == "a"

    staged(story)


def test_a_move_to_a_consumer_that_leaves_is_refused() -> None:
    """Its partitions are moving to different consumers."""

    async def story(node: AssignerNode) -> None:
        await make(node, "a", status=Status.DRAINING, by_operator=True)
        with pytest.raises(WrongPhase, match="a is leaving, so it gets no partitions"):
            await node.orders.move(AT, "a")
        assert not node.view.pins

    staged(story)


def test_a_drain_is_taken_back_unless_its_process_was_told_to_stop() -> None:
    """A ready consumer is no longer drained by the operator, even after a restart."""

    async def story(node: AssignerNode) -> None:
        await make(node, "a", status=Status.DRAINING, by_operator=True, dismissed=True)
        with pytest.raises(
            WrongPhase, match="a already got the command to stop: it may register again"
        ):
            await node.orders.undrain("a")
        await make(node, "a", dismissed=False)
        await node.orders.undrain("a")
        consumer = node.view.consumers["a"].value
        assert (consumer.status, consumer.by_operator) == (Status.READY, False)

    staged(story)
