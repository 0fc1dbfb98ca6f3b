"""The current owners of partitions: the service's updates for watchers, and the router's table."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.client import Access, Registration, Retry, Router
from faust_assigner.service.client import TopicPartition as Spoken
from faust_assigner.service.errors import BadRequest, NotReached, StoreUnavailable
from faust_assigner.service.faults import Unauthenticated
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.records import Consumer
from faust_assigner.service.server.convert import routed
from faust_assigner.service.server.options import Options
from faust_assigner.service.server.requests import consumer_of
from faust_assigner.service.server.serve import running
from faust_assigner.service.serving import routes as routes_module
from faust_assigner.service.serving.routes import Route, RouteUpdate
from faust_assigner.service.store.base import Put
from tests.support.assigning.consumers import Bench, eventually, virtually
from tests.support.assigning.instances import Consumer as Client
from tests.support.assigning.instances import calls_ended, consumers, settled, until
from tests.unit.service.stories import ALL, AT, store

OTHER = TopicPartition("t", 1)
QUICK = {"consumer_ttl": "2", "leader_ttl": "2", "debounce": "0.1", "rebalance_delay": "0"}


@contextlib.asynccontextmanager
async def watching(
    node: AssignerNode, *topics: str, least: int = 0
) -> AsyncIterator[list[RouteUpdate]]:
    """Collect the updates of a watch."""
    told: list[RouteUpdate] = []

    async def watch() -> None:
        async for update in node.routes(topics, least):
            told.append(update)

    task = asyncio.create_task(watch())
    try:
        yield told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def table(told: list[RouteUpdate]) -> dict[TopicPartition, str]:
    """Apply the updates, and return the owner of each partition."""
    found: dict[TopicPartition, str] = {}
    for update in told:
        found = {} if update.full else found
        found |= {route.at: route.owner for route in update.routes}
        for at in update.unowned:
            found.pop(at, None)
    return found


def test_a_watch_is_told_everything_once_and_then_what_changes() -> None:
    """A moved partition has its new epoch; topics outside the watch are left out."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2, "u": 1})
            await b.consumer(node, "a", consumer=Consumer(name="a", endpoint="a:1"))
            await b.settles(3)
            async with watching(node, "t") as told:
                await eventually(lambda: told)
                assert (told[0].full, table(told)) == (True, {AT: "a", OTHER: "a"})
                assert {route.endpoint for route in told[0].routes} == {"a:1"}
                epochs = {route.at: route.epoch for route in told[0].routes}
                await node.orders.pin(AT, "b")
                await b.consumer(node, "b")
                await eventually(lambda: table(told).get(AT) == "b")
                changes = [update for update in told[1:] if update.routes]
                assert not any(update.full for update in changes)
                [moved] = [one for update in changes for one in update.routes if one.at == AT]
                assert moved.epoch > epochs[AT]
                assert changes[-1].revision >= moved.epoch
        await kept.close()

    virtually(story)


def test_the_partitions_of_a_dead_consumer_are_told_as_unowned() -> None:
    """The update precedes the new assignment, so no request goes to the dead process."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2}, debounce_s=5.0)
            only = await b.consumer(node, "a")
            await b.settles(2)
            async with watching(node) as told:
                await eventually(lambda: len(table(told)) == 2)
                await only.expire()
                await eventually(lambda: table(told) == {})
                assert told[-1].unowned or told[-2].unowned
        await kept.close()

    virtually(story)


def test_a_consumer_that_comes_back_elsewhere_is_told_with_its_new_endpoint() -> None:
    """The owner keeps its partitions, but serves requests at a new port."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            wishes: dict[str, Any] = {"name": "a", "incarnation": "i"}
            first = await b.consumer(node, "a", consumer=Consumer(**wishes, endpoint="a:1"))
            await b.settles(1)
            async with watching(node) as told:
                await eventually(lambda: told)
                await first.disconnect()
                b.helpers.remove(first)
                await b.consumer(node, "a", consumer=Consumer(**wishes, endpoint="a:2"))
                await eventually(
                    lambda: [r.endpoint for u in told for r in u.routes] == ["a:1", "a:2"]
                )
        await kept.close()

    virtually(story)


