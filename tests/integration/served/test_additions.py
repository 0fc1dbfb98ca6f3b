"""Features of the service beyond the first assigner, over real sockets, with the state in memory."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from faust_assigner.service.client import AbortWarm, Registration, Standbys, TopicPartition, Warm
from faust_assigner.service.client.operator import Operator
from faust_assigner.service.errors import NotFound, WrongPhase
from tests.integration.served.group import writing
from tests.support.assigning.instances import (
    QUICK,
    Consumer,
    calls_ended,
    consumers,
    instances,
    settled,
    until,
    until_state,
)
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.processes, pytest.mark.slow]
FOUR = (*QUICK, "--topic", "orders=4")


def warms(one: Consumer) -> list[Warm]:
    """The warm-up commands that this consumer received."""
    return [told for told in one.told if isinstance(told, Warm)]


async def test_an_operator_sees_how_far_a_warm_up_is_and_gives_it_up(tmp_path: Path) -> None:
    """The new owner drops the warm-up and gets no new one soon; the old owner keeps processing."""
    with instances(tmp_path, *FOUR, "--cooldown-s", "60") as (service,):
        first, second = Consumer(service.target, "a"), Consumer(service.target, "b", warm_s=1000)
        async with consumers(first), Operator(service.target) as operator:
            await settled([first], [4])
            async with consumers(second):
                await until(lambda: len(warms(second)) == 2)
                for warm in warms(second):
                    await second.client.progress(warm, 0.5)
                said = await until_state(
                    service.target,
                    lambda state: (
                        len(state.handoffs) == 2
                        and all(one.progress == 0.5 for one in state.handoffs)
                    ),
                )
                with pytest.raises(WrongPhase):
                    await operator.abort(
                        warms(second)[0].partition, said.handoffs[0].handoff_id + 1_000
                    )
                for warm in warms(second):
                    await operator.abort(warm.partition, warm.handoff_id)
                await until(lambda: sum(isinstance(told, AbortWarm) for told in second.told) >= 2)
                await asyncio.sleep(1.0)  # five times the debounce
                assert len(warms(second)) == 2, "nobody is asked again"
                assert len(first.working) == 4
            with pytest.raises(NotFound):
                await operator.abort(("orders", 77))


async def test_an_operator_names_a_topic_and_lets_it_grow(tmp_path: Path) -> None:
    """Consumers of all topics get the new topic and its additional partitions."""
    with instances(tmp_path, *FOUR) as (service,):
        everything, orders = (
            Consumer(service.target, "a"),
            Consumer(service.target, "b", topics=["orders"]),
        )
        async with consumers(everything, orders), Operator(service.target) as operator:
            await settled([everything, orders], [2, 2])
            await operator.set_topic("new.topic", 2)
            await until(
                lambda: (
                    {p for p in everything.working if p.topic == "new.topic"}
                    == {TopicPartition("new.topic", 0), TopicPartition("new.topic", 1)}
                )
            )
            await operator.set_topic("new.topic", 4)
            await settled([everything, orders], [4, 4])
            assert {partition.topic for partition in orders.working} == {"orders"}


async def test_a_screen_is_told_of_every_change(tmp_path: Path) -> None:
    """WatchState returns the state after each change; ``--watch`` prints each state."""
    with instances(tmp_path, *FOUR) as (service,), (tmp_path / "screen").open("wb") as out:
        screen = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "faust_assigner.cli",
                "service",
                "consumers",
                "--watch",
                "--at",
                service.target,
            ],
            stdout=out,
        )
        try:
            await until(lambda: (tmp_path / "screen").read_text() != "", "the state now")
            async with (
                Operator(service.target) as operator,
                contextlib.aclosing(operator.watch()) as states,
            ):
                assert len((await anext(states)).consumers) == 0
                async with consumers(Consumer(service.target, "first")) as (one,):
                    await settled([one], [4])
                    async with asyncio.timeout(PATIENCE_S):
                        while len((await anext(states)).assignments) < 4:
                            pass
                    await until(
                        lambda: "first" in (tmp_path / "screen").read_text(), "the next state"
                    )
        finally:
            screen.terminate()
            screen.wait()
        await calls_ended()
        before, *tables = (tmp_path / "screen").read_text().split("consumer  status")
        assert before.strip() == "no consumers"
        assert "first" in tables[0]


def keeper(target: str, name: str, rack: str) -> Consumer:
    """A consumer in this rack that keeps standbys."""
    return Consumer(target, name, registration=Registration(keeps_replicas=True, rack=rack))


async def test_a_replica_that_a_consumer_keeps_warm_is_where_the_partition_goes(
    tmp_path: Path,
) -> None:
    """Standbys are in a different rack than their owner; after the owner's death they take over."""
    with instances(tmp_path, *FOUR, "--replicas", "1") as (service,):
        members = [
            keeper(service.target, name, rack)
            for name, rack in (("a", "1"), ("b", "2"), ("c", "3"))
        ]
        async with consumers(*members):
            await settled(members, [2, 1, 1])
            kept: dict[str, tuple[TopicPartition, ...]] = {}

            def told() -> bool:
                kept.update(
                    {
                        one.name: said.partitions
                        for one in members
                        for said in one.told
                        if isinstance(said, Standbys)
                    }
                )
                return sum(map(len, kept.values())) == 4

            await until(told)
            for one in members:
                assert not set(kept.get(one.name, ())) & set(one.working), (
                    "nobody stands by for itself"
                )
                await one.client.replicas(kept.get(one.name, ()))
            await until_state(
                service.target,
                lambda state: (
                    sum(len(of.partitions) for one in state.consumers for of in one.replicas) == 4
                ),
            )
            dead, lost = members[0], set(members[0].working)
            await dead.stop()
            await settled(members[1:], [2, 2])
            assert all(
                partition in kept[one.name]
                for one in members[1:]
                for partition in lost & set(one.working)
            )


