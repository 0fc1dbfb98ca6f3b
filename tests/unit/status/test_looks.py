"""The steps of a look: retries, the search for workers, remembered URLs, and the final close."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import GroupLoadInProgressError

from faust_assigner.clients.groups import GroupNotFound, NoBrokerAnswers
from faust_assigner.errors import FaustAssignerError, TryAgain
from faust_assigner.status import collect, end_offsets
from faust_assigner.status.collect import TRIES, Looks, Where, _check, _topics
from faust_assigner.status.described import DescribedGroup, DescribedMember, replaced_urls
from faust_assigner.status.evidence import Evidence, Heard
from faust_assigner.status.report import ANSWERED, NOT_ASKED, SILENT
from faust_assigner.wire.join import JoinData, encode_join
from faust_assigner.wire.worker_status import Peer, Peers, Rounds, RoundTold, WorkerStatus
from tests.support.status import group as made_group
from tests.support.waiting import PATIENCE_S


class Net:
    """Workers by URL and the group's successive descriptions; records the queried URLs."""

    def __init__(self, *groups: DescribedGroup | Exception, **where: Any) -> None:
        self.groups = list(groups)
        self.status: dict[str, WorkerStatus] = {}
        self.peers: dict[str, Peers] = {}
        self.rounds: dict[str, Rounds] = {}
        self.asked: list[set[str]] = []
        self.pauses: list[float] = []
        self.committed: dict[tuple[str, int], int] = {("t", 0): 5}
        self.ends: set[frozenset[str]] = set()
        self.looks = Looks(Where(connection={}, group_id="shop", **where), lambda: 77.0)

    async def describe(self) -> tuple[DescribedGroup, dict[tuple[str, int], int]]:
        """Return the next description; repeat the last."""
        found = self.groups.pop(0) if len(self.groups) > 1 else self.groups[0]
        if isinstance(found, Exception):
            raise found
        return found, dict(self.committed)

    async def end_offsets(self, topics: frozenset[str]) -> dict[tuple[str, int], int]:
        """Return ten records for each topic."""
        self.ends.add(topics)
        return {(topic, 0): 10 for topic in topics}

    async def ask_status(self, urls: Iterable[str], *, deadline_s: float) -> dict[str, Heard]:
        """A URL without a worker is silent."""
        wanted = set(urls)
        self.asked.append(wanted)
        return {
            url: Heard(answer=ANSWERED, status=self.status[url])
            if url in self.status
            else Heard(answer=SILENT, detail=f"{url} did not answer")
            for url in wanted
        }

    async def ask_peers(self, urls: Iterable[str], *, deadline_s: float) -> dict[str, Peers]:
        """Return the peers of workers that know some."""
        return {url: self.peers[url] for url in urls if url in self.peers}

    async def ask_rounds(self, urls: Iterable[str], *, deadline_s: float) -> dict[str, Rounds]:
        """Return the rounds of workers that know some."""
        return {url: self.rounds[url] for url in urls if url in self.rounds}

    async def pause(self, seconds: float) -> None:
        """Record the pause; no time passes."""
        self.pauses.append(seconds)


def net(monkeypatch: pytest.MonkeyPatch, *groups: DescribedGroup | Exception, **where: Any) -> Net:
    """A group with faked brokers and workers."""
    made = Net(*groups, **where)
    monkeypatch.setattr(made.looks, "_describe", made.describe)
    monkeypatch.setattr(made.looks._ends, "_end_offsets", made.end_offsets)
    for name in ("ask_status", "ask_peers", "ask_rounds"):
        monkeypatch.setattr(collect, name, getattr(made, name))
    return made


def member(member_id: str, url: str = "", **more: Any) -> DescribedMember:
    """A member, with its advertised URL if given."""
    base: dict[str, Any] = {"client_id": "c", "address": "10.0.0.1"}
    said = JoinData(url) if url else None
    return DescribedMember(member_id=member_id, said=said, **base | more)


def group(*members: DescribedMember, state: str = "Stable") -> DescribedGroup:
    """A group of these members."""
    return DescribedGroup(
        group_id="shop",
        state=state,
        protocol_type="consumer",
        coordinator="k:9092",
        members=members,
    )


MOVING = "PreparingRebalance"


