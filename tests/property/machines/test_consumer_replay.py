"""The broker crashes at every write of a group's life, in both protocols and in conversions.

Each write crashes twice: before the write, and after the write but before its answer. No partition
is held twice, no epoch falls, and no member rejoins without need in Kafka (B1, B2, B4, B8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from faust_assigner.broker.storage.store import MemoryStore, Range
from faust_assigner.coordinator.catalogue import Catalogue, Topic
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Protocol,
    Request,
    SyncGroup,
    Token,
)
from faust_assigner.coordinator.settings import ConsumerLimits
from tests.support.broker_groups import group_service

TOPIC_ID = b"0123456789abcdef"
Owned = frozenset[int]
ROUNDS = 12  # heartbeats of all clients after each act
OUT = (
    Code.UNKNOWN_MEMBER_ID,
    Code.FENCED_MEMBER_EPOCH,
    Code.GROUP_ID_NOT_FOUND,
    Code.ILLEGAL_GENERATION,
)


class Killed(Exception):
    """The broker process has crashed."""


class MortalStore(MemoryStore):
    """A store that counts its writes and crashes at the given write."""

    def __init__(self, at: int | None, *, after: bool) -> None:
        super().__init__()
        self.at, self.after, self.writes = at, after, 0

    def write(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        ranges: Iterable[Range] = (),
    ) -> None:
        """Write all or nothing; the answer is lost in both cases."""
        self.writes += 1
        dies = self.writes == self.at
        if not dies or self.after:
            super().write(puts, deletes, ranges=ranges)
        if dies:
            raise Killed


class Client:
    """A member of either protocol: its state and its next request."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.epoch = 0
        self.owned: Owned = frozenset()
        self.put_out = 0
        self.rejoins = True
        self.is_blocked = False  # an unanswered join of its own still holds its instance id

    def own(self, owned: Owned) -> None:
        """Take the partitions; no other client may hold them."""
        self.owned = owned
        for other in self.world.clients.values():
            twice = owned & other.owned if other is not self else frozenset()
            assert not twice, f"{self.name} and {other.name} both hold {sorted(twice)}"

    def advance(self, epoch: int) -> None:
        """Take the epoch from the broker's answer."""
        assert epoch >= self.epoch, f"{self.name} was at {self.epoch} and is told {epoch}"
        self.epoch = epoch

    def start_over(self) -> None:
        """Give up all partitions after a fence."""
        self.put_out += 1
        self.epoch, self.owned, self.rejoins = 0, frozenset(), True

    def beat(self) -> None:
        """Send the next request."""
        raise NotImplementedError

    def leave(self) -> None:
        """Send the last request."""
        raise NotImplementedError


class New(Client):
    """A client of the consumer protocol."""

    def __init__(self, world: World, name: str, instance: str | None = None) -> None:
        super().__init__(world, name)
        self.instance = instance
        self.tells_all = True  # clients send all fields at first, and after a lost answer

    def beat(self) -> None:
        """Send a heartbeat with the owned partitions."""
        owned = {TOPIC_ID: tuple(sorted(self.owned))} if self.owned else {}
        reply = self.world.ask(
            lambda token: ConsumerGroupHeartbeat(
                token,
                self.name,
                self.epoch,
                self.instance,
                rebalance_timeout_ms=60_000 if self.tells_all else -1,
                subscribed_topic_names=("a",) if self.tells_all else None,
                owned=owned,
            )
        )
        self.tells_all = reply is None or reply.error is not Code.NONE
        if reply is None:
            return
        self.is_blocked = reply.error is Code.UNRELEASED_INSTANCE_ID
        if reply.error in OUT:
            self.start_over()
        elif reply.error is Code.NONE:
            self.advance(reply.member_epoch)
            if reply.assignment is not None:
                self.own(frozenset(reply.assignment.get(TOPIC_ID, ())))

    def leave(self) -> None:
        """Send epoch -1, or -2 for a static member; repeat after a lost answer."""
        epoch = -1 if self.instance is None else -2
        self.owned = frozenset()
        while (
            self.world.ask(lambda t: ConsumerGroupHeartbeat(t, self.name, epoch, self.instance))
            is None
        ):
            pass


