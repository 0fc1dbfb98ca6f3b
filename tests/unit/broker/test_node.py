"""Cached metadata, alarms and housekeeping, without a socket."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor as Pool
from pathlib import Path

import pytest

from faust_assigner.broker import EmbeddedBroker, answers
from faust_assigner.broker import node as node_module
from faust_assigner.broker.housekeeping import retain
from faust_assigner.broker.metadata_cache import MetadataCache
from faust_assigner.broker.node import Node, wall_ms
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.records import parse_batch
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.wire import _cut_out
from faust_assigner.coordinator.events import JoinGroup, Protocol, SyncGroup
from faust_assigner.errors import ConfigError
from tests.support.clients.raw_client import batch, one_record
from tests.support.waiting import PATIENCE_S

# -- the node --------------------------------------------------------------------------------


async def test_who_asks_for_the_same_metadata_waits_for_one_answer_of_its_version() -> None:
    """The end of an older answer must not cause a second computation of the newer answer."""
    version = 0
    cache = MetadataCache(lambda: version)
    loop = asyncio.get_running_loop()
    made: list[asyncio.Future[bytes]] = []

    def make() -> asyncio.Future[bytes]:
        made.append(loop.create_future())
        return made[-1]

    async def asked(count: int) -> list[asyncio.Task[bytes]]:
        tasks = [loop.create_task(cache.get("key", make)) for _ in range(count)]
        await asyncio.sleep(0)
        return tasks

    old = await asked(2)
    version = 1
    new = await asked(2)
    made[0].set_result(b"old")
    assert await asyncio.gather(*old) == [b"old"] * 2
    new += await asked(1)
    assert len(made) == 2
    made[1].set_result(b"new")
    assert await asyncio.gather(*new) == [b"new"] * 3
    assert await cache.get("key", make) == b"new"
    other = loop.create_task(cache.get("other", make))
    await asyncio.sleep(0)
    assert len(made) == 3, "another request has an answer of its own"
    other.cancel()


async def test_an_answer_that_fails_fails_for_all_who_wait_and_is_made_anew() -> None:
    """The next client asks again."""
    cache = MetadataCache(lambda: 0)
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    waiting = [asyncio.ensure_future(cache.get("key", lambda: future)) for _ in "ab"]
    await asyncio.sleep(0)
    future.set_exception(StoreFailed("busy"))
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in outcomes] == [StoreFailed, StoreFailed]

    async def again() -> bytes:
        return b"again"

    assert await cache.get("key", again) == b"again"


async def test_a_client_that_disconnects_leaves_the_making_to_the_next() -> None:
    """The other clients wait for the second client's answer."""
    cache = MetadataCache(lambda: 0)
    made = [asyncio.get_running_loop().create_future() for _ in "abc"]
    waiting = [
        asyncio.ensure_future(cache.get("key", lambda future=future: future)) for future in made
    ]
    await asyncio.sleep(0)
    waiting[0].cancel()
    made[1].set_result(b"second")
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert outcomes[1:] == [b"second", b"second"]