async def test_a_coordinator_that_loads_is_asked_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the last attempt, the error is raised."""
    error = GroupLoadInProgressError()
    made = net(monkeypatch, *[error] * (TRIES - 1), group())
    monkeypatch.setattr(asyncio, "sleep", made.pause)
    assert (await made.looks._group())[0].group_id == "shop"
    assert made.pauses == [collect.BETWEEN_S] * (TRIES - 1)
    never = net(monkeypatch, error)
    monkeypatch.setattr(asyncio, "sleep", never.pause)
    with pytest.raises(GroupLoadInProgressError):
        await never.looks._group()
    assert len(never.pauses) == TRIES - 1


@pytest.mark.parametrize("error", [NoBrokerAnswers("none"), GroupNotFound("none")])
async def test_brokers_that_do_not_answer_and_a_missing_group_are_told_at_once(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retries would only delay the error."""
    made = net(monkeypatch, error, group())
    monkeypatch.setattr(asyncio, "sleep", made.pause)
    with pytest.raises(type(error)):
        await made.looks._group()
    assert made.pauses == []


async def test_a_look_at_a_settled_group_asks_members_and_given_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The look has a time, offsets and all end offsets; a member's own address is queried once."""
    topics = frozenset({"t", "u"})
    made = net(
        monkeypatch,
        group(member("m1", "http://w1:1", topics=topics), member("m2")),
        workers=("http://given:1",),
    )
    made.status["http://w1:1"] = WorkerStatus(app="shop", member_id="m1", standbys={"log": (0,)})
    found = await made.looks.look()
    assert made.asked == [{"http://w1:1", "http://given:1"}]
    assert (found.taken_at, found.committed, found.problems) == (77.0, {("t", 0): 5}, ())
    assert set(found.heard) == {"http://w1:1", "http://given:1"}
    assert found.ends == {("t", 0): 10, ("u", 0): 10}
    assert found.peers == ()


async def test_an_address_that_is_not_allowed_is_not_asked_unless_it_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The address is loopback on a different machine; the detail has the reason."""
    made = net(monkeypatch, group(member("m1", "http://127.0.0.1:1"), member("m2", "http://w2:1")))
    found = await made.looks.look()
    assert made.asked == [{"http://w2:1"}]
    refused = found.heard["http://127.0.0.1:1"]
    assert refused.answer == NOT_ASKED
    assert "http://127.0.0.1:1 was not queried: link-local" in refused.detail
    given = net(
        monkeypatch, group(member("m1", "http://127.0.0.1:1")), workers=("http://127.0.0.1:1",)
    )
    await given.looks.look()
    assert given.asked == [{"http://127.0.0.1:1"}]


async def test_urls_are_remembered_for_members_that_are_still_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """URLs come from metadata and answers; the URL that answered has priority."""
    made = net(
        monkeypatch,
        group(member("m1", "http://w1:1"), member("m2", "http://w2:1")),
        group(member("m1"), member("m3"), state=MOVING),
        workers=("http://given:1",),
        web_port=None,
    )
    made.status["http://given:1"] = WorkerStatus(app="shop", member_id="m1")
    await made.looks.look()
    second = await made.looks.look()
    assert second.urls == {"m1": "http://given:1", "m2": "http://w2:1"}
    assert made.looks._urls == {"m1": "http://given:1"}


async def test_in_a_rebalance_the_members_hosts_are_guessed_and_the_newest_peers_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A guessed URL counts only if it answers; a silent peer counts as evidence."""
    made = net(
        monkeypatch,
        group(
            member("m1"), member("m2", address="10.0.0.2"), member("m3", address=""), state=MOVING
        ),
        workers=("http://given:1",),
    )
    peer = Peer(url="http://w9:1")
    guess = "http://10.0.0.2:6066"
    made.status[guess] = WorkerStatus(app="shop", member_id="m2")
    made.peers = {
        guess: Peers(app="shop", generation=4, peers=(peer,)),
        "http://given:1": Peers(app="shop", generation=3, peers=(Peer(url="http://old:1"),)),
        "http://10.0.0.1:6066": Peers(app="bank", generation=9, peers=(Peer(url="http://x:1"),)),
    }
    found = await made.looks.look()
    first, second = made.asked
    assert first == {"http://given:1", "http://10.0.0.1:6066", guess}
    assert second == {"http://w9:1"}
    assert found.peers == (peer,)
    assert set(found.heard) == {"http://given:1", guess, "http://w9:1"}


