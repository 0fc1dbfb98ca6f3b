"""Looks at groups of several workers: each worker, offset, round and ledger line is collected."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from faust_assigner.clients.groups import GroupNotFound
from faust_assigner.errors import TryAgain
from faust_assigner.status import collect, ledgers
from faust_assigner.status.collect import Looks, Where, _topics
from faust_assigner.status.evidence import Evidence, Heard
from faust_assigner.status.members import join_sorted
from faust_assigner.status.report import ANSWERED, NOT_ASKED, SILENT
from faust_assigner.wire.worker_status import Peer, Peers, Rounds, RoundTold, WorkerStatus
from tests.unit.status.test_looks import MOVING, group, member, net

LEDGER = "FAUST_ASSIGNER_LEDGER"


def answered(member_id: str = "", **more: Any) -> Heard:
    """A worker's answer."""
    return Heard(answer=ANSWERED, status=WorkerStatus(app="shop", member_id=member_id, **more))


def evidence(heard: dict[str, Heard]) -> Evidence:
    """A look that queried these URLs."""
    return Evidence(group=group(), heard=heard)


async def test_missing_ends_are_a_problem_of_the_look_at_rest_and_in_a_rebalance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rest of the look is complete."""
    for state in ("Stable", MOVING):
        made = net(monkeypatch, group(member("m1", "http://w1:1"), state=state), deadline_s=7.0)

        async def silent(topics: frozenset[str]) -> Any:
            raise TimeoutError

        monkeypatch.setattr(made.looks._ends, "_end_offsets", silent)
        found = await made.looks.look()
        assert (found.ends, found.committed) == ({}, {("t", 0): 5})
        assert found.problems == (
            "Lags are unknown: the brokers did not return end offsets (no answer within 14 s)",
        )


async def test_the_brokers_have_two_seconds_at_least_and_twice_the_time_of_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The problem names the limit; the queried topics are those of the look."""
    for deadline_s, limit_s in ((0.1, 2.0), (1.0, 2.0), (4.0, 8.0)):
        made = net(monkeypatch, group(), deadline_s=deadline_s)
        limits: list[float] = []

        def timeout(seconds: float, limits: list[float] = limits) -> Any:
            limits.append(seconds)
            return contextlib.nullcontext()

        with monkeypatch.context() as patch:
            patch.setattr(collect.asyncio, "timeout", timeout)
            ends = await made.looks._ends.of(frozenset({"t", "u"}))
        assert (ends, limits) == (({("t", 0): 10, ("u", 0): 10}, ()), [limit_s])


async def test_the_rounds_of_all_workers_are_told_by_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rounds of each worker are returned, within a worker's time limit."""
    told = [RoundTold(generation=n, at=float(n)) for n in range(1, 5)]
    asked: list[Any] = []

    async def ask_rounds(urls: Iterable[str], *, deadline_s: float) -> dict[str, Rounds]:
        asked.append((sorted(urls), deadline_s))
        return {
            "http://b": Rounds(app="shop", rounds=tuple(told[2:])),
            "http://a": Rounds(app="shop", rounds=tuple(told[:2])),
        }

    monkeypatch.setattr(collect, "ask_rounds", ask_rounds)
    looks = Looks(Where(connection={}, group_id="shop", deadline_s=4.0), lambda: 0.0)
    heard = {"http://b": answered(), "http://a": answered(), "http://c": Heard(answer=SILENT)}
    assert await looks.rounds(evidence(heard)) == tuple(told)
    assert asked == [(["http://a", "http://b"], 4.0)]


async def test_ledgers_are_those_of_answering_workers_and_of_all_their_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lines are unique, ordered by URL and topic; each missing ledger has a sentence."""
    asked: list[Any] = []

    async def ask_ledgers(urls: Any, *, deadline_s: float, most_pages: int) -> Any:
        asked.append((sorted(urls), deadline_s, most_pages))
        return {
            "http://b": ([b"3", b"1"], "b has older lines"),
            "http://a": ([b"1", b"2"], "a, too"),
        }

    async def read_story_lines(connection: Any, topic: str, group_id: str, **more: Any) -> Any:
        asked.append((connection, topic, group_id, more))
        if topic == "u":
            raise TryAgain("it loads")
        return [b"2", b"4"], "t is long"

    monkeypatch.setattr(ledgers, "ask_ledgers", ask_ledgers)
    monkeypatch.setattr(ledgers, "read_story_lines", read_story_lines)
    looks = Looks(Where(connection={"x": 1}, group_id="shop", deadline_s=4.0), lambda: 0.0)
    heard = {
        "http://b": answered(settings={LEDGER: "topic:u"}),
        "http://d": Heard(answer=SILENT, detail="d is silent"),
        "http://a": answered(settings={LEDGER: "topic:t"}),
        "http://c": Heard(answer=SILENT, detail="c is silent"),
    }
    lines, missing = await looks.ledgers(evidence(heard), most_pages=3)
    assert lines == [b"1", b"2", b"3", b"4"]
    assert missing == (
        "d is silent: its ledger is missing",
        "c is silent: its ledger is missing",
        "a, too",
        "b has older lines",
        "t is long",
        "the ledger topic u is unreadable: it loads",
    )
    limits = {"most_records": 3 * ledgers.RECORDS_A_PAGE, "seconds": ledgers.TOPIC_S}
    assert asked == [
        (["http://a", "http://b"], 4.0, 3),
        ({"x": 1}, "t", "shop", limits),
        ({"x": 1}, "u", "shop", limits),
    ]


async def test_all_peers_of_the_newest_round_are_queried_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker that answered last has peers too; known peers are not queried again."""
    made = net(
        monkeypatch,
        group(member("m1", address=""), state=MOVING),
        workers=("http://a:1", "http://b:1"),
    )
    peers = tuple(Peer(url=url) for url in ("http://p:1", "http://b:1", "http://q:1"))
    made.peers = {
        "http://a:1": Peers(app="shop", generation=8, peers=(Peer(url="http://old:1"),)),
        "http://b:1": Peers(app="shop", generation=9, peers=peers),
    }
    found = await made.looks.look()
    assert made.asked == [{"http://a:1", "http://b:1"}, {"http://p:1", "http://q:1"}]
    assert found.peers == peers
    assert set(found.heard) == {"http://a:1", "http://b:1", "http://p:1", "http://q:1"}


