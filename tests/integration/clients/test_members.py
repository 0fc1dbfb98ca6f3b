"""Members of groups without topics, against the embedded broker and Apache Kafka."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.clients import GroupMember, GroupRefused, NotInGroup, Share, exchange

DEADLINE_S = 60.0


@pytest.fixture(
    params=["embedded", pytest.param("kafka", marks=[pytest.mark.slow, pytest.mark.kafka])]
)
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of the broker."""
    server: Any = request.getfixturevalue(
        "embedded_broker" if request.param == "embedded" else "kafka"
    )
    return server.bootstrap


async def until(what: str, holds: Callable[[], bool]) -> None:
    """Wait until ``holds`` is true, or fail with ``what``."""
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.02)


@dataclass
class Greeting:
    """A strategy that gives each member all names, or fails with ``fails``."""

    said: str
    name: str = "greeting"
    fails: str = ""

    def metadata(self) -> bytes:
        """Return the member's name."""
        return self.said.encode()

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return all names for each member."""
        if self.fails:
            raise RuntimeError(self.fails)
        names = b" ".join(sorted(members.values()))
        return dict.fromkeys(members, names)


@dataclass
class Diary:
    """The events of a member."""

    shares: list[Share] = field(default_factory=list)
    ended: list[bool] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    slow_s: float = 0.0

    async def on_assigned(self, share: Share) -> None:
        """Record the share."""
        self.shares.append(share)

    async def on_revoked(self, share: Share, *, lost: bool) -> None:
        """Record the loss after ``slow_s`` seconds."""
        await asyncio.sleep(self.slow_s)
        self.ended.append(lost)

    async def on_failed(self, reason: str) -> None:
        """Record the failure."""
        self.failures.append(reason)


class Crowd:
    """Members of a group that leave at the end."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.group = f"crowd-{uuid.uuid4().hex[:8]}"
        self.members: dict[str, GroupMember] = {}
        self.diaries: dict[str, Diary] = {}

    async def __aenter__(self) -> Crowd:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(member.stop() for member in self.members.values()))

    async def join(self, name: str, *strategies: Any, **changes: Any) -> GroupMember:
        """Add a member."""
        diary = self.diaries[name] = Diary()
        options = {
            "session_timeout_s": 6.0,
            "rebalance_timeout_s": 10.0,
            "heartbeat_interval_s": 0.1,
            **changes,
        }
        member = self.members[name] = GroupMember(
            self.group,
            protocol_type="greeters",
            strategies=strategies or [Greeting(name)],
            work=diary,
            bootstrap_servers=self.bootstrap,
            **options,
        )
        await member.start()
        return member

    async def greeted(self, *names: str) -> None:
        """Wait until these members have met in one round, and have noted it."""
        state = " ".join(sorted(names)).encode()

        def has_met(name: str) -> bool:
            share, noted = self.members[name].share, self.diaries[name].shares
            return share is not None and share.state == state and share in noted[-1:]

        await until(f"{names} meet: {self.diaries}", lambda: all(map(has_met, names)))

    def leader(self) -> str:
        """Return the name of the current leader."""
        (name,) = (n for n, m in self.members.items() if m.share is not None and m.share.is_leader)
        return name

    async def die(self, name: str) -> None:
        """Stop a member without a LeaveGroup."""
        member = self.members.pop(name)
        member._exchange.member_id = ""
        await member.stop()


@pytest.mark.slow
async def test_members_meet_and_a_lost_leader_is_replaced(bootstrap: str) -> None:
    """Each member learns of all; when a leader's session expires, another member leads."""
    async with Crowd(bootstrap) as crowd:
        for name in "abc":
            await crowd.join(name)
        await crowd.greeted(*"abc")
        assert len({m.share.generation for m in crowd.members.values() if m.share}) == 1
        first = crowd.leader()
        await crowd.die(first)
        await crowd.greeted(*crowd.members)
        assert crowd.leader() != first


async def test_a_goodbye_is_heard_at_once(bootstrap: str) -> None:
    """The other member does not wait until the leaver's session expires."""
    async with Crowd(bootstrap) as crowd:
        await crowd.join("a", session_timeout_s=60.0)
        await crowd.join("b", session_timeout_s=60.0)
        await crowd.greeted("a", "b")
        began = time.monotonic()
        await crowd.members.pop("a").stop()
        await crowd.greeted("b")
        assert time.monotonic() - began < 30
        assert crowd.diaries["a"].ended[-1] is False


