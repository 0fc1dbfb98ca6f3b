"""Edges of a look at a group: ambiguous peers, mixed kinds, odd ids, and clients that end early."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from faust_assigner.errors import TryAgain
from faust_assigner.status import collect, ledgers
from faust_assigner.status.build import _rounds
from faust_assigner.status.described import (
    COOPERATIVE,
    EAGER,
    DescribedGroup,
    DescribedMember,
    decode_group,
)
from faust_assigner.status.evidence import Evidence
from faust_assigner.status.members import _guessed
from faust_assigner.wire.worker_status import Peer


def test_of_two_peers_on_a_members_host_none_is_its_own() -> None:
    """The member may be either; a third member alone on its host has its peer."""
    members = [
        DescribedMember(member_id=name, client_id="c", address=host)
        for name, host in (("x", "h1"), ("y", "h2"), ("z", "h3"))
    ]
    peers = [Peer(url=f"http://{place}") for place in ("h1:1", "h1:2", "h2:1")]
    group = DescribedGroup(group_id="shop", state="PreparingRebalance")
    found = _guessed(members, dict.fromkeys("xyz", ""), Evidence(group=group, peers=peers))
    assert found == {"x": "", "y": "http://h2:1", "z": ""}


@pytest.mark.parametrize(
    ("kinds", "word"),
    [
        ([COOPERATIVE, COOPERATIVE], "cooperative"),
        ([COOPERATIVE, EAGER], "eager"),
        ([EAGER], "eager"),
        ([], "unknown"),
    ],
)
def test_one_eager_worker_makes_the_rounds_eager(kinds: list[str], word: str) -> None:
    """The workers that did not answer do not count."""
    views: Any = [SimpleNamespace(kind=kind, status="answered") for kind in kinds]
    silent: Any = SimpleNamespace(kind=COOPERATIVE if word == "unknown" else EAGER, status=None)
    group = DescribedGroup(group_id="shop", state="PreparingRebalance")
    assert _rounds(Evidence(group=group), [*views, silent]) == word


def test_ids_that_a_terminal_would_obey_are_shown_as_text() -> None:
    """Any client may choose its ids; an address loses one slash of Kafka's."""
    told = SimpleNamespace(
        member_id="m\x1b[2J",
        client_id="c\n",
        client_host="//h",
        group_instance_id="i\x07",
        member_metadata=b"xy",
        member_assignment=None,
    )
    group = SimpleNamespace(
        group_id="shop",
        group_state="PreparingRebalance",
        protocol_type="consumer",
        protocol_data="",
        members=[told],
    )
    (found,) = decode_group(group).members
    shown = (found.member_id, found.client_id, found.address, found.instance_id)
    assert all(text is not None and text.isprintable() for text in shown)
    assert (found.address, found.record_bytes) == ("/h", 2 + 2 * len(told.member_id) + 150)
    assert decode_group(group, coordinator="b:1").coordinator == "b:1"


async def test_a_consumer_is_stopped_if_its_start_is_cancelled() -> None:
    """The look may end while the brokers are silent."""
    calls: list[str] = []
    begun = asyncio.Event()

    class Consumer:
        async def start(self) -> None:
            begun.set()
            await asyncio.Event().wait()

        async def stop(self) -> None:
            calls.append("stopped")

    consumer: Any = Consumer()
    starting = asyncio.create_task(collect._started(consumer))
    await begun.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert calls == ["stopped"]


@pytest.mark.parametrize(
    "error", [TryAgain("silent"), KafkaError("refused"), OSError("no route"), TimeoutError("late")]
)
async def test_a_ledger_topic_that_cannot_be_read_is_named_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The other ledgers are shown without it."""
    asked: list[Any] = []

    async def read(*given: Any, **limits: Any) -> Any:
        asked.append((given, limits))
        raise error

    monkeypatch.setattr(ledgers, "read_story_lines", read)
    lines, why = await ledgers._read_topic("t\x1b", "shop", {"x": "y"}, 7)
    assert lines == []
    assert why.startswith("the ledger topic t")
    assert why.isprintable()
    assert why.endswith(f" is unreadable: {error}")
    limits = {"most_records": 7, "seconds": ledgers.TOPIC_S}
    assert asked == [(({"x": "y"}, "t\x1b", "shop"), limits)]
