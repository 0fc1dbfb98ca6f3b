"""A group member with a fake coordinator on a simulated clock."""

from __future__ import annotations

import asyncio
import itertools
import logging
import selectors
from collections.abc import Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError

from faust_assigner.clients import GroupMember, GroupRefused, NotInGroup, Share
from faust_assigner.clients import exchange as room

SESSION_S, BEAT_S = 6.0, 1.9
UNKNOWN_MEMBER, REBALANCE, TOO_LARGE, NOT_AUTHORIZED = 25, 27, 10, 30


class _Selector(selectors.DefaultSelector):
    """A selector that moves the clock forward instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


def play(story: Coroutine[Any, Any, None]) -> None:
    """Run the story on a simulated clock, so that sleeps take no time."""
    selector = _Selector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        loop.run_until_complete(asyncio.wait_for(story, 10_000))
    finally:
        loop.close()


class Coordinator:
    """A fake link: its only member is the leader; ``beat`` and ``sync`` give the answers."""

    def __init__(self, *_: object, **__: object) -> None:
        self.asked: list[tuple[float, str]] = []
        self.beat: Callable[[], int] = lambda: 0
        self.silent_since = float("inf")
        self.sync_error = 0
        self.beat_takes_s = 0.0
        self.heartbeat_waits_for: asyncio.Future[None] | None = None
        self.unfindable: KafkaError | None = None
        self.hung_up = self.lost_times = self.closed = 0

    async def start(self) -> None:
        """Do not connect."""

    async def close(self) -> None:
        """Count the call."""
        self.closed += 1

    def lost(self) -> None:
        """Count the call."""
        self.lost_times += 1

    def drop_connections(self) -> None:
        """Count the call."""
        self.hung_up += 1

    def times(self, name: str) -> list[float]:
        """Return the times of the requests of this name."""
        return [at for at, what in self.asked if what == name]

    async def send(self, request: Any) -> Any:
        """Answer, or never return while silent."""
        loop = asyncio.get_running_loop()
        name = type(request).__name__.removesuffix("Request")
        self.asked.append((loop.time(), name))
        if loop.time() >= self.silent_since:
            await asyncio.sleep(1e9)
        if self.unfindable is not None:
            raise self.unfindable
        if name == "JoinGroup":
            return SimpleNamespace(
                error_code=0,
                member_id="m",
                leader_id="m",
                generation_id=1,
                group_protocol="one",
                members=[("m", b"")],
            )
        if name == "SyncGroup":
            states = dict(request._group_assignment)
            return SimpleNamespace(error_code=self.sync_error, member_assignment=states["m"])
        if name == "Heartbeat" and self.beat_takes_s:
            await asyncio.sleep(self.beat_takes_s)
        if name == "Heartbeat" and self.heartbeat_waits_for is not None:
            await self.heartbeat_waits_for
        return SimpleNamespace(error_code=self.beat() if name == "Heartbeat" else 0)


class Alone:
    """A strategy of a single member with a single share; with ``fails`` it raises an error."""

    name = "one"
    fails = False

    def metadata(self) -> bytes:
        """Return no metadata."""
        return b""

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Give every member the same share."""
        if self.fails:
            raise RuntimeError("no agreement")
        return dict.fromkeys(members, b"all")


class Diary:
    """Work that notes its callbacks with their times."""

    def __init__(self) -> None:
        self.told: list[tuple[float, str]] = []
        self.states: list[bytes] = []

    def note(self, what: str) -> None:
        """Note the callback with its time."""
        self.told.append((asyncio.get_running_loop().time(), what))

    async def on_assigned(self, share: Share) -> None:
        """Note the assignment."""
        self.states.append(share.state)
        self.note("assigned")

    async def on_revoked(self, share: Share, *, lost: bool) -> None:
        """Note the revocation."""
        self.note("lost" if lost else "revoked")

    async def on_failed(self, reason: str) -> None:
        """Note the failure."""
        self.note("failed")


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    """Replace the coordinator of every member of a test."""
    made = Coordinator()
    monkeypatch.setattr(room, "CoordinatorLink", lambda *_, **__: made)
    return made