async def test_a_client_that_leaves_while_it_waits_leaves_the_answer_to_the_others() -> None:
    """The second of three clients disconnects before the answer of the first is made."""
    cache = MetadataCache(lambda: 0)
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    tasks = [asyncio.ensure_future(cache.get("key", lambda: future)) for _ in "abc"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.sleep(0)
    future.set_result(b"made")
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes[0] == outcomes[2] == b"made"
    assert isinstance(outcomes[1], asyncio.CancelledError)


def test_metadata_that_changed_while_it_was_made_is_not_kept() -> None:
    """The next request gets a new answer; an unchanged answer is made once."""
    node, made = Node(Settings.parse({})), []

    async def make() -> bytes:
        made.append(node.catalogue.version)
        if len(made) == 1:
            node.catalogue.create("meanwhile", 1, {})
        return f"version {made[-1]}".encode()

    async def story() -> list[bytes]:
        return [await node.metadata_cache.get("key", make) for _ in range(3)]

    assert asyncio.run(story()) == [b"version 0", b"version 1", b"version 1"]
    node.close()


def test_topics_without_delete_keep_every_record_whatever_their_age() -> None:
    """retention.ms applies to cleanup.policy=delete; an empty policy keeps all (KIP-1161)."""
    node = Node(Settings.parse({}))
    for policy, left in (("compact", 1), ("delete", 0), ("compact,delete", 0), ("", 1)):
        configs = {"cleanup.policy": policy, "retention.ms": "1"}
        topic = node.catalogue.create(policy.replace(",", "-") or "none", 1, configs)
        data = batch(one_record(), timestamp=1)
        topic.partitions[0].append(parse_batch(data), data, 0)
        sum(retain(node))
        assert topic.partitions[0].end_offset - topic.partitions[0].start_offset == left
    node.close()


def test_producer_ids_are_never_given_twice_over_a_start(tmp_path: Path) -> None:
    """A block of ids is reserved on disk before its first id is used."""
    given = []
    for _ in range(2):
        node = Node(Settings.parse({}), tmp_path)
        given += [node.new_producer_id() for _ in range(3)]
        node.close()
    assert len(set(given)) == 6


def test_members_that_were_there_before_a_start_are_missed_after_it(tmp_path: Path) -> None:
    """Alarms of restored groups are set before the loop starts and fire on the loop."""
    now = [1_000_000]
    settings = Settings.parse(
        {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1}
    )
    node = Node(settings, tmp_path, clock=lambda: now[0])
    protocols = (Protocol("range", b"m"),)
    node.groups.ask("g", lambda t: JoinGroup(t, "", "m", protocols, session_timeout_ms=10,
                                             needs_known_id=False), lambda reply: None)  # fmt: skip
    node.groups.tick("g")
    node.groups.ask("g", lambda t: SyncGroup(t, "m", 1, assignments={"m": b""}), lambda reply: None)
    node.close()

    async def story() -> int:
        again = Node(settings, tmp_path, clock=lambda: now[0])
        group = again.groups.get("g")
        assert group is not None
        assert len(group.roster) == 1
        now[0] += 60_000
        again.start(asyncio.get_running_loop())
        for _ in range(200):
            if not len(group.roster):
                break
            await asyncio.sleep(0.01)
        again.close()
        return len(group.roster)

    assert asyncio.run(story()) == 0


def test_an_alarm_that_is_due_earlier_rings_earlier() -> None:
    """A later alarm does not delay an earlier alarm."""

    async def story() -> list[list[str]]:
        node = Node(Settings.parse({}), clock=lambda: 0)
        rung: list[str] = []
        node.groups.tick = rung.append  # type: ignore[method-assign]
        node.start(asyncio.get_running_loop())
        seen = []
        for first, second in ((3_600_000, 1), (1, 3_600_000)):
            rung.clear()
            node.group_timers.set("g", first)
            node.group_timers.set("g", second)
            for _ in range(200):
                if rung:
                    break
                await asyncio.sleep(0.01)
            seen.append(list(rung))
        node.close()
        return seen

    assert asyncio.run(story()) == [["g"], ["g"]]


def test_an_alarm_rings_by_the_timers_clock() -> None:
    """The alarm of this moment fires, the alarm of the next hour does not."""

    async def story() -> list[str]:
        node = Node(Settings.parse({}))
        rung: list[str] = []
        node.groups.tick = rung.append  # type: ignore[method-assign]
        node.start(asyncio.get_running_loop())
        node.group_timers.set("next hour", node.timer() + 3_600_000)
        node.group_timers.set("now", node.timer() + 20)
        for _ in range(200):
            if "now" in rung:
                break
            await asyncio.sleep(0.01)
        node.close()
        return rung

    assert asyncio.run(story()) == ["now"]


def test_a_port_that_is_taken_leaves_the_data_to_the_next_broker(tmp_path: Path) -> None:
    """A failed start leaves the store unlocked."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(OSError), EmbeddedBroker(tmp_path, port=other.getsockname()[1]):
            pass
    with EmbeddedBroker(tmp_path) as broker:
        assert broker.port


# -- small things ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "listener", ["0.0.0.0:9092", "PLAINTEXT://[::]:9092", "host:0", "host", "a:1,b:2"]
)
def test_an_address_nobody_can_connect_to_is_not_advertised(listener: str) -> None:
    """The error names the setting and the value."""
    with pytest.raises(ConfigError, match=r"advertised\.listeners"):
        Settings.parse({"advertised.listeners": listener})


def test_several_cuts_leave_everything_else_in_its_place() -> None:
    """The bytes between two cuts are copied once."""
    assert _cut_out(b"abcdefgh", [(1, 2, b"X"), (4, 6, b""), (7, 8, b"YZ")]) == b"aXcdgYZ"


@pytest.mark.parametrize(
    "shape", [[[1] * 3] * 4, [{"a": [1, 2, 3]}] * 4, {"a": [{"b": [1] * 3}] * 4}]
)
def test_elements_of_inner_lists_count(shape: object) -> None:
    """Four lists of three are sixteen elements; the limit of bytes is exact."""
    assert answers.is_long(shape, 15, 100)
    assert not answers.is_long(shape, 16, 100)
    assert answers.is_long([b"x" * 101], 100, 100)


def test_the_wall_clock_counts_milliseconds_since_1970() -> None:
    """Records have this time, and readers compare it with their own clock."""
    before = int(time.time() * 1_000)
    assert before <= wall_ms() <= int(time.time() * 1_000)


async def test_a_closed_node_tells_the_groups_of_no_change() -> None:
    """The node's store is closed by then."""
    node = Node(Settings.parse({}))
    node.start(asyncio.get_running_loop())
    node.catalogue.create("t", 1, {})
    telling = node._topic_notifier.update
    assert telling is not None
    node.close()
    await asyncio.wait([telling], timeout=PATIENCE_S)
    assert telling.cancelled()


async def test_a_node_closes_although_not_all_of_its_threads_have_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The threads that have started wait for the others, which never come."""
    monkeypatch.setattr(node_module, "ThreadPoolExecutor", lambda _, name: Pool(1, name))
    node = Node(Settings.parse({}))
    node.start(asyncio.get_running_loop())
    closing = threading.Thread(target=node.close, daemon=True)
    closing.start()
    try:
        await asyncio.to_thread(closing.join, PATIENCE_S)
        assert not closing.is_alive()
    finally:
        node._readers_started.abort()


def test_changes_of_topics_within_one_wait_reach_the_groups_in_one_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later change, and a change during the update, gets its own update."""

    async def story() -> list[int]:
        node = Node(Settings.parse({}))
        node.start(asyncio.get_running_loop())
        told: list[int] = []

        def changed() -> Iterator[None]:
            told.append(len(tuple(node.catalogue)))
            if len(told) == 2:
                node.catalogue.create("meanwhile", 1, {})
            yield None

        monkeypatch.setattr(node.groups, "catalogue_changed", changed)
        for names in (("a", "b", "c"), ("d",)):
            for name in names:
                node.catalogue.create(name, 1, {})
                await asyncio.sleep(0)
            while (telling := node._topic_notifier.update) is not None:
                await telling
        node.close()
        return told

    assert asyncio.run(asyncio.wait_for(story(), PATIENCE_S)) == [3, 4, 5]
