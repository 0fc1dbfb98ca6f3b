"""All requests of a member to its coordinator: each field, each share and each callback."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    RequestTimedOutError,
)

from faust_assigner.clients import GroupMember, Share
from faust_assigner.clients import exchange as room
from tests.unit.clients.test_member import play

MEMBER_ID_REQUIRED, REBALANCE, UNKNOWN_MEMBER = 79, 27, 25


class Script:
    """A link that answers each request from a list by kind and keeps the request's fields."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.made_with: tuple[Any, ...] = ()
        self.joins: list[Any] = []
        self.syncs: list[Any] = []
        self.beats: list[Any] = []
        self.goodbye: Any = SimpleNamespace(error_code=0)
        self.calls: list[str] = []
        self.join_times: list[float] = []

    async def start(self) -> None:
        """Note the call."""
        self.calls.append("start")

    async def close(self) -> None:
        """Note the call."""
        self.calls.append("close")

    def lost(self) -> None:
        """Note the call."""
        self.calls.append("lost")

    def drop_connections(self) -> None:
        """Note the call."""
        self.calls.append("hang up")

    async def send(self, request: Any) -> Any:
        """Return or raise the next answer; without answers beats succeed, joins and syncs hang."""
        name = type(request).__name__.removesuffix("Request")
        self.asked.append((name, {key.strip("_"): has for key, has in vars(request).items()}))
        if name == "JoinGroup":
            self.join_times.append(round(asyncio.get_running_loop().time(), 3))
        left = {"JoinGroup": self.joins, "SyncGroup": self.syncs, "Heartbeat": self.beats}
        if name == "LeaveGroup":
            self.calls.append("goodbye")
            answer = self.goodbye
        elif left[name]:
            answer = left[name].pop(0)
        elif name == "Heartbeat":
            answer = SimpleNamespace(error_code=0)
        else:
            await asyncio.sleep(1e9)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Jobs:
    """A strategy whose metadata counts the joins; each member but the last gets its own bytes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.joins = 0
        self.problem: Exception | None = None
        self.members: list[Mapping[str, bytes]] = []

    def metadata(self) -> bytes:
        """Return the name and the number of the join."""
        self.joins += 1
        return f"{self.name}{self.joins}".encode()

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Keep the members and leave out the last."""
        self.members.append(members)
        if self.problem is not None:
            raise self.problem
        return {member_id: b"for " + member_id.encode() for member_id in list(members)[:-1]}


class Told:
    """Work that notes each callback with its time."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, str, Any]] = []

    def _note(self, what: str, fact: Any) -> None:
        self.calls.append((round(asyncio.get_running_loop().time(), 3), what, fact))

    async def on_assigned(self, share: Share) -> None:
        """Note the share, and work until the end."""
        self._note("assigned", share)
        await asyncio.sleep(1e9)

    async def on_revoked(self, share: Share, *, lost: bool) -> None:
        """Note the share."""
        self._note("lost" if lost else "revoked", share)

    async def on_failed(self, reason: str) -> None:
        """Note the reason."""
        self._note("failed", reason)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Replace the link of every member of a test."""
    made = Script()

    def link(*place: Any, **more: Any) -> Script:
        made.made_with = (*place, more)
        return made

    monkeypatch.setattr(room, "CoordinatorLink", link)
    return made


def joined(member_id: str, leader_id: str, generation: int, protocol: str, **ids: bytes) -> Any:
    """Return a join's answer; a leader gets the members with their instance ids and metadata."""
    return SimpleNamespace(
        error_code=0,
        member_id=member_id,
        leader_id=leader_id,
        generation_id=generation,
        group_protocol=protocol,
        members=[(name, f"i-{name}", data) for name, data in ids.items()],
    )


def refused(code: int, member_id: str = "") -> Any:
    """Return an answer with an error."""
    return SimpleNamespace(error_code=code, member_id=member_id, member_assignment=b"")


def synced(state: bytes) -> Any:
    """Return an answer to a sync."""
    return SimpleNamespace(error_code=0, member_assignment=state)


def a_member(work: Told, *strategies: Jobs, **more: Any) -> GroupMember:
    """Return a member whose times are all different."""
    return GroupMember(
        "pool", protocol_type="jobs", strategies=strategies, work=work, session_timeout_s=9.5,
        rebalance_timeout_s=61.25, heartbeat_interval_s=2.5, retry_backoff_s=0.3, **more,
    )  # fmt: skip


