"""A seeded world around a group: clients, lost, repeated and late requests, and faults."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from faust_assigner.coordinator.classic import State
from faust_assigner.coordinator.events import (
    CommitOffsets,
    DeleteGroup,
    Event,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    SyncGroup,
)
from tests.property.classic_sim import acts
from tests.property.classic_sim.acts import Act, Ask, Wait
from tests.property.classic_sim.clients import PATIENT_MS, SESSIONS_MS, Client
from tests.property.classic_sim.trial import Trial
from tests.property.lives import Violation

MAX_CLIENTS = 5
RETENTIONS_MS = (1_000, 5_000, 20_000)


class World:
    """A run; ``acts`` is the list of all acts so far."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        draw = self.random
        self.setting = acts.Setting(
            delay_ms=draw.choice([0, 0, 500, 3_000]),
            max_size=draw.choice([2, 3, 100]),
            max_pending=draw.choice([1, 100]),
            topics={},
        )
        self.trial = Trial(self.setting)
        self.acts: list[Act] = []
        self.clients: list[Client] = []
        self.asked: dict[int, Client] = {}
        self.tickets = 0
        self.names = 0
        self.faults = True

    # -- acts
    # ----------------------------------------------------------------------------------------

    def do(self, act: Act) -> None:
        """Carry out an act; its answers reach their clients or are lost."""
        self.acts.append(act)
        for ticket, reply in self.trial.do(act).items():
            client = self.asked.pop(ticket, None)
            if client is None or client.waiting != ticket or not client.alive:
                continue
            client.waiting = None
            if not (self.faults and self.random.random() < 0.05):
                client.react(reply)

    def ticket(self) -> int:
        """Return the number of a request."""
        self.tickets += 1
        return self.tickets

    def send(self, client: Client | None, event: Any) -> None:
        """Send a request; the request may be lost or repeated."""
        if client is not None:
            if self.faults and self.random.random() < 0.05:
                return
            client.waiting = event.token
            self.asked[event.token] = client
        self.do(Ask(event))
        if self.faults and self.random.random() < 0.05:
            copies = self.random.choice([1, 1, 1, 10])
            for _ in range(copies):
                again = replace(event, token=self.ticket())
                if isinstance(again, JoinGroup):
                    again = replace(again, new_member_id=f"again-{again.token}")
                self.do(Ask(again))

    def commit(self, event: CommitOffsets, *, group: str = "g") -> None:
        """Commit offsets, sometimes of an unknown partition or with too long metadata."""
        draw = self.random
        places = [(topic, p) for topic in ("a", "b") for p in (0, 1)] + [("nowhere", 0), ("a", 7)]
        weights = [9, 9, 9, 9, 1, 1]
        chosen = draw.choices(places, weights, k=draw.randint(1, 3))
        note = draw.choice(["", "", "note", "x" * 17])
        offsets = {place: draw.randrange(1_000) for place in chosen}
        retention = draw.choice([-1, -1, -1, 5_000])
        self.do(acts.Commit(event, offsets, note, retention, draw.choice([8, 9]), group))

    def advance(self, client: Client) -> None:
        """Send this client's next request."""
        if not client.alive or client.waiting is not None:
            return
        ticket = self.ticket()
        if client.next == "join":
            if self.faults and self.random.random() < 0.2:
                client.change()
            self.send(client, client.join(ticket))
        elif client.next == "sync":
            if self.faults and client.stubborn:
                self.send(client, client.heartbeat(ticket))
            else:
                self.send(client, client.sync(ticket))
        elif self.random.random() < 0.7:
            self.send(client, client.heartbeat(ticket))
        else:
            self.commit(client.commit(ticket))

    # -- faults
    # --------------------------------------------------------------------------------------

    def fault(self) -> None:
        """Cause a random fault."""
        kind = self.random.choice(FAULTS)
        client = self.random.choice(self.clients) if self.clients else None
        if kind in WITHOUT_CLIENT:
            WITHOUT_CLIENT[kind](self)
        elif client is not None:
            WITH_CLIENT[kind](self, client)

    def jump(self) -> None:
        """Let a long time pass without requests."""
        self.do(Wait(self.random.choice([3_000, 6_000, 12_000, 60_000])))

    def stall(self) -> None:
        """Stall the broker: timers fire late, after requests."""
        self.do(acts.Stall(self.random.choice([10, 3_000, 12_000])))

    def restart(self) -> None:
        """Restart the broker and break all connections."""
        self.asked.clear()
        for client in self.clients:
            client.waiting = None
            client.next = "join" if client.next == "sync" else client.next
        sizes = [self.setting.max_size] * 3 + [2]
        self.do(acts.Restart(self.random.choice(sizes)))
        if self.random.random() < 0.3:
            self.do(acts.DropTopic(self.random.choice(["a", "b"])))

    def disk(self) -> None:
        """Let the next write of group state fail."""
        self.do(acts.DiskFails())

    def offsets(self) -> None:
        """Delete offsets as an administrator."""
        topic = self.random.choice(["a", "b"])
        choices: list[Act] = [
            acts.DropTopic(topic),
            acts.DeleteOffsets(topic),
            acts.DeleteOffsets(topic),
        ]
        self.do(self.random.choice(choices))

    def delete(self) -> None:
        """Delete the group if permitted; a restart does not restore the group."""
        if self.trial.look().state is State.EMPTY:
            self.commit(CommitOffsets(self.ticket()))
        self.do(Ask(DeleteGroup(self.ticket())))
        if self.random.random() < 0.3:
            self.restart()

    def tool(self) -> None:
        """Commit offsets without membership: to this group or to a group without members."""
        event = CommitOffsets(self.ticket())
        self.commit(event, group=self.random.choice(["g", "tool"]))

    def bad_join(self) -> None:
        """Send a JoinGroup with an invalid field."""
        client = Client("bad", None, self.random, {})
        event = client.join(self.ticket())
        change: dict[str, Any] = self.random.choice(
            [{"session_timeout_ms": 5_999}, {"session_timeout_ms": 1_800_001}, {"protocols": ()},
             {"protocol_type": ""}, {"protocol_type": "connect"}, {"member_id": "stranger"},
             {"member_id": "stranger", "instance_id": "i0"}])  # fmt: skip
        seen = self.trial.look()
        if change.get("protocol_type") == "connect" and not seen.members:
            return  # the request would create a group of another type
        self.do(Ask(replace(event, **change)))

    def crash(self, client: Client) -> None:
        """Remove the client without a LeaveGroup."""
        self.clients.remove(client)

    def bounce(self, client: Client) -> None:
        """Restart a client, preferably a client with a due sync; the configuration may change."""
        if self.trial.look().state is State.STABLE:
            client = next(iter(self._owing()), client)
        if self.random.random() < 0.2:
            self.disk()
        client.lost()
        if self.random.random() < 0.3:
            client.change()

    def leave(self, client: Client) -> None:
        """Let a member leave by id or instance id, together with strangers."""
        if self.random.random() < 0.8:
            self.clients.remove(client)
        draw = self.random
        by_instance = client.instance_id is not None and draw.random() < 0.5
        leavers = [Leaver("" if by_instance else client.member_id, client.instance_id)]
        others = [Leaver("stranger"), Leaver("", "i9"), Leaver("stranger", "i0")]
        others += [Leaver(m) for m in sorted(self.trial.look().pending)]
        others += [Leaver(c.member_id, c.instance_id) for c in self.clients]
        if draw.random() < 0.5:
            leavers += draw.sample(others, draw.randint(1, min(3, len(others))))
        self.do(Ask(LeaveGroup(self.ticket(), tuple(leavers))))

    def give_back(self) -> None:
        """Leave with the pending member ids."""
        pending = sorted(self.trial.look().pending)
        self.do(Ask(LeaveGroup(self.ticket(), tuple(Leaver(m) for m in (*pending, "stranger")))))

    def last_word(self, client: Client) -> None:
        """Send a last request of any kind; the member's session starts at this request."""
        said = self.random.choice([client.join, client.join, client.sync, client.heartbeat, None])
        self.clients.remove(client)
        if said is None:
            self.commit(client.commit(self.ticket()))
        else:
            self.do(Ask(said(self.ticket())))

    def siege(self) -> None:
        """Send only heartbeats for a whole phase; a member with a due sync has bounced."""
        state, patience = self.trial.look().state, self.trial.patience()
        if state is State.STABLE and patience < PATIENT_MS:
            for client in self._owing()[:1]:
                client.lost()
                self.do(Ask(client.join(self.ticket())))
            self._hold(patience)
        elif state is State.PREPARING and patience == PATIENT_MS:
            self._hold(patience)
        if self.random.random() < 0.3:
            self.restart()

    def coup(self) -> None:
        """Let all members but the static leader rejoin; the leadership moves to another member."""
        seen = self.trial.look()
        others = [c for c in self.clients if c.alive and c.member_id in seen.members]
        others = [c for c in others if c.member_id != seen.leader]
        if (
            seen.state is not State.STABLE
            or not seen.leader
            or seen.members[seen.leader].instance_id is None
        ):
            return
        for client in others:
            client.waiting, client.next = None, "join"
            client.change()
            self.advance(client)
        self._hold(min(self.trial.patience(), PATIENT_MS // 5))
        for client in others:
            self.advance(client)
        if self.random.random() < 0.4:
            self.restart()
        for client in [c for c in self.clients if c.member_id == seen.leader][:1]:
            client.lost()  # the client bounces, and its due sync does not arrive
            self.do(Ask(client.join(self.ticket())))
            self._hold(min(self.trial.patience(), PATIENT_MS // 5))

    def exodus(self) -> None:
        """Remove the dynamic members while static members are away; only timeouts end the phase."""
        members = self.trial.look().members.values()
        leavers = tuple(Leaver(m.member_id) for m in members if m.instance_id is None)
        if not leavers or len(leavers) == len(members):
            return
        self.clients.clear()
        self.do(Ask(LeaveGroup(self.ticket(), leavers)))
        for _ in range(9):
            self.do(Wait(6_000))
        self.delete()

    def _owing(self) -> list[Client]:
        idle = [c for c in self.clients if c.next == "sync" and c.waiting is None]
        return [c for c in idle if c.instance_id is not None]

    def _hold(self, ms: int) -> None:
        for _ in range(ms // 5_000 + 1):
            seen = self.trial.look()
            for m in seen.members.values():
                self.do(Ask(Heartbeat(self.ticket(), m.member_id, seen.generation, m.instance_id)))
            self.do(Wait(5_000))

    def zombie(self, client: Client) -> None:
        """Start a second process with the same instance id."""
        if client.instance_id is not None:
            again = replace(client, name=client.name + "z")
            again.lost()
            self.clients.append(again)

    def lie(self, client: Client) -> None:
        """Send a request with a wrong, missing, old or future generation, member or instance."""
        seen, draw = self.trial.look(), self.random
        now = seen.generation
        generation = draw.choice([-2, -1, 0, now, now, now - 1, now + 1, 2**31 - 1])
        member_id = draw.choice(
            [client.member_id, client.member_id, "", "stranger", *sorted(seen.pending)]
        )
        instance = draw.choice([None, client.instance_id, "nobody", *sorted(seen.instances)])
        lies: list[Event] = [
            SyncGroup(
                self.ticket(),
                member_id,
                generation,
                instance,
                protocol_name=draw.choice([None, None, "range", "other"]),
                assignments={"x": b"lie"},
            ),
            Heartbeat(self.ticket(), member_id, generation, instance),
            CommitOffsets(self.ticket(), member_id, generation, instance),
        ]
        event = draw.choice(lies)
        if isinstance(event, CommitOffsets):
            self.commit(event)
        else:
            self.send(None, event)

    # -- a run ---------------------------------------------------------------------------------------

    def step(self) -> None:
        """Let all clients act in random order."""
        if len(self.clients) < MAX_CLIENTS and self.random.random() < 0.1:
            used = {c.instance_id for c in self.clients}
            free = [f"i{n}" for n in range(MAX_CLIENTS) if f"i{n}" not in used]
            self.names += 1
            instance = free[0] if self.random.random() < 0.4 else None
            topics: Any = self.setting.topics
            self.clients.append(Client(f"c{self.names}", instance, self.random, topics))
        if self.random.random() < 0.2:
            self.fault()
        for client in self.random.sample(self.clients, len(self.clients)):
            if self.random.random() < client.pace:
                self.advance(client)
        if self.random.random() < 0.1:
            self.do(acts.Sweep(self.random.choice(RETENTIONS_MS)))
        self.do(Wait(self.random.choice([0, 1, 100, 1_000])))

    def settle(self) -> None:
        """B10: when faults stop, the group is stable within the rebalance and session timeouts."""
        self.faults = False
        instances: set[str] = set()
        for client in self.clients:
            client.alive = client.alive and client.instance_id not in instances
            client.stubborn = False
            instances |= {client.instance_id} if client.instance_id else set()
        limit = self.trial.now + 2 * (PATIENT_MS + max(SESSIONS_MS))
        while self.trial.now < limit:
            for client in self.clients:
                if client.waiting is not None and client.waiting not in self.trial.waiting:
                    client.waiting = None
                self.advance(client)
            self.do(Wait(1_000))
            if self._settled():
                return
        raise Violation(f"B10: {self.trial.look()} long after the faults stopped")

    def _settled(self) -> bool:
        living = [c for c in self.clients if c.alive]
        seen = self.trial.look()
        quiet = seen.state in (State.STABLE, State.EMPTY, State.DEAD)
        working = all(c.next == "work" and c.waiting is None for c in living)
        return quiet and working and seen.members.keys() <= {c.member_id for c in living}


Fault = Callable[[World], None]
WITHOUT_CLIENT: dict[str, Fault] = {
    "jump": World.jump,
    "stall": World.stall,
    "restart": World.restart,
    "disk": World.disk,
    "offsets": World.offsets,
    "delete": World.delete,
    "tool": World.tool,
    "bad join": World.bad_join,
    "give back": World.give_back,
    "siege": World.siege,
    "exodus": World.exodus,
    "coup": World.coup,
}
WITH_CLIENT: dict[str, Callable[[World, Client], None]] = {
    "crash": World.crash,
    "bounce": World.bounce,
    "leave": World.leave,
    "last word": World.last_word,
    "zombie": World.zombie,
    "lie": World.lie,
}
FAULTS = [*WITHOUT_CLIENT, *WITH_CLIENT, "lie", "lie", "bounce", "restart", "last word", "coup"]
