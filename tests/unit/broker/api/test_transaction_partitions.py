"""Transactions over several partitions and members: each one is waited for, named and stored."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import CommitOffsets
from tests.support.hall import Hall, in_hall
from tests.unit.broker.api.test_transactions import (
    ILLEGAL_GENERATION,
    NOT_AVAILABLE,
    Producer,
    begun,
)


@pytest.mark.parametrize("deleted", ["t", "u"])
def test_an_end_waits_for_the_partitions_beside_a_deleted_one(deleted: str) -> None:
    """The first wait fails and the topic is deleted meanwhile; the retry waits for the other topic."""

    async def story(hall: Hall) -> tuple[list[int], int, int]:
        topics = {
            name: hall.node.catalogue.create(name, 1, {"flush.messages": "1"}) for name in "tu"
        }
        producer = Producer(hall)
        await producer.init()
        for name in topics:
            await producer.add(0, topic=name)
        waits: list[None] = []

        async def flushed() -> None:
            waits.append(None)
            if len(waits) == 1:
                hall.node.catalogue.delete(topics.pop(deleted))
                raise StoreFailed("no space")

        hall.node.flushing.flushed = flushed  # type: ignore[method-assign]
        codes = [int((await producer.end()).error_code) for _ in range(2)]
        (log,) = (topic.partitions[0] for topic in topics.values())
        return codes, len(waits), log.flushed_to

    assert in_hall(story) == ([NOT_AVAILABLE, 0], 2, 1)


@pytest.mark.parametrize("version", [2, 3, 5])
@pytest.mark.parametrize(
    ("error", "found"), [(Code.NONE, 0), (Code.STALE_MEMBER_EPOCH, ILLEGAL_GENERATION)]
)
def test_a_commit_of_a_transaction_carries_the_member_since_version_3(
    version: int, error: Code, found: int
) -> None:
    """The group sees the member, its instance and the partitions; the offsets wait for the end."""

    async def story(hall: Hall) -> tuple[Any, set[int], int]:
        producer = await begun(hall, 2)
        await producer.add_group()
        events: list[Any] = []

        def asked(group_id: str, event_for: Any, answer: Any, creator: Any = None) -> None:
            events.append((group_id, event_for(6)))
            answer(fx.CommitReply(6, error))

        hall.node.groups.ask = asked  # type: ignore[method-assign]
        member = {"member_id": "m", "generation_id": 4, "group_instance_id": "i"}
        codes = await producer.commit(version, count=2, **(member if version >= 3 else {}))
        return events, codes, hall.node.groups.books.pending.count("g")

    who = ("m", 4, "i") if version >= 3 else ("", -1, None)
    event = CommitOffsets(
        6, *who, version, transactional=True, partitions=(("t", 0), ("t", 1))
    )  # fmt: skip
    assert in_hall(story) == ([("g", event)], {found}, 0 if found else 2)
