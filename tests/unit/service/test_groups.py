"""Several groups in one service: each request names its group, and groups are isolated."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from faust_assigner.service.client import (
    Access,
    AssignerClient,
    Release,
    Router,
    TopicPartition,
    Warm,
)
from faust_assigner.service.client.operator import Operator
from faust_assigner.service.client.requests import Requests
from faust_assigner.service.errors import BadRequest, NotFound, ServiceRefused, WrongCaller
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.server.auth import Caller
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.options import Options
from faust_assigner.service.server.serve import running
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import virtually
from tests.support.assigning.instances import Consumer, calls_ended, consumers, settled, until

QUICK = {"bind": "127.0.0.1:0", "consumer_ttl": "3", "leader_ttl": "3", "debounce": "0.1"}
TWO = {**QUICK, "groups": "shop,search", "topic": "shop/t=2,search/t=3"}


def member(target: str, name: str, group: str) -> Consumer:
    """A consumer of this group."""

    class Grouped(AssignerClient):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options, group=group)

    return Consumer(target, name, kind=Grouped)


async def test_each_group_has_its_own_consumers_topics_and_orders() -> None:
    """Names may be equal in both groups."""
    async with running(Options.read(TWO, {})) as (port, *_):
        target = f"127.0.0.1:{port}"
        shop, search = member(target, "a", "shop"), member(target, "a", "search")
        async with (
            consumers(shop, search),
            Operator(target, group="shop") as of_shop,
            Operator(target, group="search") as of_search,
            Router(target, group="search") as router,
        ):
            await settled([shop], [2])
            await settled([search], [3])
            await until(lambda: len(router.routes) == 3)
            await of_shop.pause("a release")
            await of_shop.set_topic("u", 1)
            states = [await of_shop.state(), await of_search.state()]
            assert [one.group for one in states] == ["shop", "search"]
            assert [len(one.topics) for one in states] == [2, 1]
            assert [one.HasField("paused") for one in states] == [True, False]
            await of_search.drain("a")
            await until(lambda: search.task is not None and search.task.done())
            assert shop.task is not None
            assert not shop.task.done()
    await calls_ended()


async def test_a_request_for_no_group_or_an_unknown_one_is_refused() -> None:
    """A wrongly configured consumer joins no group."""
    async with running(Options.read(TWO, {})) as (port, *_):
        target = f"127.0.0.1:{port}"
        for group, kind, text in (
            ("", BadRequest, "names no group: this service has search, shop"),
            ("shopping", NotFound, "no group shopping: this service has search, shop"),
        ):
            one = member(target, "a", group)
            with pytest.raises(kind, match=text):
                await one.client.run(one)
            async with Operator(target, group=group) as operator:
                for ask in (operator.state, operator.plan, operator.resume):
                    with pytest.raises(kind, match=text):
                        await ask()
            with pytest.raises(ServiceRefused, match=text):
                async with Router(target, group=group) as router:
                    await router.ready()
    await calls_ended()


def test_a_service_without_named_groups_has_one_and_knows_no_name() -> None:
    """Requests without a group are accepted."""
    options = Options.read({}, {})
    node = AssignerNode(MemoryStore(), options.settings, node_id="n")
    groups = Groups({"": node})
    assert groups.of("") is node
    with pytest.raises(NotFound, match="no group shop: this service has one group without a name"):
        groups.of("shop")


def test_a_groups_keys_are_those_of_an_instance_with_that_prefix() -> None:
    """One service can replace an instance per prefix."""
    options = Options.read({**TWO, "prefix": "/k/"}, {})
    found = {name: (s.prefix, topics) for name, (s, topics) in options.groups.items()}
    assert found == {"shop": ("/k/shop/", {"t": 2}), "search": ("/k/search/", {"t": 3})}


def test_every_request_can_name_its_group() -> None:
    """The requests of all services have the field."""
    requests = {
        method.input_type
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert [one.name for one in requests if "group" not in one.fields_by_name] == []


def test_a_client_names_its_group_in_every_request() -> None:
    """A heartbeat without the group would be refused, and the registration would end."""
    requests, at = Requests("a", "i", "shop"), TopicPartition("t", 0)
    warm, release = Warm(at, "b", 1), Release(at, "b", 2)
    said = [
        requests.ready(warm),
        requests.released(release, None),
        requests.release_failed(release, 3, ""),
        requests.failed(warm, ""),
        requests.progress(warm, 0.5),
        requests.replicas([]),
        requests.heartbeat("s", None),
        requests.farewell(),
    ]
    assert {one.group for one in said} == {"shop"}


@pytest.mark.parametrize(
    ("said", "allowed"),
    [
        ("shop/a-*", [("shop", "a-1")]),
        ("shop/*", [("shop", "a-1"), ("shop", "b")]),
        ("a-*", [("", "a-1"), ("shop", "a-1"), ("search", "a-1")]),
        ("shop*", []),
        ("/*", []),
    ],
)
def test_a_name_with_a_group_counts_in_that_group_alone(
    said: str, allowed: list[tuple[str, str]]
) -> None:
    """A prefix does not match across the slash."""
    caller, found = Caller(frozenset({said})), []
    for group in ("", "shop", "search"):
        for name in ("a-1", "b"):
            try:
                caller.acting_as(name, group)
            except WrongCaller:
                continue
            found.append((group, name))
    assert found == allowed


async def test_a_token_of_one_group_neither_joins_nor_watches_another(tmp_path: Path) -> None:
    """Consumers and routers are both refused."""
    (tmp_path / "tokens").write_text("shop/w-* secret")
    said = {**TWO, "tokens": str(tmp_path / "tokens")}
    async with running(Options.read(said, {})) as (port, *_):
        target, access = f"127.0.0.1:{port}", Access(token="secret")
        async with Router(target, group="shop", access=access) as router:
            await router.ready()
        with pytest.raises(WrongCaller, match="may not read assignments in the group search"):
            async with Router(target, group="search", access=access) as router:
                await router.ready()
        client = AssignerClient(target, "w-1", group="search", access=access)
        with pytest.raises(WrongCaller, match="may not act as 'w-1' in the group search"):
            await anext(client.commands())
        await client.close()
    await calls_ended()


async def _is_well(health: Any, role: str) -> bool:
    answer = await health.Check(health_pb2.HealthCheckRequest(service=role))
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def test_metrics_and_health_tell_groups_apart() -> None:
    """Metrics have a label, and the health service has a name, for each group."""
    said = {**TWO, "metrics": "127.0.0.1:0"}
    async with running(Options.read(said, {})) as (port, metrics_port, _):
        target = f"127.0.0.1:{port}"
        async with grpc.aio.insecure_channel(target) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for role in ("leader", "leader/shop", "leader/search", "readiness", "liveness"):
                async with asyncio.timeout(20):
                    while not await _is_well(health, role):
                        await asyncio.sleep(0.1)

        def page() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics") as answer:
                return str(answer.read().decode())

        for group, count in (("shop", 2), ("search", 3)):
            unowned = f'faust_assigner_service_unowned_partitions{{group="{group}"}} {count}.0'
            await until(lambda unowned=unowned: unowned in page(), unowned)
            assert f'faust_assigner_service_handoffs{{group="{group}",phase="Ready"}} 0.0' in page()
    await calls_ended()


def test_groups_stop_at_the_same_time() -> None:
    """If the store is silent, each stop takes some seconds, and Kubernetes waits for all of them."""

    class Slow:
        async def stop(self) -> None:
            await asyncio.sleep(5.0)

    async def story() -> None:
        began = asyncio.get_running_loop().time()
        nodes: Any = {"a": Slow(), "b": Slow(), "c": Slow()}
        await Groups(nodes).stop()
        assert asyncio.get_running_loop().time() - began == 5.0

    virtually(story)