JOIN = {
    "group": "pool",
    "session_timeout": 9_500,
    "rebalance_timeout": 61_250,
    "protocol_type": "jobs",
}


def test_a_leader_sends_every_field_of_each_request(script: Script) -> None:
    """The leader joins with its new id, assigns to three members and beats in its generation."""
    one, two, work = Jobs("one"), Jobs("two"), Told()
    script.joins = [
        refused(MEMBER_ID_REQUIRED, "m5"),
        joined("m5", "m5", 7, "two", m5=b"A", m6=b"B", m4=b"C"),
    ]
    script.syncs = [synced(b"\x00mine")]

    async def story() -> None:
        async with a_member(work, one, two) as member:
            await asyncio.sleep(3)
            assert member.share == Share(
                member_id="m5", generation=7, protocol="two", is_leader=True, state=b"mine"
            )
        assert member.share is None

    play(story())
    names = [name for name, _ in script.asked]
    assert names == ["JoinGroup", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"]
    first, second, sync, beat, leave = (
        {key: has for key, has in said.items() if has is not None} for _, said in script.asked
    )
    offers = "group_protocols"
    assert {
        **JOIN,
        "member_id": "",
        offers: [("one", b"one1"), ("two", b"two1")],
    }.items() <= first.items()
    assert {
        **JOIN,
        "member_id": "m5",
        offers: [("one", b"one2"), ("two", b"two2")],
    }.items() <= second.items()
    assert two.members == [{"m5": b"A", "m6": b"B", "m4": b"C"}]
    assert sync["group_assignment"] == [
        ("m5", b"\x00for m5"),
        ("m6", b"\x00for m6"),
        ("m4", b"\x00"),
    ]
    place = {"group": "pool", "generation_id": 7, "member_id": "m5"}
    assert place.items() <= sync.items()
    assert place.items() <= beat.items()
    assert {"group": "pool", "member_id": "m5"}.items() <= leave.items()
    mine = Share(member_id="m5", generation=7, protocol="two", is_leader=True, state=b"mine")
    assert work.calls == [(0.0, "assigned", mine), (3.0, "revoked", mine)]
    assert script.calls == ["start", "hang up", "goodbye", "close"]


def test_a_static_follower_names_its_instance_and_assigns_nothing(script: Script) -> None:
    """The static member stays in the group when the process stops."""
    one, work = Jobs("one"), Told()
    script.joins = [joined("m5", "m2", 8, "one")]
    script.syncs = [synced(b"\x00\x00mine")]

    async def story() -> None:
        async with a_member(work, one, instance_id="i5", bootstrap_servers="b:1") as member:
            await asyncio.sleep(1)
            assert member.share == Share(
                member_id="m5", generation=8, protocol="one", is_leader=False, state=b"\x00mine"
            )

    play(story())
    (_, join), (_, sync) = script.asked
    assert (join["group_instance_id"], sync["group_instance_id"]) == ("i5", "i5")
    assert (sync["group_assignment"], one.members) == ([], [])
    assert script.calls == ["start", "close"]
    assert script.made_with == (
        "pool",
        {"retry_backoff_s": 0.3, "request_timeout_ms": 66_250, "bootstrap_servers": "b:1"},
    )


def test_an_assignment_that_fails_tells_each_member_the_start_of_the_reason(script: Script) -> None:
    """The reason has at most 1,000 characters of UTF-8; the leader's work gets the reason as well."""
    one, work = Jobs("one"), Told()
    one.problem = ValueError("\udcff" + "x" * 2_000)
    script.joins = [joined("m5", "m5", 7, "one", m5=b"A", m6=b"B")]
    script.syncs = [synced(b"\x01too \xff many")]

    async def story() -> None:
        async with a_member(work, one) as member:
            await asyncio.sleep(0.2)
            assert member.share is None

    play(story())
    reason = b"\x01" + ("ValueError: ?" + "x" * 2_000)[:1_000].encode()
    assert script.asked[1][1]["group_assignment"] == [("m5", reason), ("m6", reason)]
    assert work.calls == [(0.0, "failed", "too \ufffd many")]


def test_a_request_for_a_round_ends_the_share_and_joins_with_new_metadata(script: Script) -> None:
    """A heartbeat precedes the join; the share is revoked, not lost; the generation increases."""
    one, work = Jobs("one"), Told()
    script.joins = [joined("m5", "m2", 8, "one"), joined("m5", "m2", 9, "one")]
    script.syncs = [synced(b"\x00A"), synced(b"\x00B")]

    async def story() -> None:
        async with a_member(work, one) as member:
            await asyncio.sleep(1)
            member.rejoin()
            await asyncio.sleep(1)

    play(story())
    old, new = (
        Share(member_id="m5", generation=n, protocol="one", is_leader=False, state=state)
        for n, state in ((8, b"A"), (9, b"B"))
    )
    assert work.calls == [
        (0.0, "assigned", old), (1.0, "revoked", old), (1.0, "assigned", new), (2.0, "revoked", new),
    ]  # fmt: skip
    assert [name for name, _ in script.asked] == [
        "JoinGroup", "SyncGroup", "Heartbeat", "JoinGroup", "SyncGroup", "LeaveGroup",
    ]  # fmt: skip
    assert script.asked[3][1]["group_protocols"] == [("one", b"one2")]


@pytest.mark.parametrize(
    ("answer", "end"), [(REBALANCE, "revoked"), (UNKNOWN_MEMBER, "lost"), (22, "lost")]
)
def test_a_share_ends_at_the_first_heartbeat_that_is_refused(
    script: Script, answer: int, end: str
) -> None:
    """The member joins again immediately with its current id."""
    one, work = Jobs("one"), Told()
    script.joins = [joined("m5", "m2", 8, "one"), joined("m6", "m2", 9, "one")]
    script.syncs = [synced(b"\x00A"), synced(b"\x00B")]
    script.beats = [refused(0), refused(answer)]

    async def story() -> None:
        async with a_member(work, one):
            await asyncio.sleep(6)

    play(story())
    assert [(at, what, share.generation) for at, what, share in work.calls] == [
        (0.0, "assigned", 8), (5.0, end, 8), (5.0, "assigned", 9), (6.0, "revoked", 9),
    ]  # fmt: skip
    joins = [said["member_id"] for name, said in script.asked if name == "JoinGroup"]
    assert joins == ["", "m5"]


@pytest.mark.parametrize(
    "problem", [KafkaConnectionError(), KafkaTimeoutError(), NodeNotReadyError(), KafkaError()]
)
def test_a_join_without_an_answer_is_tried_again_after_the_backoff(
    script: Script, problem: KafkaError
) -> None:
    """A broker that disappears during a join neither ends the member nor lengthens the pause."""
    one, work = Jobs("one"), Told()
    script.joins = [RequestTimedOutError(), problem, joined("m5", "m2", 8, "one")]
    script.syncs = [synced(b"\x00A")]

    async def story() -> None:
        async with a_member(work, one):
            await asyncio.sleep(1)

    play(story())
    assert [(at, what) for at, what, _ in work.calls] == [(0.6, "assigned"), (1.0, "revoked")]


@pytest.mark.parametrize("problem", [KafkaError(), TimeoutError(), "silence"])
def test_a_goodbye_that_fails_leaves_the_link_closed(script: Script, problem: Any) -> None:
    """The stop takes at most 5 s; a second stop has no effect."""
    one, work = Jobs("one"), Told()
    script.joins = [joined("m5", "m2", 8, "one")]
    script.syncs = [synced(b"\x00A")]
    script.goodbye = problem

    async def silent(request: Any) -> Any:
        script.calls.append("goodbye")
        await asyncio.sleep(1e9)

    async def story() -> None:
        clock = asyncio.get_running_loop().time
        member = a_member(work, one)
        await member.start()
        await asyncio.sleep(1)
        if problem == "silence":
            script.send = silent  # type: ignore[method-assign]
        began = clock()
        await member.stop()
        assert clock() - began == pytest.approx(5.0 if problem == "silence" else 0.0)
        await member.stop()

    play(story())
    assert script.calls == ["start", "hang up", "goodbye", "close", "close"]
    assert [what for _, what, _ in work.calls] == ["assigned", "revoked"]


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_member_whose_work_fails_to_end_leaves_the_group_all_the_same(
    script: Script, is_silent: bool
) -> None:
    """The error reaches the caller after the leave request, and the link is closed."""
    one, work = Jobs("one"), Told()
    script.joins = [joined("m5", "m2", 8, "one")]
    script.syncs = [synced(b"\x00A")]

    async def broken(share: Share, *, lost: bool) -> None:
        script.calls.append("revoked")
        raise OSError("no room")

    async def story() -> None:
        work.on_revoked = broken  # type: ignore[method-assign]
        if is_silent:
            script.goodbye = KafkaError()
        member = a_member(work, one)
        await member.start()
        await asyncio.sleep(1)
        with pytest.raises(OSError, match="no room"):
            await member.stop()
        assert member.share is None

    play(story())
    assert script.calls == ["start", "revoked", "hang up", "goodbye", "close"]


def test_a_member_that_cannot_connect_never_joins(script: Script) -> None:
    """The start raises an error; wait() and stop() return immediately."""
    work = Told()

    async def unconnected() -> None:
        raise KafkaConnectionError("no broker")

    async def story() -> None:
        script.start = unconnected  # type: ignore[method-assign]
        member = a_member(work, Jobs("one"))
        with pytest.raises(KafkaConnectionError):
            await member.start()
        await asyncio.sleep(5)
        await member.wait()
        await member.stop()

    play(story())
    assert (script.asked, script.calls, work.calls) == ([], [], [])


def test_a_refused_join_sends_no_sync_and_is_sent_again_after_its_pause(script: Script) -> None:
    """The pause doubles with each unexpected answer; a usual answer or a full round resets it."""
    one, work = Jobs("one"), Told()
    script.joins = [
        refused(REBALANCE), refused(15), refused(10), refused(10), refused(UNKNOWN_MEMBER, "x"),
        refused(10), joined("m5", "m2", 8, "one"), refused(10), joined("m5", "m2", 9, "one"),
    ]  # fmt: skip
    script.syncs = [synced(b"\x00A"), synced(b"\x00B")]

    async def story() -> None:
        async with a_member(work, one) as member:
            await asyncio.sleep(4)
            member.rejoin()
            await asyncio.sleep(2)

    play(story())
    assert script.join_times == [0.0, 0.3, 0.6, 1.2, 2.4, 2.7, 3.3, 4.0, 4.6]
    names = [name for name, _ in script.asked if name != "Heartbeat"]
    assert names == ["JoinGroup"] * 7 + [
        "SyncGroup",
        "JoinGroup",
        "JoinGroup",
        "SyncGroup",
        "LeaveGroup",
    ]
    assert {said["member_id"] for name, said in script.asked[:7]} == {""}
    assert script.calls.count("lost") == 1
    assert [(at, what) for at, what, _ in work.calls] == [
        (3.3, "assigned"), (4.0, "revoked"), (4.6, "assigned"), (6.0, "revoked"),
    ]  # fmt: skip


def test_a_coordinator_that_goes_on_refusing_is_logged(
    script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    """Earlier, a member of a coordinator with a full disk tried without end and without a log line."""
    script.joins = [
        *[refused(16)] * 63, joined("m5", "m2", 8, "one"), *[refused(16)] * 255,
        joined("m5", "m2", 9, "one"),
    ]  # fmt: skip
    script.syncs = [synced(b"\x00A"), synced(b"\x00B")]

    async def story() -> None:
        async with a_member(Told(), Jobs("one")) as member:
            await asyncio.sleep(30)
            assert not caplog.text
            member.rejoin()
            await asyncio.sleep(100)

    play(story())
    assert [record.args[1:] for record in caplog.records if record.args] == [
        (64, "NOT_COORDINATOR"), (128, "NOT_COORDINATOR"),
    ]  # fmt: skip


REFUSED, USUAL, WARNED = "refused", "usual", "warned"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        *((code, REFUSED) for code in (23, 24, 26, 30, 82)),
        *((code, USUAL) for code in (14, 15, 16, 22, 25, 27)),
        *((code, WARNED) for code in (-1, 10, 81)),
    ],
)
def test_each_error_of_a_join_ends_the_member_or_is_expected_or_is_warned_of(
    code: int, outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An expected error of a round delays no join; an error that no retry resolves must not be retried."""
    script: Any = Script()
    made = room.Exchange(
        "g",
        protocol_type="p",
        strategies=(),
        instance_id=None,
        session_timeout_s=6.0,
        rebalance_timeout_s=9.0,
        retry_backoff_s=0.5,
    )
    made._link, made.member_id = script, "m"
    if outcome == REFUSED:
        with pytest.raises(room.GroupRefused, match="group g: the coordinator answers"):
            made._not_now(code)
        return
    made._not_now(code)
    assert made.next_join_s == (0.5 if outcome == USUAL else 1.0)
    assert len(caplog.records) == (outcome == WARNED)
    assert script.calls == ["lost"] * (code in (14, 15, 16))
    assert made.member_id == ("" if code == UNKNOWN_MEMBER else "m")
