"""What the broker does by itself: retention, space, tellings, and what it keeps meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.broker import limits
from faust_assigner.broker.node import Node
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.records import parse_batch
from faust_assigner.broker.storage.store import RocksStore, StoreFailed
from faust_assigner.broker.throttle import LONG_AT_A_TIME, SLICE_S
from tests.support.clients.raw_client import batch


def node(folder: Path | None = None, **settings: Any) -> Node:
    """A broker without its sockets, at 1,000 s."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Node(Settings.parse(given), folder, clock=lambda: 1_000_000)


def append(found: Node, name: str) -> None:
    """One old record."""
    data = batch(timestamp=1)
    log = found.catalogue.partition(name, 0)
    assert log is not None
    log.append(parse_batch(data), data, 0)


def test_a_topic_that_is_deleted_during_retention_leaves_nothing_behind() -> None:
    """The round looks at its partitions afterwards."""
    found = node()
    for name in ("a", "b"):
        append_to = found.catalogue.create(name, 1, {"retention.ms": "1"})
        append(found, append_to.name)
    chore = found._retain()
    assert next(chore) == 1
    gone = found.catalogue.get("b")
    assert gone is not None
    found.catalogue.delete(gone)
    assert sum(chore) == 0
    place = gone.partitions[0].place
    assert not [key for kind in (b"s", b"x", b"b") for key, _ in found.store.scan(kind + place)]
    found.close()


def test_a_chore_that_fails_gives_its_place_in_line_back() -> None:
    """Else the fifth failure would stop every long request of the broker."""

    async def story() -> int:
        found = node()
        failures = 0

        def chore() -> Iterator[int]:
            nonlocal failures
            time.sleep(2 * SLICE_S)
            yield 1
            failures += 1
            raise StoreFailed("no space")

        task = asyncio.create_task(found._repeat(1, chore))
        while failures < LONG_AT_A_TIME + 2:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        found.close()
        return found.line.places._value

    assert asyncio.run(asyncio.wait_for(story(), 20)) == LONG_AT_A_TIME


@pytest.mark.parametrize("is_low", [False, True])
def test_freed_space_is_reclaimed_once_where_it_is_short(tmp_path: Path, is_low: bool) -> None:
    """Each deletion owes one; the next one is reclaimed as well."""

    async def story() -> list[int]:
        found = node(tmp_path)
        store: Any = found.store
        found._loop = asyncio.get_running_loop()
        reclaimed: list[None] = []
        store.reclaim = lambda: reclaimed.append(None)
        store._is_low = is_low
        counts = []
        for _ in range(2):
            found.freed()
            await asyncio.sleep(0.1)
            counts.append(len(reclaimed))
        found.give_back()
        await asyncio.sleep(0.1)
        counts.append(len(reclaimed))
        found.close()
        return counts

    assert RocksStore.is_low
    assert asyncio.run(story()) == ([1, 2, 2] if is_low else [0, 0, 0])


def test_a_topic_that_comes_while_groups_are_told_is_told_too() -> None:
    """The telling that is under way may be past the group that reads it."""

    async def story() -> list[int]:
        found = node()
        found._loop = asyncio.get_running_loop()
        told: list[int] = []

        def telling() -> Iterator[str]:
            told.append(len(found.catalogue))
            if len(told) == 1:
                found.catalogue.create("b", 1, {})
            yield "g"

        found.groups.catalogue_changed = telling  # type: ignore[method-assign]
        found.catalogue.create("a", 1, {})
        for _ in range(50):
            await asyncio.sleep(0.01)
        found.close()
        return told

    assert asyncio.run(story()) == [1, 2]


def test_kept_metadata_counts_its_bytes_from_nothing_after_it_was_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else nothing would be kept any more once the limit was reached."""
    monkeypatch.setattr(limits, "CACHED_METADATA_BYTES", 100)

    async def story() -> set[object]:
        found = node()

        async def make() -> bytes:
            return b"x" * 40

        for key in ("a", "b", "c", "d"):
            await found.metadata_cache.get(key, make)
        kept = set(found.metadata_cache._frames)
        found.close()
        return kept

    assert asyncio.run(story()) == {"c", "d"}


def test_who_asks_after_a_change_does_not_wait_for_an_answer_begun_before_it() -> None:
    """It would be told of the topics of before."""

    async def story() -> tuple[bytes, bytes]:
        found, go_on = node(), asyncio.Event()

        async def slow() -> bytes:
            await go_on.wait()
            return b"before"

        async def fresh() -> bytes:
            return b"after"

        first = asyncio.create_task(found.metadata_cache.get("key", slow))
        await asyncio.sleep(0)
        found.catalogue.create("t", 1, {})
        second = asyncio.create_task(found.metadata_cache.get("key", fresh))
        await asyncio.sleep(0.01)
        go_on.set()
        answers = await first, await second
        found.close()
        return answers

    assert asyncio.run(story()) == (b"before", b"after")


def test_ids_of_producers_are_reserved_in_blocks() -> None:
    """A write for each would cost every producer that starts a wait for the disk."""
    found = node()
    writes: list[Any] = []
    write = found.store.write
    found.store.write = lambda *puts, **more: (writes.append(puts), write(*puts, **more))[1]  # type: ignore[method-assign, func-returns-value]
    assert [found.new_producer_id() for _ in range(1_001)] == list(range(1_001))
    assert len(writes) == 2
    found.close()


@pytest.mark.parametrize(
    ("policy", "keys"), [("delete", False), ("compact", True), ("compact,delete", True)]
)
def test_a_topic_that_is_compacted_in_any_way_wants_keys(policy: str, keys: bool) -> None:
    """A record without a key could never be replaced."""
    found = node()
    topic = found.catalogue.create("t", 1, {"cleanup.policy": policy})
    assert found.rules(topic, 0).keys == keys
    found.close()


@pytest.mark.parametrize(
    ("host", "sent_to"), [("0.0.0.0", "10.0.0.7"), ("::", "10.0.0.7"), ("10.0.0.9", "10.0.0.9")]
)
def test_a_client_is_sent_to_the_address_that_the_broker_listens_on(
    host: str, sent_to: str
) -> None:
    """Where that is every address, to the one it came in at."""
    found = node()
    found.listen_on(host, 9)
    assert found.address_for("10.0.0.7") == (sent_to, 9)
    found.close()


def test_growing_counts_new_partitions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cap is reached with the last one that fits."""
    monkeypatch.setattr(limits, "MAX_PARTITIONS", 8)
    found = node()
    topic = found.catalogue.create("t", 3, {})
    found.catalogue.grow(topic, 6)
    found.catalogue.create("u", 2, {})
    found.close()


def test_a_topic_that_is_only_validated_is_refused_for_its_settings_too() -> None:
    """That is what it is asked for."""
    found = node()
    for validate_only in (True, False):
        with pytest.raises(Exception, match="retention"):
            found.catalogue.create("t", 1, {"retention.ms": "soon"}, validate_only=validate_only)
    found.close()
