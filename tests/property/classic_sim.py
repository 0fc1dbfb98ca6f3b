"""A seeded simulator of one classic group: clients that follow the protocol, a world that does not.

Requests are lost, repeated and late; members crash, bounce and lie about generations; saves fail; the broker
restarts from its last record. After each step the promises B1-B8 of the broker are checked, at the end B10.

    python -m tests.property.classic_sim --seeds 100000        # or: make sim-classic SEEDS=100000
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.classic import ClassicGroup, GroupLimits, State
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    Event,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Protocol,
    Saved,
    SyncGroup,
    Tick,
)

SESSION_MS, REBALANCE_MS = 6_000, 12_000
MAX_CLIENTS = 5
GONE = {"member_left", "member_expired", "member_missed_join", "member_missed_sync", "member_turned_away"}


class Violation(AssertionError):
    """A promise was broken; the message says which."""


@dataclass
class Client:
    """A consumer that follows the protocol. ``waiting`` is the token of its request in flight."""

    name: str
    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    listed: tuple[str, ...] = ()
    waiting: int | None = None
    next: str = "join"
    metadata: bytes = b""
    alive: bool = True


@dataclass
class World:
    """One run. ``make`` builds the group under test, so that planted bugs can be put in its place."""

    seed: int
    make: type[ClassicGroup] = ClassicGroup
    now: int = 1_000
    clients: list[Client] = field(default_factory=list)
    asked: dict[int, tuple[Client | None, Event]] = field(default_factory=dict)
    answered: set[int] = field(default_factory=set)
    record: fx.GroupRecord | None = None
    given: dict[int, dict[str, bytes]] = field(default_factory=dict)
    highest: int = 0
    began: int = 0
    tokens: int = 0
    ids: int = 0
    faults: bool = True
    stables: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        delay = self.random.choice([0, 0, 500, 3_000])
        self.limits = GroupLimits(initial_rebalance_delay_ms=delay, max_size=self.random.choice([3, 100]))
        self.group = self.make("g", self.limits, self.now)

    # -- feeding the machine -----------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        """One event, and what must hold after it."""
        before = self.digest()
        replies = self.apply(event)
        self.check_fencing(event, before, replies)
        self.check_state()

    def apply(self, event: Event) -> list[fx.Reply]:
        """Carry out the effects of one event; return the answers."""
        replies: list[fx.Reply] = []
        holding_back = self.holding_back()
        if isinstance(event, JoinGroup):
            holding_back.discard(event.member_id)
        for effect in self.group.step(event, self.now):
            match effect:
                case fx.SaveGroup(record, save_id):
                    failed = save_id is not None and self.faults and self.random.random() < 0.05
                    if not failed:
                        self.saved(record)
                    if save_id is not None:
                        code = Code.NOT_COORDINATOR if failed else Code.NONE
                        replies += self.apply(Saved(save_id, code))
                case fx.Happened("static_member_replaced", _, old_id):
                    holding_back.discard(old_id)
                case fx.Happened("generation_began"):
                    if self.group.generation <= self.began:
                        raise Violation(f"B1: generation {self.group.generation} began twice")
                    self.began = self.group.generation
                case fx.Happened(what, member_id, _):
                    if what in GONE:
                        holding_back.discard(member_id)
                case fx.DropGroup():
                    raise Violation("nobody deleted the group")
                case _:
                    replies.append(effect)
                    self.deliver(effect, holding_back)
        return replies

    def holding_back(self) -> set[str]:
        """Members of the current generation that have neither rejoined nor gone: nobody may move on (B2)."""
        deadline = self.group._join_deadline_ms
        if self.group.state is not State.PREPARING or (deadline is not None and deadline <= self.now):
            return set()
        return {m.member_id for m in self.group.roster if not m.join_tokens}

    def saved(self, record: fx.GroupRecord) -> None:
        """A record is on disk."""
        self.record = record
        again = self.make.restore(record, self.limits, self.now)
        if record.settled and again.record() != record:
            raise Violation(f"B8: a record does not restore to itself: {record}")

    def deliver(self, reply: fx.Reply, holding_back: set[str]) -> None:
        """One answer reaches its client, or is lost."""
        if reply.token not in self.asked:
            raise Violation(f"an answer to nobody: {reply}")
        if reply.token in self.answered:
            raise Violation(f"answered twice: {reply}")
        self.answered.add(reply.token)
        client, event = self.asked[reply.token]
        if isinstance(reply, fx.JoinReply) and reply.error is Code.NONE:
            fresh = reply.generation > self.highest
            if fresh and holding_back:
                raise Violation(
                    f"B2: generation {reply.generation} began while {holding_back} may still work"
                )
            self.highest = max(self.highest, reply.generation)
        if client is None or client.waiting != reply.token or not client.alive:
            return
        client.waiting = None
        if self.faults and self.random.random() < 0.05:
            return  # the answer is lost: the client asks again
        self.react(client, reply, event)

    def react(self, client: Client, reply: fx.Reply, event: Event) -> None:
        """What a consumer does with an answer."""
        error = reply.error
        if isinstance(reply, fx.JoinReply) and error is Code.MEMBER_ID_REQUIRED:
            client.member_id = reply.member_id
        elif error in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID, Code.GROUP_MAX_SIZE_REACHED):
            client.member_id, client.generation, client.next = "", -1, "join"
            client.alive = error is Code.UNKNOWN_MEMBER_ID
        elif error is not Code.NONE:
            client.next = "join"
        elif isinstance(reply, fx.JoinReply):
            client.member_id, client.generation = reply.member_id, reply.generation
            client.leads = reply.leader == reply.member_id and not reply.skip_assignment
            client.listed = tuple(m.member_id for m in reply.members)
            client.next = "sync"
        elif isinstance(reply, fx.SyncReply):
            self.check_assignment(client, reply)
            client.next = "work"

    # -- promises ----------------------------------------------------------------------------------

    def digest(self) -> tuple[Any, ...]:
        """All of the group but its timers."""
        group = self.group
        return (
            group.state,
            group.generation,
            group.protocol_name,
            group.roster.leader,
            tuple(
                (m.member_id, m.assignment, m.protocols, m.join_tokens, m.sync_tokens) for m in group.roster
            ),
        )

    def check_fencing(self, event: Event, before: tuple[Any, ...], replies: list[fx.Reply]) -> None:
        """B3: stale requests get the exact error and change nothing."""
        own = next((r for r in replies if r.token == getattr(event, "token", None)), None)
        if isinstance(event, SyncGroup | Heartbeat | CommitOffsets):
            expected = self.fence(event, before)
            if expected is not None and (own is None or own.error is not expected):
                raise Violation(f"B3: {event} got {own}, expected {expected.name}")
            if expected is not None and self.digest() != before:
                raise Violation(f"B3: the fenced {event} changed the group")
        if isinstance(event, Heartbeat | CommitOffsets) and self.digest() != before:
            raise Violation(f"{event} changed the group")

    def fence(self, event: SyncGroup | Heartbeat | CommitOffsets, before: tuple[Any, ...]) -> Code | None:
        """The exact error a stale request must get, told from the state before it."""
        state, generation, _, _, members = before
        known = {m[0] for m in members}
        if isinstance(event, CommitOffsets) and state is State.EMPTY and event.generation < 0:
            return None
        if event.instance_id is not None:
            current = self.group.roster.instances.get(event.instance_id)
            if current is None:
                return Code.UNKNOWN_MEMBER_ID
            if current != event.member_id:
                return Code.FENCED_INSTANCE_ID
        if event.member_id not in known:
            return Code.UNKNOWN_MEMBER_ID
        return None if event.generation == generation else Code.ILLEGAL_GENERATION

    def check_state(self) -> None:
        """B1, B7, and that the state fits the members."""
        group = self.group
        if group.generation < self.highest:
            raise Violation(f"B1: generation {group.generation} after {self.highest}")
        self.highest = max(self.highest, group.generation)
        members = list(group.roster)
        instances = [m.instance_id for m in members if m.instance_id is not None]
        if len(instances) != len(set(instances)):
            raise Violation(f"B7: two members for one instance id: {instances}")
        if {m.instance_id: m.member_id for m in members if m.instance_id} != group.roster.instances:
            raise Violation("B7: the book of instance ids is wrong")
        if (group.state is State.EMPTY) != (not members) and group.state is not State.PREPARING:
            raise Violation(f"{group.state} with {len(members)} members")
        if group.state is State.STABLE:
            self.check_stable()

    def check_stable(self) -> None:
        """B4 and B6."""
        self.stables += 1
        if self.record is None or not self.record.settled or self.record.generation != self.group.generation:
            raise Violation(
                f"B4: generation {self.group.generation} is Stable and not on disk: {self.record}"
            )
        given = self.given.get(self.group.generation, {})
        for member in self.group.roster:
            if member.assignment and member.assignment not in given.values():
                raise Violation(
                    f"B6: {member.assignment!r} is not from the leader of {self.group.generation}"
                )
            if member.sync_tokens:
                raise Violation("a sync is parked in a stable group")

    def check_assignment(self, client: Client, reply: fx.SyncReply) -> None:
        """B6, as a client sees it."""
        given = self.given.get(client.generation, {})
        if reply.assignment != given.get(client.member_id, reply.assignment):
            raise Violation(f"B6: {client.name} got {reply.assignment!r}, the leader gave {given}")
        if reply.assignment and reply.assignment not in given.values():
            raise Violation(f"B6: {reply.assignment!r} was never given in generation {client.generation}")

    # -- what may happen ---------------------------------------------------------------------------

    def send(self, client: Client | None, build: Callable[[int], Event]) -> Event:
        """One request, perhaps lost on the way, perhaps repeated."""
        self.tokens += 1
        event = build(self.tokens)
        self.asked[self.tokens] = (client, event)
        if client is not None:
            client.waiting = self.tokens
        if self.faults and client is not None and self.random.random() < 0.05:
            client.waiting = None
            self.answered.add(self.tokens)
            return event  # lost on the way
        self.feed(event)
        if self.faults and self.random.random() < 0.05:
            self.repeat(event)
        return event

    def repeat(self, event: Event) -> None:
        """The same request once more, under a token of its own (B5)."""
        if isinstance(event, LeaveGroup) or (isinstance(event, JoinGroup) and not event.member_id):
            return  # a second newcomer is a second member until it expires
        self.tokens += 1
        self.asked[self.tokens] = (None, event)
        before = self.digest()
        self.feed(replace(event, token=self.tokens))  # type: ignore[type-var]
        settled = before[0] is State.STABLE and isinstance(event, SyncGroup | Heartbeat | CommitOffsets)
        if settled and self.digest() != before:
            raise Violation(f"B5: a duplicate of {event} changed the group")

    def advance_client(self, client: Client) -> None:
        """What this client would do next."""
        if not client.alive or client.waiting is not None:
            return
        if client.next == "join":
            self.join(client)
        elif client.next == "sync":
            self.sync(client)
        elif self.random.random() < 0.5:
            self.send(client, lambda t: Heartbeat(t, client.member_id, client.generation, client.instance_id))
        else:
            self.send(
                client, lambda t: CommitOffsets(t, client.member_id, client.generation, client.instance_id)
            )

    def join(self, client: Client) -> None:
        """A JoinGroup of this client."""
        self.ids += 1
        new_id = f"{client.name}-{self.ids}"
        if self.faults and self.random.random() < 0.2:
            client.metadata = b"%d" % self.ids
        names = ["range", "sticky"] if self.random.random() < 0.5 else ["range"]
        protocols = tuple(Protocol(name, client.metadata) for name in names)
        self.send(
            client,
            lambda t: JoinGroup(
                t,
                client.member_id,
                new_id,
                protocols,
                "consumer",
                SESSION_MS,
                REBALANCE_MS,
                client.instance_id,
                needs_known_id=client.instance_id is None and self.seed % 3 > 0,
                can_skip_assignment=self.seed % 2 == 0,
            ),
        )

    def sync(self, client: Client) -> None:
        """A SyncGroup of this client, with assignments if it leads."""
        given: dict[str, bytes] = {}
        if client.leads:
            given = {m: f"{client.generation}:{m}:{self.tokens}".encode() for m in client.listed}
            if (
                self.group.state is State.COMPLETING
                and self.group.generation == client.generation
                and self.group.roster.leader == client.member_id
            ):
                self.given[client.generation] = given
        self.send(
            client,
            lambda t: SyncGroup(
                t,
                client.member_id,
                client.generation,
                client.instance_id,
                "consumer",
                None,
                given,
            ),
        )

    def fault(self) -> None:
        """One thing that goes wrong."""
        kind = self.random.choice(["lie", "lie", "leave", "crash", "bounce", "restart", "zombie", "jump"])
        client = self.random.choice(self.clients) if self.clients else None
        if kind == "jump":
            self.pass_time(self.random.choice([SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
        elif kind == "restart":
            self.restart()
        elif client is None:
            return
        elif kind == "crash":
            self.clients.remove(client)
        elif kind == "bounce":
            client.member_id, client.generation, client.waiting, client.next = "", -1, None, "join"
        elif kind == "leave":
            self.clients.remove(client)
            self.send(None, lambda t: LeaveGroup(t, (Leaver(client.member_id, client.instance_id),)))
        elif kind == "zombie" and client.instance_id is not None:
            self.clients.append(
                replace(client, name=client.name + "z", waiting=None, member_id="", next="join")
            )
        else:
            self.lie(client)

    def lie(self, client: Client) -> None:
        """A request with a generation that is wrong, missing, old or from the future."""
        generation = self.random.choice(
            [-2, -1, 0, self.group.generation, self.group.generation - 1, 2**31 - 1]
        )
        member_id = self.random.choice([client.member_id, "", "stranger"])
        instance = self.random.choice([None, client.instance_id, "nobody"])
        if self.random.random() < 0.3 and generation != self.group.generation:
            self.send(
                None, lambda t: SyncGroup(t, member_id, generation, instance, assignments={"x": b"lie"})
            )
        elif self.random.random() < 0.5:
            self.send(None, lambda t: CommitOffsets(t, member_id, generation, instance))
        else:
            self.send(None, lambda t: Heartbeat(t, member_id, generation, instance))

    def restart(self) -> None:
        """The broker dies; connections break; it comes back with its last record."""
        self.answered |= set(self.asked)
        for client in self.clients:
            client.waiting = None
            client.next = "join" if client.next == "sync" else client.next
        if self.record is None:
            self.group = self.make("g", self.limits, self.now)
        else:
            self.group = self.make.restore(self.record, self.limits, self.now)
            if self.group.generation < self.record.generation:
                raise Violation("B8: the restored generation is older than the record")
        self.check_state()

    def pass_time(self, ms: int) -> None:
        """Let time pass, with every timer that is due."""
        end = self.now + ms
        for _ in range(10_000):
            due = self.group.next_deadline_ms
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            self.feed(Tick())
        else:
            raise Violation("timers ring without end")
        self.now = end

    # -- a run -------------------------------------------------------------------------------------

    def step(self) -> None:
        """One round of everybody."""
        if len(self.clients) < MAX_CLIENTS and self.random.random() < 0.1:
            static = self.random.random() < 0.4
            used = {c.instance_id for c in self.clients}
            free = [f"i{n}" for n in range(MAX_CLIENTS) if f"i{n}" not in used]
            self.ids += 1
            self.clients.append(Client(f"c{self.ids}", free[0] if static else None))
        if self.random.random() < 0.08:
            self.fault()
        for client in self.random.sample(self.clients, len(self.clients)):
            if self.random.random() < 0.7:
                self.advance_client(client)
        self.pass_time(self.random.choice([0, 1, 100, 1_000]))

    def settle(self) -> None:
        """B10: when faults stop, the group is stable within the rebalance and session timeouts."""
        self.faults = False
        instances: set[str] = set()
        for client in self.clients:
            if client.instance_id in instances:
                client.alive = False
            instances |= {client.instance_id} if client.instance_id else set()
        # A request may be parked, and a member may be refused for lack of room; both end with time.
        limit = self.now + 2 * (SESSION_MS + REBALANCE_MS) + 300_000
        while self.now < limit:
            for client in self.clients:
                if client.waiting is not None and client.waiting in self.answered:
                    client.waiting = None
                self.advance_client(client)
            self.pass_time(1_000)
            living = [c for c in self.clients if c.alive]
            if not living or all(c.next == "work" and c.waiting is None for c in living):
                living_ids = {c.member_id for c in living}
                if (
                    self.group.state in (State.STABLE, State.EMPTY)
                    and set(self.group.roster.members) <= living_ids
                ):
                    return
        if any(c.alive for c in self.clients):
            raise Violation(f"B10: {self.group.state} long after the faults stopped: {self.group.roster}")


def run(seed: int, steps: int = 60, make: type[ClassicGroup] = ClassicGroup) -> World:
    """One run; raises Violation with the seed in its message."""
    world = World(seed, make)
    try:
        for _ in range(steps):
            world.step()
        world.settle()
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation}") from violation
    return world


def main() -> None:
    """Run many seeds; print the first violation and its seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    began, stables = time.monotonic(), 0
    for seed in range(options.first, options.first + options.seeds):
        try:
            stables += run(seed, options.steps).stables
        except Violation as violation:
            sys.exit(f"{violation}\nrerun: python -m tests.property.classic_sim --first {seed} --seeds 1")
    took = time.monotonic() - began
    print(
        f"{options.seeds} seeds from {options.first}, {options.steps} steps each: 0 violations, "
        f"{stables} stable states checked, {took:.1f} s"
    )


if __name__ == "__main__":
    main()
