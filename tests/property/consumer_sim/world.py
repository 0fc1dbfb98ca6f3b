"""Clients, strangers and faults drawn from a seed, and their acts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.events import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    SyncGroup,
)
from faust_assigner.coordinator.settings import MigrationPolicy
from tests.property.consumer_sim import acts, rules
from tests.property.consumer_sim.acts import Act, Setting
from tests.property.consumer_sim.clients import Client
from tests.property.consumer_sim.seen import look
from tests.property.consumer_sim.trial import Trial
from tests.property.lives import must
from tests.support.coordination.consumer_bench import topic_id

INSTANCES = (None, None, "i1", "i2")
SUBSCRIPTIONS = (("a",), ("a",), ("a", "b"), ("b",), ("c",))
REGEXES = ("a|b", ".*", "a", "(")
MOST_CLIENTS = 6


def _setting(draw: random.Random) -> Setting:
    return Setting(
        policy=draw.choice([MigrationPolicy.BIDIRECTIONAL] * 4 + list(MigrationPolicy)),
        interval_ms=draw.choice([0, 0, 1_000, 15_000]),
        inline_size=draw.choice([1_000, 1_000, 1_000, 0]),
        max_size=draw.choice([100, 100, 3, 2]),
        session_ms=draw.choice([45_000, 60_000]),
        partitions=(("a", draw.randint(1, 5)), ("ab", 1), ("b", draw.randint(0, 3))),
    )


class World:
    """A seed's life: ``step`` draws and does an act, ``settle`` ends the faults and checks B10."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.setting = _setting(self.draw)
        self.trial = Trial(self.setting)
        self.acts: list[Act] = []
        self.clients: list[Client] = []
        self.asked: dict[int, Client] = {}
        self.sent: list[Any] = []
        self.tickets = self.names = 0
        mixes = (0.0, 0.0, 0.3, 0.6)
        self.classic_share = self.draw.choice(mixes)
        self.fault_share = self.draw.choice([0.0, 0.1, 0.3])

    # -- doing -----------------------------------------------------------------------------------

    def do(self, act: Act) -> dict[int, fx.Reply]:
        """Do an act; the act is recorded first, so a violation is reproducible."""
        self.acts.append(act)
        replies = self.trial.do(act)
        for ticket, reply in replies.items():
            client = self.asked.pop(ticket, None)
            if client is not None and self.draw.random() >= self.fault_share / 3:
                client.hear(reply)  # else the answer is lost
        return replies

    def ask(self, event: Any, client: Client | None = None) -> dict[int, fx.Reply]:
        """Send a request; its answer goes to the client."""
        if client is not None:
            self.asked[event.token] = client
        self.sent = [*self.sent[-7:], event]
        return self.do(acts.Ask(event))

    def ticket(self) -> int:
        """Return the number of a request."""
        self.tickets += 1
        return self.tickets

    def name(self) -> str:
        """Return an unused member id."""
        self.names += 1
        return f"m{self.names}"

    def step(self) -> None:
        """Draw an act and do it."""
        choices: list[tuple[float, Callable[[], Any]]] = [
            (8, self.beat),
            (2.5, self.arrive),
            (1.0, self.leave),
            (0.4, self.away),
            (0.5, self.crash),
            (0.7, self.change),
            (0.5, self.switch),
            (3, self.wait),
            (0.3, self.dawdle),
            (1.2, self.commit),
            (0.4, self.topics),
            (0.4, self.configure),
            (1.5 if self.trial.asked else 0, self.answer_target),
        ]
        faults: list[tuple[float, Callable[[], Any]]] = [
            (3, self.stranger),
            (2, self.again),
            (1, lambda: self.do(acts.Restart())),
            (1, lambda: self.do(acts.DiskFails())),
            (1, lambda: self.do(acts.Stall(self.draw.choice([1_000, 50_000])))),
            (1, self.odd_leave),
            (0.5, lambda: self.ask(DeleteGroup(self.ticket()))),
        ]
        pool = faults if self.draw.random() < self.fault_share else choices
        weights, what = zip(*pool, strict=True)
        self.draw.choices(what, weights)[0]()

    # -- honest clients --------------------------------------------------------------------------

    def arrive(self) -> None:
        """Start a new process, static or dynamic, of either protocol."""
        if len(self.clients) >= MOST_CLIENTS:
            return self.beat()
        draw = self.draw
        instance = draw.choice(INSTANCES)
        if (
            instance is not None
            and any(c.instance == instance for c in self.clients)
            and draw.random() < 0.7
        ):
            return None
        classic = draw.random() < self.classic_share
        client = Client(
            f"c{self.ticket()}",
            classic,
            draw.choice(SUBSCRIPTIONS),
            draw.choice(REGEXES) if not classic and draw.random() < 0.2 else None,
            instance,
            draw.choice([30_000, 60_000]),
            draw.choice([20_000, 45_000]),
            draw.choice([None, None, "uniform", "range", "copartition", "nonsense"]),
            draw.choice([("range",), ("range", "cooperative"), ("cooperative",)]),
            draw.random() < 0.5,
            "connect" if draw.random() < 0.05 else "consumer",
        )
        self.clients.append(client)
        self.ask(client.next(self.ticket(), self.name()), client)
        return None

    def beat(self) -> None:
        """Send a client's due request: a heartbeat, a join or a sync."""
        if not self.clients:
            return self.arrive()
        client = self.draw.choice(self.clients)
        if self.draw.random() < 0.25:
            client.busy = not client.busy
        if client in self.asked.values() and client.classic:
            return None  # a classic client's request is parked
        self.ask(client.next(self.ticket(), self.name()), client)
        return None

    def pick(self, *, joined: bool = True) -> Client | None:
        """Return a random client, or None."""
        found = [c for c in self.clients if c.joined or not joined]
        return self.draw.choice(found) if found else None

    def leave(self) -> None:
        """Let a client leave for good."""
        client = self.pick()
        if client is None:
            return
        if self.draw.random() < 0.5:
            client = self.clients[-1]  # the partitions about to move to it stay
        self.clients.remove(client)
        if client.classic:
            self.ask(LeaveGroup(self.ticket(), (Leaver(client.member_id, client.instance),)))
        else:
            self.ask(ConsumerGroupHeartbeat(self.ticket(), client.member_id, -1, client.instance))

    def away(self) -> None:
        """Let a static KIP-848 member leave for a while; it may return as another process."""
        client = self.pick()
        if client is None or client.classic or client.instance is None:
            return
        self.ask(ConsumerGroupHeartbeat(self.ticket(), client.member_id, -2, client.instance))
        client.out()
        if self.draw.random() < 0.7:
            client.member_id = ""
        if self.draw.random() < 0.2:
            self.clients.remove(client)

    def crash(self) -> None:
        """Remove a client without a leave request."""
        client = self.pick(joined=False)
        if client is not None:
            self.clients.remove(client)

    def change(self) -> None:
        """Change a client's subscription."""
        client = self.pick(joined=False)
        if client is None:
            return
        client.topics = self.draw.choice(SUBSCRIPTIONS)
        client.says_all = True
        client.regex = "" if client.regex is not None else None
        if client.classic:
            client.joined = False
        else:
            client.regex = client.regex if self.draw.random() < 0.8 else self.draw.choice(REGEXES)

    def switch(self) -> None:
        """Switch a process to the other protocol."""
        client = self.pick(joined=False)
        if client is None or self.classic_share == 0:
            return
        if self.draw.random() < 0.5 and client.joined and client.instance is None:
            if client.classic:
                self.ask(LeaveGroup(self.ticket(), (Leaver(client.member_id, client.instance),)))
            else:
                self.ask(
                    ConsumerGroupHeartbeat(self.ticket(), client.member_id, -1, client.instance)
                )
        client.switch()
        self.ask(client.next(self.ticket(), self.name()), client)

    def wait(self) -> None:
        """Let time pass; most live clients send a heartbeat before their session ends."""
        ms = self.draw.choice(
            [10, 1_000, 1_000, 5_000, 5_000, 20_000, 31_000, 45_000, 61_000, 330_000]
        )
        if ms > 5_000 and self.draw.random() < 0.7:
            for client in list(self.clients):
                if client.joined or (client.busy and client.synced):
                    self.ask(client.next(self.ticket(), self.name()), client)
        self.do(acts.Wait(ms))

    def dawdle(self) -> None:
        """Let all clients send only heartbeats for a while, whatever the group requires."""
        for _ in range(5):
            for client in list(self.clients):
                client.busy = True
                if client.synced if client.classic else client.joined:
                    self.ask(client.next(self.ticket(), self.name()), client)
            self.do(acts.Wait(9_000))

    def commit(self) -> None:
        """Commit and read offsets, with any epoch."""
        draw, late = self.draw, [c for c in self.clients if self._given_up(c.member_id)]
        client = draw.choice(late) if late else self.pick(joined=False)
        member_id = client.member_id if client is not None else draw.choice(["", "m1"])
        epoch = (client.epoch if client is not None else -1) + draw.choice(
            [0, -1, -2] if late else [0, 0, 0, -1, -1, 1, -9]
        )
        if draw.random() < 0.3:
            self.ask(
                FetchOffsets(
                    self.ticket(), draw.choice([member_id, None]), draw.choice([epoch, -1])
                )
            )
            return
        places = (
            [(n, p) for n, parts in client.owned.items() for p in sorted(parts)]
            if client is not None
            else []
        )
        some = draw.choice([tuple(places), (("a", 0),), (), *[self._given_up(member_id)] * 3])
        version = draw.choice([9, 10, 8])
        self.ask(
            CommitOffsets(self.ticket(), member_id, epoch, None, version, draw.random() < 0.2, some)
        )

    def _given_up(self, member_id: str) -> tuple[tuple[str, int], ...]:
        """Return the partitions that the group waits for the member to revoke."""
        seen = look(self.trial.group) if self.trial.group is not None else None
        held = seen.members.get(member_id) if seen is not None else None
        topics = self.trial.catalogue.by_id
        revoking = sorted(held.revoking) if held is not None else ()
        return tuple((topics[t].name, p) for t, p in revoking if t in topics)

    def topics(self) -> None:
        """Add, remove or grow topics."""
        now = {n: t.partitions for n, t in self.trial.catalogue.by_name.items()}
        name = self.draw.choice(["a", "b", "c", "ab"])
        if name in now and self.draw.random() < 0.4:
            del now[name]
        else:
            now[name] = now.get(name, 0) + self.draw.randint(0, 2)
        self.do(acts.Topics(dict(sorted(now.items()))))

    def configure(self) -> None:
        """Set, change and delete configs of the group."""
        draw = self.draw
        self.do(
            acts.Configs(
                draw.choice([None, 20_000, 45_000, 60_000]),
                draw.choice([None, 5_000, 7_000]),
                draw.choice([None, 0, 1_000, 15_000]),
            )
        )

    def answer_target(self) -> None:
        """Answer the oldest computation."""
        self.do(acts.AnswerTarget(self.draw.random() < 0.1))

    # -- strangers and faults --------------------------------------------------------------------

    def again(self) -> None:
        """Repeat an old request."""
        if self.sent:
            event = replace(self.draw.choice(self.sent), token=self.ticket())
            # an id is made for each request
            fresh = isinstance(event, JoinGroup) and not event.member_id
            self.ask(replace(event, new_member_id=self.name()) if fresh else event)

    def stranger(self) -> None:
        """Send a request with a random member id, epoch and ownership."""
        draw, seen = self.draw, look(self.trial.group) if self.trial.group is not None else None
        ids = [*(seen.members if seen is not None else ()), "m1", "nobody", ""]
        member_id = draw.choice(ids)
        known = seen.members.get(member_id) if seen is not None else None
        at = known.epoch if known is not None else 3
        epoch = draw.choice(
            [-3, -2, -1, 0, 0, at, at, at - 1, at + 1, known.previous_epoch if known else 1]
        )
        instance = draw.choice([None, None, None, "i1", "i2", ""])
        kind = draw.random()
        if kind < 0.1:
            self.ask(ConsumerGroupHeartbeat(
                self.ticket(), member_id or "m1", 0, None, None, 30_000, ("a",), None, None,
                draw.choice([None, {topic_id("a"): (0,)}]),
            ))  # fmt: skip
        elif kind < 0.6:
            held = sorted((known.assigned | known.revoking) if known is not None else ())
            part = [pair for pair in held if draw.random() < 0.6]
            owned = {
                t: tuple(sorted(p for u, p in part if u == t)) for t in sorted({t for t, _ in part})
            }
            if draw.random() < 0.2:
                owned = {**owned, topic_id("b"): (0,)}
            self.ask(ConsumerGroupHeartbeat(
                self.ticket(), member_id, epoch, instance, draw.choice([None, None, ""]),
                draw.choice([-1, 30_000]),
                draw.choice([None, (), ("a",), ("b", "a")]), draw.choice([None, None, "", "a.*", "("]),
                draw.choice([None, None, "range", "nonsense"]), draw.choice([None, {}, owned, owned]),
            ))  # fmt: skip
        elif kind < 0.75:
            self.ask(Heartbeat(self.ticket(), member_id, epoch, instance or None))
        elif kind < 0.9:
            self.ask(SyncGroup(
                self.ticket(), member_id, epoch, instance or None, draw.choice([None, "consumer", "x"]),
                draw.choice([None, "range", "y"]),
            ))  # fmt: skip
        else:
            client = Client(
                "x", True, ("a",), None, instance or None, 30_000, draw.choice([45_000, 1])
            )
            client.member_id = member_id
            joins: JoinGroup = client.join(self.ticket(), self.name())
            junk = replace(joins.protocols[0], metadata=b"junk")
            spoiled = draw.choice([joins.protocols, (junk,), ()])
            kind_of = draw.choice(["consumer", "consumer", "connect"])
            known_id = draw.random() < 0.7
            self.ask(
                replace(joins, protocols=spoiled, protocol_type=kind_of, needs_known_id=known_id)
            )

    def odd_leave(self) -> None:
        """Remove several members as an administrator, some of them unknown."""
        ids = [c.member_id for c in self.clients] + ["nobody", ""]
        some = tuple(
            Leaver(self.draw.choice(ids), self.draw.choice([None, None, "i1", "i2"]))
            for _ in range(self.draw.randint(1, 3))
        )
        self.ask(LeaveGroup(self.ticket(), some))

    def _is_calm(self) -> bool:
        """Whether the group's state is stable or empty."""
        group = self.trial.group
        return group is None or (
            group.group_type == "consumer" and group.state_name in ("Stable", "Empty")
        )

    # -- B10 -------------------------------------------------------------------------------------

    def settle(self, rounds: int = 90) -> None:
        """End the faults and let members follow the protocol: the group becomes stable (B10)."""
        self.trial.armed = False
        self.fault_share = 0.0
        waiting = self.asked
        alone = {c.instance: c for c in self.clients if c.instance is not None}
        self.clients = [c for c in self.clients if c.instance is None or alone[c.instance] is c]
        calm = 0
        for _ in range(rounds):
            for client in list(self.clients):
                if not (client.classic and client in waiting.values()):
                    client.says_all = client.busy = False
                    self.ask(client.next(self.ticket(), self.name()), client)
            while self.trial.asked:
                self.do(acts.AnswerTarget())
            self.do(acts.Wait(1_500))
            calm = calm + 1 if self._is_calm() else 0
            if calm == 3:
                break
        group = self.trial.group
        if group is None:
            return
        seen = look(group)
        if seen is None:
            return
        must(
            seen.state() in ("Stable", "Empty"),
            "B10: it does not come to rest",
            seen.state(),
            seen.members,
        )
        given = [pair for me in seen.members.values() for pair in me.assigned]
        must(len(given) == len(set(given)), "given twice")
        wanted = {
            (t, p)
            for known in self.trial.model.members.values()
            for t in rules.reads(known, self.trial.catalogue)
            for p in range(self.trial.catalogue.by_id[t].partitions)
        }
        must(set(given) == wanted, "B10: not all that is read is assigned", wanted ^ set(given))