async def test_what_a_consumer_declares_of_itself_counts(tmp_path: Path) -> None:
    """Capacity, partition weights and co-partitioned topics count."""
    heavy = {TopicPartition("orders", 0): 5.0}
    with instances(tmp_path, *QUICK, "--topic", "orders=6", "--topic", "payments=6") as (service,):
        large = Consumer(
            service.target,
            "large",
            registration=Registration(capacity=2.0, copartitioned=[("orders", "payments")]),
        )
        small = Consumer(
            service.target,
            "small",
            registration=Registration(copartitioned=[("orders", "payments")]),
        )
        async with consumers(large, small):
            await settled([large, small], [8, 4])
            for one in (large, small):
                assert Counter(p.partition for p in one.working) == Counter(
                    dict.fromkeys({p.partition for p in one.working}, 2)
                ), "pairs stay together"
    with instances(tmp_path, *QUICK, "--topic", "orders=6") as (service,):
        pair = [
            Consumer(service.target, name, registration=Registration(weights=heavy))
            for name in "ab"
        ]
        async with consumers(*pair):
            await settled(pair, [5, 1])


@pytest.mark.parametrize("strict", [True, False])
async def test_in_strict_mode_nobody_writes_in_vain(tmp_path: Path, strict: bool) -> None:
    """In strict mode a new owner waits for a slow release; otherwise the sink refuses late writes."""
    flags = () if strict else ("--no-strict",)
    with instances(tmp_path, *FOUR, *flags) as (service,):
        members = [Consumer(service.target, name, release_s=0.5) for name in "ab"]
        async with consumers(members[0]), writing(members, strict=False) as sink:
            await settled(members[:1], [4])
            async with consumers(members[1]):
                await settled(members, [2, 2])
                await until_state(service.target, lambda state: not state.handoffs)
        assert (sink.refused == 0) is strict