@pytest.mark.parametrize("does_answer", [True, False])
async def test_in_a_rebalance_the_urls_of_an_earlier_look_are_asked(
    monkeypatch: pytest.MonkeyPatch, does_answer: bool
) -> None:
    """The group hides the URL now; a silent worker at the remembered URL is evidence, too."""
    made = net(
        monkeypatch,
        group(member("m0", "http://w0:6066"), member("m1", "http://w1:6066")),
        group(member("m1"), state=MOVING),
        web_port=None,
    )
    if does_answer:
        made.status["http://w1:6066"] = WorkerStatus(app="shop", member_id="m1", host="w1")
    await made.looks.look()
    found = await made.looks.look()
    assert found.urls == {"m0": "http://w0:6066", "m1": "http://w1:6066"}
    assert {url: one.answer for url, one in found.heard.items()} == {
        "http://w0:6066": SILENT,
        "http://w1:6066": ANSWERED if does_answer else SILENT,
    }


async def test_without_a_port_no_host_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the given workers are queried."""
    made = net(monkeypatch, group(member("m1"), state=MOVING), web_port=None)
    await made.looks.look()
    assert set().union(*made.asked) == set()


async def test_the_topics_of_a_look_are_those_of_offsets_members_and_workers() -> None:
    """Changelogs of copies are included, as lags need their end offsets."""
    status = WorkerStatus(app="shop", actives={"a": (0,)}, standbys={"s": (0,)})
    evidence = Evidence(
        group=group(member("m1", topics=frozenset({"m"}))),
        heard={"http://x": Heard(answer=ANSWERED, status=status), "http://y": Heard(answer=SILENT)},
        committed={("c", 0): 1},
    )
    assert _topics(evidence) == {"a", "s", "m", "c"}


async def test_only_rounds_of_the_group_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent workers are not queried, and a port may serve a different app."""
    made = net(monkeypatch, group())
    told = RoundTold(generation=1, at=1.0)
    for url, app in (("http://b", "shop"), ("http://a", "bank"), ("http://c", "shop")):
        made.rounds[url] = Rounds(app=app, rounds=(told,))
    answered = Heard(answer=ANSWERED, status=WorkerStatus(app="shop"))
    evidence = Evidence(
        group=group(),
        heard={"http://a": answered, "http://b": answered, "http://c": Heard(answer=SILENT)},
    )
    assert await made.looks.rounds(evidence) == (told,)


async def test_missing_end_offsets_are_a_problem_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reason is the broker's error or the time limit."""
    for error, words in (
        (TimeoutError(), "no answer within 6 s"),
        (GroupLoadInProgressError("loading"), "loading"),
    ):
        made = net(monkeypatch, group())

        async def failing(topics: frozenset[str], error: Exception = error) -> Any:
            raise error

        monkeypatch.setattr(made.looks._ends, "_end_offsets", failing)
        ends, problems = await made.looks._ends.of(frozenset({"t"}))
        assert ends == {}
        assert words in problems[0]


def test_the_result_does_not_wait_for_a_name_server_after_the_deadline() -> None:
    """A request for a host's address cannot be cancelled, and may take most of a minute."""
    answers, ended = threading.Event(), threading.Event()

    def resolve() -> None:
        answers.wait(PATIENCE_S)
        ended.set()

    async def query() -> str:
        async with Looks(Where(connection={}, group_id="shop"), lambda: 0.0):
            asyncio.get_running_loop().run_in_executor(None, resolve)
        return "result"

    assert asyncio.run(query()) == "result"
    assert not ended.is_set()
    answers.set()
    assert ended.wait(PATIENCE_S)


class Consumer:
    """A consumer of three topics; one of the topics does not exist."""

    def __init__(self, **connection: Any) -> None:
        self.connection, self.started, self.stopped = connection, 0, 0
        self.fails = False
        self.asked: list[Any] = []
        self._client = self

    async def start(self) -> None:
        """Count the start."""
        self.started += 1
        if self.fails:
            raise ConnectionError

    async def stop(self) -> None:
        """Count the stop."""
        self.stopped += 1

    async def fetch_all_metadata(self) -> Consumer:
        """Return the cluster."""
        return self

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Two partitions of each existing topic."""
        return None if topic == "gone" else {1, 0}

    available_partitions_for_topic = partitions_for_topic

    async def end_offsets(self, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Record the request."""
        self.asked.append(wanted)
        return dict.fromkeys(wanted, 4)