def test_a_watch_says_that_it_lives() -> None:
    """An idle watch gets an empty update nine times in a consumer's time to live."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1}, consumer_ttl_s=9.0, consumer_keepalive_s=1.0)
            async with watching(node) as told:
                await asyncio.sleep(9.5)
                assert len(told) == 10
                assert not any(one.routes or one.unowned or one.full for one in told[1:])
        await kept.close()

    virtually(story)


def test_an_instance_that_is_behind_the_caller_waits_and_then_refuses() -> None:
    """Its answer would return the caller to earlier owners."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            await b.consumer(node, "a")
            await b.settles(1)
            ahead = node.revision + 1
            async with watching(node, least=ahead) as told:
                await asyncio.sleep(1.0)
                assert told == []
                await node.set_topic("t", 2)
                await eventually(lambda: told)
                assert told[0].revision >= ahead
            with pytest.raises(NotReached, match="the caller"):
                await anext(node.routes((), node.revision + 1_000))
        await kept.close()

    virtually(story)


def test_an_instance_that_lost_its_store_ends_its_watches() -> None:
    """Its table would grow old unnoticed."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            updates = node.routes((), 0)
            await anext(updates)
            for task in node._tasks:
                task.cancel()
            await asyncio.sleep(20.0)
            with pytest.raises(StoreUnavailable, match="no updates"):
                await anext(updates)
        await kept.close()

    virtually(story)


def test_a_long_table_comes_in_parts_that_take_effect_together() -> None:
    """Between two parts a router still returns the previous table."""
    routes = tuple(
        Route(TopicPartition("t" * 249, n), "c" * 128, 2**40, "e" * 512) for n in range(10_000)
    )
    gone = tuple(TopicPartition("g" * 249, n) for n in range(10_000))
    router = Router("nowhere:1")
    old = RouteUpdate(4, (Route(AT, "a", 1),), (), full=True)
    for message in routed(old, 100):
        router._take(message)
    *firsts, last = routed(RouteUpdate(5, routes, gone), 100)
    assert len(firsts) > 2
    assert max(one.ByteSize() for one in (*firsts, last)) < 4 * 2**20
    for message in firsts:
        router._take(message)
    assert (router.revision, set(router.routes)) == (4, {AT})
    router._take(last)
    assert (router.revision, len(router.routes)) == (5, 10_001)
    for message in routed(RouteUpdate(6, full=True), 100):
        router._take(message)
    assert (router.revision, len(router.routes)) == (6, 0)


def test_a_large_table_is_told_in_slices_and_what_changes_meanwhile_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Heartbeats of consumers are handled between two slices."""
    monkeypatch.setattr(routes_module, "SLICE", 2)

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            count = 5
            node = await b.node({"t": count})
            await b.consumer(node, "a")
            await eventually(lambda: len(b.owners()) == count)
            updates = node.routes((), 0)
            first = await anext(updates)
            turns: list[int] = []
            asyncio.get_running_loop().call_soon(turns.append, 1)
            await node.set_topic("t", 1)
            second, third = await anext(updates), await anext(updates)
            assert turns
            slices = [first, second, third]
            assert [one.full for one in slices] == [True, False, False]
            assert [one.more for one in slices] == [True, True, False]
            told = slices
            while len(table(told)) > 1:
                told.append(await anext(updates))
            assert table(told) == {AT: "a"}
        await kept.close()

    virtually(story)


