"""Starts that are cancelled, names of callers, comments beside tokens, and replicas in order."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service.errors import WrongCaller
from faust_assigner.service.instance_state import InstanceState
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.records import Consumer, TopicConfig
from faust_assigner.service.server import discovery
from faust_assigner.service.server.auth import (
    CertificateAuthenticator,
    TokenAuthenticator,
    read_tokens,
)
from faust_assigner.service.server.convert import states
from faust_assigner.service.server.discovery import KafkaTopics
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.requests import consumer_of


def test_one_of_a_certificates_names_makes_its_caller_an_administrator() -> None:
    """The other names are those of its consumers."""
    names = {"x509_common_name": [b"shop-1"], "x509_subject_alternative_name": [b"root", b"x"]}
    context: Any = SimpleNamespace(auth_context=lambda: names)
    found = CertificateAuthenticator(("root", "other")).caller(context)
    assert (found.names, found.is_admin) == (frozenset({"shop-1", "root", "x"}), True)
    found = CertificateAuthenticator(("other",)).caller(context)
    assert found.is_admin is False
    with pytest.raises(WrongCaller, match=r"root, shop-1, x is not an administrator"):
        found.administering()


def test_a_comment_needs_no_space_after_its_sign(tmp_path: Path) -> None:
    """A line that is taken out by a sign in front of its name is a comment, too."""
    path = tmp_path / "tokens"
    path.write_text("#old secret-0\n# b secret-1\n\na secret-2\n  #c sha256:\nshop-* secret-3\n")
    digests = [hashlib.sha256(f"secret-{number}".encode()).digest() for number in (2, 3)]
    assert read_tokens(path) == (("a", digests[0]), ("shop-*", digests[1]))


async def test_a_cancelled_start_stops_the_nodes_that_have_started() -> None:
    """Later nodes are neither started nor stopped."""
    acts: list[tuple[str, str]] = []

    def node(name: str, seconds: float) -> Any:
        async def start() -> None:
            acts.append(("start", name))
            await asyncio.sleep(seconds)

        async def stop() -> None:
            acts.append(("stop", name))

        return SimpleNamespace(start=start, stop=stop)

    groups = Groups({"a": node("a", 0.0), "b": node("b", 3_600.0), "c": node("c", 0.0)})
    starting = asyncio.create_task(groups.start())
    while len(acts) < 2:
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert acts == [("start", "a"), ("start", "b"), ("stop", "a")]


async def test_a_cancelled_connection_to_kafka_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next request connects again."""
    acts: list[str] = []

    async def start() -> None:
        acts.append("start")
        await asyncio.sleep(3_600.0)

    async def close() -> None:
        acts.append("close")

    client = SimpleNamespace(start=start, close=close)
    monkeypatch.setattr(discovery, "AIOKafkaAdminClient", lambda **_: client)
    topics = KafkaTopics("h:1")
    for number in (1, 2):
        asking = asyncio.create_task(topics.count("t"))
        while len(acts) < 2 * number - 1:
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert acts == ["start", "close"] * 2
    await topics.close()


def test_the_replicas_of_a_consumer_are_told_in_the_order_of_their_topics() -> None:
    """Replicas of topics and partitions that do not exist are left out."""
    one = Consumer(name="a", holds={"z": (2, 5), "b": (1,), "gone": (0,), "m": (3, 9)})
    counts = [TopicConfig("m", 9), TopicConfig("b", 2), TopicConfig("z", 6)]
    [state] = states("n1", 7, counts, [one], [], [])
    [told] = state.consumers
    assert [(row.topic, list(row.partitions)) for row in told.replicas] == [
        ("b", [1]), ("m", [3]), ("z", [2, 5]),
    ]  # fmt: skip


def test_spaces_around_a_token_do_not_count() -> None:
    """A token may come from a file with a line break; the scheme has no case."""
    known = TokenAuthenticator([("a", hashlib.sha256(b"secret").digest())])
    for said in ("Bearer secret", "bearer  secret ", "BEARER secret\n"):
        metadata = (("x", "y"), ("authorization", said))
        context: Any = SimpleNamespace(invocation_metadata=lambda metadata=metadata: metadata)
        assert known.caller(context).names == frozenset({"a"})


async def test_the_weights_of_a_request_are_in_the_order_of_their_topics() -> None:
    """So the same request is stored as the same bytes."""
    weights = [
        pb.TopicWeights(topic=topic, partitions=[number], weights=[0.5])
        for number, topic in enumerate(("z", "b", "m"))
    ]
    found = await consumer_of(pb.RegisterRequest(consumer_name="a", weights_by_topic=weights))
    assert [(t, dict(w)) for t, w in found.weights.items()] == [
        ("b", {1: 0.5}), ("m", {2: 0.5}), ("z", {0: 0.5}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reconcile_s", "silence_s", "hears"),
    [(1.0, 8.9, True), (1.0, 9.0, False), (5.0, 14.9, True), (5.0, 15.0, False)],
)
def test_a_store_is_silent_from_the_longer_of_two_times_on(
    reconcile_s: float, silence_s: float, hears: bool
) -> None:
    """They are the leader's time to live of 9 s, and three comparisons."""
    mirror: Any = SimpleNamespace(heard_at=100.0)
    clock: Any = SimpleNamespace(monotonic=lambda: 100.0 + silence_s)
    settings: Any = SimpleNamespace(leader_ttl_s=9.0, reconcile_s=reconcile_s)
    assert InstanceState(mirror, clock, settings).hears_store is hears