async def test_the_ends_of_existing_topics_are_asked_by_one_consumer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The consumer starts once and stops with the looks; without topics no request is made."""
    made: list[Consumer] = []
    monkeypatch.setattr(
        end_offsets, "AIOKafkaConsumer", lambda **c: made.append(Consumer(**c)) or made[-1]
    )
    looks = Looks(Where(connection={"x": 1}, group_id="shop"), lambda: 0.0)
    assert await looks._ends._end_offsets(frozenset()) == {}
    for _ in range(2):
        ends = await looks._ends._end_offsets(frozenset({"t", "gone"}))
    assert ends == {("t", 0): 4, ("t", 1): 4}
    await looks.close()
    await looks.close()
    assert [(one.connection, one.started, one.stopped) for one in made] == [({"x": 1}, 1, 1)]


async def test_the_client_of_the_looks_is_closed_once() -> None:
    """The looks close their client, whether or not they started a consumer."""
    closed: list[str] = []

    class Client:
        async def close(self) -> None:
            closed.append("client")

    looks = Looks(Where(connection={}, group_id="shop"), lambda: 0.0)
    looks._client = cast(Any, Client())
    await looks.__aexit__(None, None, None)
    await looks.close()
    assert closed == ["client"]


async def test_a_consumer_that_cannot_start_is_stopped() -> None:
    """Its connections and tasks end before the error is raised."""
    consumer = Consumer()
    consumer.fails = True
    with pytest.raises(ConnectionError):
        await end_offsets._start(consumer)  # type: ignore[arg-type]
    assert consumer.stopped == 1


def test_only_a_classic_group_of_consumers_is_shown() -> None:
    """An empty group has no protocol type."""
    _check(replace(group(), protocol_type=""))
    _check(group())
    with pytest.raises(FaustAssignerError, match="group of connect, not of consumers"):
        _check(replace(group(), protocol_type="connect"))
    with pytest.raises(GroupNotFound, match="no classic group 'shop'"):
        _check(group(state="Dead"))


async def test_a_silent_coordinator_is_told_within_its_time() -> None:
    """The error names the silent party and the limit."""
    with pytest.raises(TryAgain, match=r"the coordinator did not answer within 0\.01 s"):
        await collect._in_time(asyncio.Event().wait(), 0.01, "the coordinator")


@pytest.mark.parametrize("address", ["no host/at all", "[::1", "a b"])
async def test_an_address_that_is_no_host_is_not_guessed(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """A broker may report any text as a host; the remaining members are queried."""
    made = net(
        monkeypatch, group(member("m1", address=address), member("m2"), state=MOVING), workers=()
    )
    await made.looks.look()
    assert made.asked[0] == {"http://10.0.0.1:6066"}


def of_two_static_members() -> tuple[DescribedGroup, str]:
    """(A group whose member ``a`` has moved to a new URL without a round, its previous URL)."""
    made = made_group(2)
    made.offers = {"m0": {"instance_id": "a"}, "m1": {"instance_id": "b"}}
    made.round()
    moved = replace(made.claims["m0"], url="http://new:6066", instance_id="a")
    made.metadata["m0"] = ConsumerProtocolMemberMetadata(
        0, sorted(made.topics), encode_join(moved, made.topics)
    ).encode()
    return made.described(), "http://w0:6066"


async def test_the_former_process_of_an_instance_id_is_queried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both processes with the id may answer; an ended previous process is no evidence."""
    described, former = of_two_static_members()
    made = net(monkeypatch, described)
    members = {"http://new:6066", "http://w1:6066"}
    assert set((await made.looks.look()).heard) == members
    assert made.asked == [members | {former}]
    made.status[former] = WorkerStatus(app="shop", member_id="m9", instance_id="a")
    assert set((await made.looks.look()).heard) == members | {former}


def test_only_an_instance_id_at_another_url_has_been_replaced() -> None:
    """Dynamic members, departed members and unreadable directories yield no URL."""
    described, former = of_two_static_members()
    assert replaced_urls(described) == {former}
    assert replaced_urls(replace(described, members=described.members[1:])) == frozenset()
    assert replaced_urls(made_group(2).described()) == frozenset()
    broken = tuple(
        replace(one, given=replace(one.given, directory=b"x")) if one.given else one
        for one in described.members
    )
    assert replaced_urls(replace(described, members=broken)) == frozenset()
    assert replaced_urls(replace(described, members=())) == frozenset()
    old = made_group(
        2
    ).described()  # an answer of an earlier round, for example of a departed member
    assert old.members[0].given is not None
    later = replace(old.members[0].given, generation=99)
    mixed = replace(described, members=(*described.members, replace(old.members[0], given=later)))
    assert replaced_urls(mixed) == frozenset(), (
        "the directory of the last round has no instance ids"
    )