@pytest.mark.parametrize("endpoint", ["a b", "a\n", "ä", "x" * 513])
def test_an_endpoint_that_cannot_be_one_is_refused(endpoint: str) -> None:
    """Endpoints are sent to other clients."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            request = pb.RegisterRequest(consumer_name="a", endpoint=endpoint)
            with pytest.raises(BadRequest, match="an endpoint is"):
                await node.register(await consumer_of(request))
        await kept.close()

    virtually(story)


async def test_a_router_follows_a_move() -> None:
    """Over real sockets, the owners, endpoints and epochs match the consumers' own."""
    options = Options.read({"bind": "127.0.0.1:0", "topic": "t=2", **QUICK}, {})
    async with running(options) as (port, *_):
        target = f"127.0.0.1:{port}"
        retry = Retry(first_s=0.01, most_s=0.05)
        async with Router(target, retry=retry) as router:
            a, b = (
                Client(target, name, registration=Registration(endpoint=f"{name}:1"))
                for name in "ab"
            )
            await router.ready()  # else its call would begin beside the consumers' own
            async with consumers(a):
                await settled([a], [2])
                await until(lambda: len(router.routes) == 2)
                route = router.owner(("t", 0))
                assert route is not None
                assert (route.owner, route.endpoint) == ("a", "a:1")
                assert router.owner(Spoken("t", 9)) is None
                async with consumers(b):
                    await settled([a, b], [1, 1])
                    await until(lambda: {r.owner for r in router.routes.values()} == {"a", "b"})
                    owned = {r.partition: r.epoch for r in router.routes.values()}
                    assert owned == {**a.working, **b.working}
                    assert router.revision >= max(owned.values())
    await calls_ended()


async def test_a_router_whose_service_is_gone_keeps_its_table_and_its_age_grows() -> None:
    """Requests still go to the last known owners, and the caller can check the table's age."""
    options = Options.read({"bind": "127.0.0.1:0", "topic": "t=1", **QUICK}, {})
    async with contextlib.AsyncExitStack() as ends:
        service = await ends.enter_async_context(contextlib.AsyncExitStack())
        port, *_ = await service.enter_async_context(running(options))
        one = Client(f"127.0.0.1:{port}", "a")
        router = Router(f"127.0.0.1:{port}", retry=Retry(first_s=0.01, most_s=0.05))
        await ends.enter_async_context(router)
        async with consumers(one):
            await settled([one], [1])
            await until(lambda: router.owner(("t", 0)) is not None)
            await service.aclose()
            await until(lambda: router.age_s > 1.0)
            route = router.owner(("t", 0))
            assert route is not None
            assert route.owner == "a"
    await calls_ended()


async def test_a_router_without_a_token_is_refused_where_it_waits(tmp_path: Path) -> None:
    """The router does not retry."""
    (tmp_path / "tokens").write_text("web secret")
    said = {"bind": "127.0.0.1:0", "topic": "t=1", "tokens": str(tmp_path / "tokens")}
    async with running(Options.read(said, {})) as (port, *_):
        async with Router(f"127.0.0.1:{port}", access=Access(token="secret")) as router:
            await router.ready()
        with pytest.raises(Unauthenticated):
            async with Router(f"127.0.0.1:{port}") as router:
                await router.ready()
    await calls_ended()


def test_raised_epochs_reach_the_watchers_as_a_whole_table() -> None:
    """Every route has a new epoch, even with an unchanged owner."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2})
            await b.consumer(node, "a")
            await b.settles(2)
            async with watching(node) as told:
                await eventually(lambda: len(table(told)) == 2)
                base = node.view.base + 1_000
                await kept.txn([], [Put(ALL.epochs, codec.dump_base(base))])
                await eventually(lambda: told[-1].full and told[-1].revision > base)
                assert all(route.epoch > base for route in told[-1].routes)
        await kept.close()

    virtually(story)


def test_a_slice_of_a_large_table_is_no_whole_table() -> None:
    """Callers must not take the first slice of a large table for the complete table."""
    route = Route(AT, "a", 5)
    for more in (True, False):
        [message] = routed(RouteUpdate(5, (route,), full=True, more=more), 100)
        assert message.more is more


async def test_a_router_begins_anew_when_no_instance_has_reached_its_revision() -> None:
    """After a reset of the store, every instance would refuse the router forever."""
    router = Router(["one:1", "two:1"], retry=Retry(first_s=0.0, most_s=0.0))
    router.revision = 7
    asked: list[tuple[str, int]] = []

    async def hold_one(target: str, least: int) -> None:
        asked.append((target, least))
        if len(asked) == 4:
            raise asyncio.CancelledError
        none = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.OUT_OF_RANGE, none, none, "behind")

    router._hold_one = hold_one  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await router._follow()
    assert asked == [("one:1", 7), ("two:1", 7), ("one:1", 7), ("two:1", 0)]