async def test_what_the_leader_raises_all_members_hear(bootstrap: str) -> None:
    """All members get the reason of a failed assignment; after its fix the group continues."""
    async with Crowd(bootstrap) as crowd:
        strategies = {name: Greeting(name, fails="no agreement") for name in "ab"}
        for name in "ab":
            await crowd.join(name, strategies[name])
        await until(
            "both hear of it",
            lambda: all(
                any("no agreement" in reason for reason in crowd.diaries[n].failures) for n in "ab"
            ),
        )
        assert all(not crowd.diaries[n].shares for n in "ab")
        for strategy in strategies.values():
            strategy.fails = ""
        await crowd.greeted("a", "b")


async def test_changed_metadata_makes_a_round(bootstrap: str) -> None:
    """All members get a follower's new metadata."""
    async with Crowd(bootstrap) as crowd:
        words = {name: Greeting(name) for name in "ab"}
        for name in "ab":
            await crowd.join(name, words[name])
        await crowd.greeted("a", "b")
        (follower,) = set("ab") - {crowd.leader()}
        words[follower].said = "new"
        crowd.members[follower].rejoin()
        await until(
            "the new word is heard",
            lambda: all(
                m.share is not None and b"new" in m.share.state for m in crowd.members.values()
            ),
        )


async def test_a_strategy_changes_in_a_roll(bootstrap: str) -> None:
    """The old strategy is used until its last member has left."""
    async with Crowd(bootstrap) as crowd:
        await crowd.join("old")
        await crowd.join("new", Greeting("new", name="warm greeting"), Greeting("new"))
        await crowd.greeted("old", "new")
        assert {m.share.protocol for m in crowd.members.values() if m.share} == {"greeting"}
        await crowd.members.pop("old").stop()
        await crowd.greeted("new")
        share = crowd.members["new"].share
        assert share is not None
        assert share.protocol == "warm greeting"


async def test_who_offers_nothing_in_common_is_refused_for_good(bootstrap: str) -> None:
    """A retry would end alike, so the member ends with the reason."""
    async with Crowd(bootstrap) as crowd:
        await crowd.join("a")
        await crowd.greeted("a")
        stranger = await crowd.join("b", Greeting("b", name="unheard of"))
        with pytest.raises(GroupRefused, match="INCONSISTENT_GROUP_PROTOCOL"):
            await stranger.wait()


async def test_a_static_member_that_comes_back_disturbs_nobody(bootstrap: str) -> None:
    """A new process takes the instance id over; the old process is fenced."""
    async with Crowd(bootstrap) as crowd:
        await crowd.join("a")
        old = await crowd.join("b", instance_id="place")
        await crowd.greeted("a", "b")
        rounds = len(crowd.diaries["a"].shares)
        await crowd.join("b2", Greeting("b"), instance_id="place")
        await until("the newcomer has the place", lambda: crowd.members["b2"].share is not None)
        with pytest.raises(GroupRefused, match="FENCED_INSTANCE_ID"):
            await asyncio.wait_for(old.wait(), DEADLINE_S)
        assert crowd.diaries["b"].ended == [True]
        assert len(crowd.diaries["a"].shares) == rounds


async def test_a_question_tells_whether_a_share_still_counts(bootstrap: str) -> None:
    """In the group the check passes; before a round and after the leave it fails."""
    async with Crowd(bootstrap) as crowd:
        member = await crowd.join("a")
        await crowd.greeted("a")
        await member.check()
        member._share, share = None, member._share
        with pytest.raises(NotInGroup):
            await member.check()
        member._share = share


async def test_work_that_raises_ends_its_member(bootstrap: str) -> None:
    """wait() raises the error; the group continues without the member."""

    class Broken(Diary):
        async def on_assigned(self, share: Share) -> None:
            raise OSError("no room")

    async with Crowd(bootstrap) as crowd:
        member = GroupMember(
            crowd.group,
            protocol_type="greeters",
            strategies=[Greeting("x")],
            work=Broken(),
            heartbeat_interval_s=0.1,
            bootstrap_servers=bootstrap,
        )
        async with member:
            with pytest.raises(OSError, match="no room"):
                await asyncio.wait_for(member.wait(), DEADLINE_S)
        await crowd.join("a")
        await crowd.greeted("a")