class Old(Client):
    """An eager client of the classic protocol: it revokes all partitions before a join."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.member_id = ""
        self.rejoins = True  # until the client has its assignment of the generation
        self.waiting: list[Any] | None = None
        self.then: Callable[[Any], None] = lambda reply: None

    def beat(self) -> None:
        """Take a parked answer, or send the next join, sync or heartbeat."""
        if self.waiting is not None:
            if self.waiting:
                self.waiting, (reply,) = None, self.waiting
                self.then(reply)
            return
        if self.rejoins:
            self._park(self._join, self._joined)
        else:
            reply = self.world.ask(lambda token: Heartbeat(token, self.member_id, self.epoch))
            if reply is not None and reply.error is Code.REBALANCE_IN_PROGRESS:
                self.owned, self.rejoins = frozenset(), True
                self._park(self._join, self._joined)
            elif reply is not None and reply.error in OUT:
                self.start_over()

    def forget_parked(self) -> None:
        """Forget the parked requests of the crashed broker."""
        self.waiting = None

    def _park(self, event: Callable[[Token], Request], then: Callable[[Any], None]) -> None:
        self.waiting, self.then = [], then
        self.world.send(event, self.waiting.append)
        if self.waiting:
            self.beat()

    def _join(self, token: Token) -> JoinGroup:
        metadata = ConsumerProtocolMemberMetadata(0, ["a"], b"").encode()
        return JoinGroup(
            token, self.member_id, self.name, (Protocol("range", metadata),), needs_known_id=True
        )

    def _joined(self, reply: Any) -> None:
        if reply.error is Code.NONE:
            self.member_id = reply.member_id
            self.advance(reply.generation)
            self.leads = (
                [m.member_id for m in reply.members] if reply.leader == reply.member_id else []
            )
            self._park(self._sync, self._take_share)
        elif reply.error is Code.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            self._park(self._join, self._joined)
        elif reply.error in OUT:
            self.member_id = ""
            self.start_over()

    def _sync(self, token: Token) -> SyncGroup:
        shares = {}
        for turn, member_id in enumerate(sorted(self.leads)):
            numbers = list(range(self.world.partitions))[turn :: len(self.leads)]
            shares[member_id] = ConsumerProtocolMemberAssignment(0, [("a", numbers)], b"").encode()
        return SyncGroup(token, self.member_id, self.epoch, assignments=shares)

    def _take_share(self, reply: Any) -> None:
        if reply.error is Code.NONE:
            self.rejoins = False
            share = (
                ConsumerProtocolMemberAssignment.decode(reply.assignment)
                if reply.assignment
                else None
            )
            numbers = (
                [n for _, listed in share.assignment for n in listed] if share is not None else []
            )
            self.own(frozenset(numbers))
        elif reply.error is Code.REBALANCE_IN_PROGRESS:
            self._park(self._join, self._joined)
        elif reply.error in OUT:
            self.member_id = ""
            self.start_over()

    def leave(self) -> None:
        """Send a LeaveGroup."""
        self.owned, self.waiting = frozenset(), None
        while self.world.ask(lambda token: LeaveGroup(token, (Leaver(self.member_id),))) is None:
            pass


class World:
    """A group on a broker with at most one crash, and its clients."""

    def __init__(self, kill_at: int | None = None, *, after: bool = False) -> None:
        self.store = MortalStore(kill_at, after=after)
        self.now = 1_000
        self.partitions = 4
        self.clients: dict[str, Client] = {}
        self.group_epoch = 0
        self.deaths = 0
        self._boot()

    def _boot(self) -> None:
        self.topics = Catalogue.of([Topic("a", TOPIC_ID, self.partitions)])
        self.service = group_service(
            self.store,
            clock=lambda: self.now,
            consumer_limits=lambda group: ConsumerLimits(assignment_interval_ms=0),
            catalogue=lambda: self.topics,
        )
        self._look()

    def _look(self) -> None:
        group = self.service.get("g")
        if group is not None and group.state_name != "Dead":
            epoch = group.describe().epoch
            assert epoch >= self.group_epoch, (
                f"the group was at {self.group_epoch} and is at {epoch}"
            )
            self.group_epoch = epoch

    def _die(self) -> None:
        self.deaths += 1
        for client in self.clients.values():
            if isinstance(client, Old):
                client.forget_parked()
        self._boot()

    def send(self, event: Callable[[Token], Request], answer: Callable[[Any], None]) -> None:
        """Send a request that may be parked; restart the broker after a crash."""
        self.now += 1
        try:
            self.service.ask("g", event, answer)
            self.service.tick("g")
            self._look()
        except Killed:
            self._die()

    def ask(self, event: Callable[[Token], Request]) -> Any:
        """Send a request answered at once; None for a lost answer."""
        answers: list[Any] = []
        deaths = self.deaths
        self.send(event, answers.append)
        return answers[0] if answers and deaths == self.deaths else None

    # -- acts ------------------------------------------------------------------------------------

    def join(self, client: Client) -> None:
        """Add a member."""
        self.clients[client.name] = client

    def leave(self, name: str) -> None:
        """Remove a member."""
        self.clients.pop(name).leave()

    def grow(self) -> None:
        """Add two partitions to the topic."""
        self.partitions += 2
        self.topics = Catalogue.of([Topic("a", TOPIC_ID, self.partitions)])
        try:
            for _ in self.service.catalogue_changed():
                pass
        except Killed:
            self._die()

    def settle(self) -> None:
        """Let all clients work until each partition has an owner."""
        for _ in range(ROUNDS):
            self._everybody()
        while any(client.is_blocked for client in self.clients.values()):
            self.now += 1_000  # in Kafka, too, only the session timeout unblocks the instance id
            self._everybody()
        held = sorted(number for client in self.clients.values() for number in client.owned)
        assert held == (list(range(self.partitions)) if self.clients else []), self.told()

    def _everybody(self) -> None:
        for client in list(self.clients.values()):
            client.beat()

    def told(self) -> str:
        """Return the state of the group and its clients."""
        group = self.service.get("g")
        state = (group.group_type, group.state_name) if group is not None else None
        return f"{state} " + ", ".join(
            f"{c.name}@{c.epoch}:{sorted(c.owned)}" for c in self.clients.values()
        )


def life(world: World) -> list[str]:
    """Play joins, leaves, a bounce, growth and a migration and back; return the group's types."""
    types = []
    acts: list[Callable[[], None]] = [
        lambda: world.join(New(world, "one")),
        lambda: world.join(New(world, "two")),
        lambda: world.join(New(world, "still", "i")),
        lambda: world.leave("still"),
        lambda: world.join(New(world, "still-2", "i")),
        lambda: world.leave("one"),
        world.grow,
        lambda: world.join(Old(world, "old")),
        lambda: world.join(Old(world, "older")),
        lambda: world.leave("two"),
        lambda: _leave_for_good(world, "still-2"),
        lambda: world.join(New(world, "next")),
        lambda: world.leave("old"),
        lambda: world.leave("older"),
    ]
    for number, act in enumerate(acts):
        act()
        if number != 3:  # while the static member is away, its partitions wait
            world.settle()
        group = world.service.get("g")
        types.append(group.group_type if group is not None else "none")
    return types


def _leave_for_good(world: World, name: str) -> None:
    client = world.clients[name]
    assert isinstance(client, New)
    world.clients.pop(name)
    client.owned = frozenset()
    while world.ask(lambda t: ConsumerGroupHeartbeat(t, name, -1, client.instance)) is None:
        pass


def test_the_life_itself_meets_everything() -> None:
    """Without a crash the group changes its type twice, and no member is fenced."""
    world = World()
    types = life(world)
    assert types == ["consumer"] * 10 + ["classic"] + ["consumer"] * 3
    assert sum(client.put_out for client in world.clients.values()) == 0
    assert world.store.writes == WRITES


WRITES = 48  # of a life without a crash


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "at", [pytest.param(at, marks=[pytest.mark.slow] * bool(at % 6)) for at in range(1, WRITES + 1)]
)
def test_a_death_at_any_write_is_survived(at: int, after: bool) -> None:
    """Epochs and owners are checked at every answer; members of both protocols continue."""
    world = World(at, after=after)
    life(world)
    assert world.deaths == 1
    assert sum(client.put_out for client in world.clients.values()) == 0