def a_member(work: Diary, strategy: Alone | None = None) -> GroupMember:
    """Return a member of the test's coordinator."""
    return GroupMember(
        "g",
        protocol_type="t",
        strategies=[strategy or Alone()],
        work=work,
        session_timeout_s=SESSION_S,
        heartbeat_interval_s=BEAT_S,
    )


def test_silence_counts_as_loss_when_the_session_ends_and_no_later(
    coordinator: Coordinator,
) -> None:
    """The group may then reassign the share, so no pause and no request may extend past the end."""
    work = Diary()

    async def story() -> None:
        coordinator.silent_since = BEAT_S * 1.5
        async with a_member(work):
            await asyncio.sleep(10 * SESSION_S)

    play(story())
    last_answered = max(at for at in coordinator.times("Heartbeat") if at < BEAT_S * 1.5)
    (at,) = (at for at, what in work.told if what == "lost")
    assert at - last_answered <= SESSION_S + 1e-6


def test_a_session_counts_from_the_question_not_from_its_answer(coordinator: Coordinator) -> None:
    """The coordinator renewed the session when it read the heartbeat; the answer may be late."""
    work = Diary()

    async def story() -> None:
        coordinator.silent_since, coordinator.beat_takes_s = BEAT_S * 1.5, 1.5
        async with a_member(work):
            await asyncio.sleep(10 * SESSION_S)

    play(story())
    last_answered = max(at for at in coordinator.times("Heartbeat") if at < BEAT_S * 1.5)
    (at,) = (at for at, what in work.told if what == "lost")
    assert at - last_answered <= SESSION_S + 1e-6


@pytest.mark.parametrize("code", [0, REBALANCE, 16])
def test_work_that_takes_its_time_to_stop_is_beaten_for(
    coordinator: Coordinator, code: int
) -> None:
    """Without heartbeats the group would reassign the share before the work has stopped.

    An answer of a node that is not the coordinator (16) is no proof that the group keeps this member.
    """
    work = Diary()
    coordinator.beat = lambda: code if "Heartbeat" in coordinator.asked[-2][1] else 0

    async def lingering(share: Share) -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            await asyncio.sleep(3 * SESSION_S)
            work.note("over")

    async def story() -> None:
        work.on_assigned = lingering  # type: ignore[method-assign]
        async with a_member(work):
            await asyncio.sleep(1)

        assert coordinator.closed == 1
        beats = len(coordinator.times("Heartbeat"))
        await asyncio.sleep(10 * SESSION_S)
        assert len(coordinator.times("Heartbeat")) == beats, "its end is the end of its heartbeats"

    play(story())
    assert [what for _, what in work.told] == ["over", "lost" if code == 16 else "revoked"]
    assert len(coordinator.times("Heartbeat")) >= 2 * SESSION_S / BEAT_S


def test_whether_a_share_counts_is_known_in_a_third_of_its_session(
    coordinator: Coordinator,
) -> None:
    """With a silent coordinator the check fails: the group may reassign the share."""

    async def story() -> None:
        async with a_member(Diary()) as member:
            await asyncio.sleep(1)
            await member.check()
            clock = asyncio.get_running_loop().time
            began = coordinator.silent_since = clock()
            with pytest.raises(NotInGroup):
                await member.check()
            assert clock() - began == pytest.approx(SESSION_S / 3)

    play(story())


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_place_lost_while_work_stops_is_known_to_its_end(
    coordinator: Coordinator, is_removed: bool
) -> None:
    """A share that the group reassigned meanwhile, or may have in a silence, is lost, not revoked."""
    work = Diary()

    async def lingering(share: Share) -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            if is_removed:
                coordinator.beat = lambda: UNKNOWN_MEMBER
            else:
                coordinator.silent_since = asyncio.get_running_loop().time()
            await asyncio.sleep(3 * SESSION_S)

    async def story() -> None:
        work.on_assigned = lingering  # type: ignore[method-assign]
        async with a_member(work):
            await asyncio.sleep(1)

    play(story())
    assert [what for _, what in work.told] == ["lost"]