async def test_a_member_is_remembered_under_its_newest_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that has just begun to rejoin has no member id and belongs to no member."""
    made = net(
        monkeypatch,
        group(member("m1", "http://old:1"), member("m2", "http://w2:1")),
        group(member("m1", "http://new:1"), member("m2", "http://w2:1")),
    )
    made.status["http://w2:1"] = WorkerStatus(app="shop", member_id="")
    for _ in range(2):
        await made.looks.look()
    assert made.looks._urls == {"m1": "http://new:1", "m2": "http://w2:1"}


@pytest.mark.parametrize(
    ("coordinator", "is_asked"), [("127.0.0.1:9092", True), ("k:9092", False), ("", True)]
)
async def test_a_loopback_url_is_queried_if_the_coordinator_is_on_loopback_or_unknown(
    monkeypatch: pytest.MonkeyPatch, coordinator: str, is_asked: bool
) -> None:
    """In both cases all processes may be on the same machine."""
    described = replace(group(member("m1", "http://127.0.0.1:6066")), coordinator=coordinator)
    made = net(monkeypatch, described)
    found = await made.looks.look()
    assert (found.heard["http://127.0.0.1:6066"].answer != NOT_ASKED) is is_asked


def test_the_topics_of_a_look_are_all_topics_of_all_sources() -> None:
    """The sources are two offsets, two members, and two workers with two topics each."""
    found = Evidence(
        group=group(
            member("m1", topics=frozenset({"a", "b"})), member("m2", topics=frozenset({"c", "d"}))
        ),
        heard={
            "http://x": answered(actives={"e": (0,), "f": (0,)}, standbys={"g": (0,), "h": (0,)}),
            "http://y": answered(actives={"i": (0,)}),
        },
        committed={("j", 0): 1, ("k", 3): 2},
    )
    assert _topics(found) == set("abcdefghijk")


async def test_a_dead_group_is_not_found_and_all_offsets_of_a_living_one_are_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The description has the state and the protocol of the coordinator's answer."""
    states = ["Dead", "Empty"]

    class Client:
        cluster = SimpleNamespace(broker_metadata=lambda node: None)

        async def coordinator_lookup(self, kind: int, group_id: str) -> int:
            return 7

    async def connected(connection: Any) -> Any:
        return Client()

    async def described(client: Any, node: int, group_id: str) -> Any:
        return SimpleNamespace(
            group_id=group_id,
            group_state=states.pop(0),
            protocol_type="consumer",
            protocol_data="p",
            members=[],
        )

    async def committed(client: Any, node: int, group_id: str) -> Any:
        return {TopicPartition("t", 3): 5, TopicPartition("u", 4): 6}

    for name, fake in (
        ("connected", connected),
        ("described", described),
        ("committed_offsets", committed),
    ):
        monkeypatch.setattr(collect, name, fake)
    looks = Looks(Where(connection={}, group_id="shop"), lambda: 0.0)
    with pytest.raises(GroupNotFound):
        await looks._describe()
    found, offsets = await looks._describe()
    assert (found.group_id, found.state) == ("shop", "Empty")
    assert (found.protocol_type, found.protocol) == ("consumer", "p")
    assert offsets == {("t", 3): 5, ("u", 4): 6}


async def test_a_block_of_looks_resolves_many_hosts_at_once_and_closes_all_its_connections() -> (
    None
):
    """A thousand hosts are resolved by threads."""
    closed: list[str] = []

    class Connection:
        def __init__(self, name: str) -> None:
            self.name = name

        async def close(self) -> None:
            closed.append(self.name)

        async def stop(self) -> None:
            closed.append(self.name)

    looks = Looks(Where(connection={}, group_id="shop"), lambda: 0.0)
    made: Any = looks
    async with looks as entered:
        assert entered is looks
        executor = asyncio.get_running_loop()._default_executor  # type: ignore[attr-defined]
        assert executor._max_workers == collect.MOST_LOOKUPS
        made._client, made._ends._consumer = Connection("client"), Connection("consumer")
    assert closed == ["client", "consumer"]


@pytest.mark.parametrize(
    ("count", "words"), [(0, ""), (1, "a"), (5, "a, b, c, d, e"), (6, "a, b, c, d, e and 1 more")]
)
def test_five_names_are_listed_in_order_and_the_rest_is_counted(count: int, words: str) -> None:
    """The names are sorted."""
    assert join_sorted(reversed("abcdef"[:count])) == words


async def test_a_look_has_a_time_limit_for_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit covers all retries."""
    made = net(monkeypatch, group())

    async def silent() -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(made.looks, "_describe", silent)
    monkeypatch.setattr(collect, "GROUP_S", 0.01)
    with pytest.raises(TryAgain, match="the group's coordinator did not answer within"):
        await made.looks.look()


async def test_a_text_that_is_no_url_is_reported_by_the_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member may advertise any text; the error is an invalid URL, not a forbidden address."""
    made = net(monkeypatch, group(member("m1", "http://[broken"), member("m2", "http://w2:1")))
    await made.looks.look()
    assert made.asked == [{"http://[broken", "http://w2:1"}]