@pytest.mark.parametrize("phase", ["stable", "joining", "while its work ends"])
async def test_a_coordinator_that_restarts_finds_its_members_again(
    tmp_path: Path, phase: str
) -> None:
    """In each phase the members return by themselves; a stable generation survives."""
    settings = {"group.initial.rebalance.delay.ms": "300"}
    broker = EmbeddedBroker(tmp_path, settings=settings)
    await broker.start()
    crowd = Crowd(broker.bootstrap)
    try:
        for name in "ab":
            await crowd.join(name)
        if phase != "joining":
            await crowd.greeted("a", "b")
        before = crowd.members["a"].share
        if phase == "while its work ends":
            crowd.diaries["a"].slow_s = 1.0
            crowd.members["b"].rejoin()
            await asyncio.sleep(0.3)
        port = int(broker.bootstrap.rpartition(":")[2])
        await broker.stop()
        await asyncio.sleep(0.5)
        broker = EmbeddedBroker(tmp_path, port=port, settings=settings)
        await broker.start()
        await crowd.greeted("a", "b")
        if phase == "stable":
            await asyncio.sleep(1.0)
            assert crowd.members["a"].share == before
    finally:
        await asyncio.gather(*(member.stop() for member in crowd.members.values()))
        await broker.stop()


async def test_who_hears_nothing_for_a_session_gives_its_share_up(tmp_path: Path) -> None:
    """Other members may own its share by then; the member later joins anew."""
    broker = EmbeddedBroker(
        tmp_path,
        settings={"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500"},
    )
    await broker.start()
    crowd = Crowd(broker.bootstrap)
    try:
        await crowd.join("a", session_timeout_s=1.0)
        await crowd.greeted("a")
        port = int(broker.bootstrap.rpartition(":")[2])
        await broker.stop()
        await until("the share counts as lost", lambda: crowd.diaries["a"].ended == [True])
        broker = EmbeddedBroker(
            tmp_path, port=port, settings={"group.min.session.timeout.ms": "500"}
        )
        await broker.start()
        await crowd.greeted("a")
    finally:
        await asyncio.gather(*(member.stop() for member in crowd.members.values()))
        await broker.stop()


@pytest.mark.slow
async def test_who_stops_while_it_joins_is_in_no_round(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection waits in JoinGroup, so the leave takes another connection."""
    monkeypatch.setattr(exchange, "GOODBYE_S", 1.5)
    async with Crowd(bootstrap) as crowd:
        await crowd.join("a")
        await crowd.greeted("a")
        crowd.diaries["a"].slow_s = 4.0  # the next round waits for it, longer than a leave may take
        late = await crowd.join("late", session_timeout_s=60.0)
        await until("the round began", lambda: crowd.members["a"].share is None)
        await until("the newcomer has its id", lambda: bool(late._exchange.member_id))
        await crowd.members.pop("late").stop()
        await crowd.greeted("a")
        assert [share.state for share in crowd.diaries["a"].shares] == [b"a", b"a"]


class Way:
    """A proxy to a port; after :meth:`forget` open connections stay open and forward nothing."""

    def __init__(self) -> None:
        self.target = 0
        self.lead_on: list[asyncio.Event] = []
        self.copies: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Start to listen; return the port."""
        self.listener = await asyncio.start_server(self._connected, "127.0.0.1")
        return int(self.listener.sockets[0].getsockname()[1])

    def forget(self) -> None:
        """Stop to forward bytes on existing connections."""
        for event in self.lead_on:
            event.clear()
        self.lead_on = []

    async def stop(self) -> None:
        """End the proxy and its connections."""
        self.listener.close()
        for copy in self.copies:
            copy.cancel()
        await asyncio.gather(*self.copies, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        leads = asyncio.Event()
        leads.set()
        self.lead_on.append(leads)
        for source, sink in ((reader, back), (there, writer)):
            copy = asyncio.create_task(self._copy(source, sink, leads))
            self.copies.add(copy)

    async def _copy(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, leads: asyncio.Event
    ) -> None:
        try:
            while data := await source.read(65_536):
                await leads.wait()
                sink.write(data)
        finally:
            sink.close()


async def test_a_path_that_leads_nowhere_is_left_for_another() -> None:
    """Lost packets close no connection; a member without answers opens new connections."""
    way = Way()
    port = await way.start()
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    try:
        async with EmbeddedBroker(settings=settings) as broker:
            way.target = broker.port
            async with Crowd(f"127.0.0.1:{port}") as crowd:
                await crowd.join("a", session_timeout_s=1.5, rebalance_timeout_s=300.0)
                await crowd.greeted("a")
                way.forget()
                await until("the member connects anew", lambda: len(way.lead_on) > 1)
                await crowd.greeted("a")
                await crowd.members["a"].check()
    finally:
        await way.stop()