@pytest.mark.parametrize("error", [OSError("no room"), asyncio.CancelledError()])
@pytest.mark.parametrize("where", ["on_assigned", "on_revoked", "on_failed"])
def test_a_member_whose_work_raises_leaves_and_says_so(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture, where: str, error: BaseException
) -> None:
    """The share ends, the member leaves immediately, and the log has the reason."""
    work = Diary()

    strategy = Alone()

    async def broken(*_: object, **__: bool) -> None:
        await asyncio.sleep(1)
        raise error

    async def story() -> None:
        setattr(work, where, broken)
        strategy.fails = where == "on_failed"
        member = a_member(work, strategy)
        await member.start()
        await asyncio.sleep(3)
        if where == "on_revoked":
            coordinator.beat = lambda: REBALANCE
        await asyncio.sleep(10)
        assert member.share is None
        assert len(coordinator.times("LeaveGroup")) == 1
        with pytest.raises(OSError if isinstance(error, OSError) else RuntimeError):
            await member.wait()
        await member.stop()

    with caplog.at_level(logging.ERROR):
        play(story())
    assert len(coordinator.times("LeaveGroup")) == 1
    assert (where != "on_assigned") or work.told[-1][1] == "revoked"
    assert [
        record.getMessage()
        for record in caplog.records
        if "stops after an error:" in record.getMessage()
    ]


def test_an_error_just_before_a_round_is_not_forgotten(coordinator: Coordinator) -> None:
    """An error of the work during a heartbeat ends the member."""
    work = Diary()

    async def broken(share: Share) -> None:
        await asyncio.sleep(BEAT_S)
        coordinator.beat = lambda: REBALANCE
        raise OSError("no room")

    async def story() -> None:
        work.on_assigned = broken  # type: ignore[method-assign]
        async with a_member(work) as member:
            with pytest.raises(OSError, match="no room"):
                await asyncio.wait_for(member.wait(), 100)

    play(story())
    assert [what for _, what in work.told] == ["revoked"]


def test_who_waits_for_another_round_stays_in_the_group(coordinator: Coordinator) -> None:
    """After failed rounds the pause exceeds the session timeout; heartbeats continue meanwhile."""
    work, strategy = Diary(), Alone()

    async def story() -> None:
        strategy.fails = True
        async with a_member(work, strategy):
            await asyncio.sleep(40 * SESSION_S)

    play(story())
    beats = sorted(coordinator.times("Heartbeat") + coordinator.times("JoinGroup"))
    assert max(b - a for a, b in itertools.pairwise(beats)) <= BEAT_S + 1e-6
    assert len(coordinator.times("JoinGroup")) < 20


def test_after_each_failed_round_the_pause_is_twice_as_long(coordinator: Coordinator) -> None:
    """The pause grows from 0.1 s to 30 s; the work is notified of a failure before the pause."""
    work, strategy = Diary(), Alone()

    async def story() -> None:
        strategy.fails = True
        async with a_member(work, strategy):
            await asyncio.sleep(150)

    play(story())
    joins = coordinator.times("JoinGroup")
    pauses = [b - a for a, b in itertools.pairwise(joins)]
    expected = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]
    assert pauses == pytest.approx(expected[: len(pauses)])
    assert len(pauses) >= 10
    assert [at for at, what in work.told if what == "failed"] == joins


def test_a_share_reaches_the_work_as_its_strategy_gave_it(coordinator: Coordinator) -> None:
    """The byte that marks success or failure is removed."""
    work = Diary()

    async def story() -> None:
        async with a_member(work) as member:
            await asyncio.sleep(1)
            assert member.share is not None
            assert member.share.state == b"all"

    play(story())
    assert work.states == [b"all"]


def test_a_round_that_succeeds_ends_the_growth_of_the_pause(coordinator: Coordinator) -> None:
    """The pause after the next failure has its first length again."""
    work, strategy = Diary(), Alone()
    again = 0.0

    async def story() -> None:
        nonlocal again
        strategy.fails = True
        async with a_member(work, strategy) as member:
            await asyncio.sleep(20)
            strategy.fails = False
            await asyncio.sleep(60)
            assert member.share is not None
            strategy.fails, again = True, asyncio.get_running_loop().time()
            member.rejoin()
            await asyncio.sleep(1)

    play(story())
    since = [at for at in coordinator.times("JoinGroup") if at >= again]
    assert [b - a for a, b in itertools.pairwise(since)][:2] == pytest.approx([0.1, 0.2])


def test_a_group_that_may_not_be_looked_for_ends_the_member(coordinator: Coordinator) -> None:
    """A cluster with ACLs refuses the lookup of the coordinator; a retry cannot help."""

    async def story() -> None:
        coordinator.unfindable = GroupAuthorizationFailedError()
        async with a_member(Diary()) as member:
            with pytest.raises(GroupRefused, match="error 30"):
                await asyncio.wait_for(member.wait(), 100)

    play(story())


def test_an_answer_that_explains_nothing_is_said_and_asked_again_ever_later(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a too large assignment would cause ten rounds a second without a log line."""

    async def story() -> None:
        coordinator.sync_error = TOO_LARGE
        async with a_member(Diary()):
            await asyncio.sleep(100)

    with caplog.at_level(logging.WARNING):
        play(story())
    assert 3 < len(coordinator.times("JoinGroup")) < 20
    assert any("error 10" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(("error", "is_lost"), [(16, True), (15, True), (REBALANCE, False)])
def test_a_round_that_another_broker_coordinates_looks_for_that_broker(
    coordinator: Coordinator, error: int, is_lost: bool
) -> None:
    """The old coordinator would repeat its answer for ever."""

    async def story() -> None:
        coordinator.sync_error = error
        async with a_member(Diary()):
            await asyncio.sleep(1)

    play(story())
    assert bool(coordinator.lost_times) == is_lost


def test_a_member_that_never_began_can_be_stopped(coordinator: Coordinator) -> None:
    """The member has no share to end."""

    async def story() -> None:
        member = a_member(Diary())
        await member.stop()
        await member.wait()

    play(story())


@pytest.mark.parametrize("event", ["a heartbeat's answer", "a request for a round"])
def test_a_stop_at_the_instant_of_an_event_ends_the_member(
    coordinator: Coordinator, event: str
) -> None:
    """Python 3.11's asyncio.wait_for drops a cancellation that meets its result."""
    work = Diary()

    async def story() -> None:
        answered = asyncio.get_running_loop().create_future()
        if event == "a heartbeat's answer":
            coordinator.heartbeat_waits_for = answered
        member = a_member(work)
        await member.start()
        await asyncio.sleep(BEAT_S * 0.5)
        if event == "a request for a round":
            member.rejoin()
        else:
            await asyncio.sleep(BEAT_S)
            answered.set_result(None)
        async with asyncio.timeout(SESSION_S):
            await member.stop()

    play(story())
    assert [what for _, what in work.told] == ["assigned", "revoked"]
    assert len(coordinator.times("LeaveGroup")) == 1


def test_a_callback_ends_after_the_heartbeats_beside_it(coordinator: Coordinator) -> None:
    """No heartbeat of the old generation is in flight when the next join is sent."""
    ended: list[str] = []

    async def beats(share: Share) -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            await asyncio.sleep(0)
            ended.append("heartbeats")

    async def story() -> None:
        member: Any = a_member(Diary())
        member._beat_on = beats
        lost = await member._while_beating(None, asyncio.sleep(1))
        assert (lost, ended) == (False, ["heartbeats"])

    play(story())
