"""The promises of a consumer group, checked after every event (B1-B10 of the coordinator's list)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from faust_assigner.coordinator.protocol import read_assignment
from tests.property.consumer_sim import rules
from tests.property.consumer_sim.acts import Setting
from tests.property.consumer_sim.clients import SAID
from tests.property.consumer_sim.model import Known, Model, pairs
from tests.property.consumer_sim.seen import Seen, SeenMember
from tests.property.lives import must

CALM = (Code.NONE, Code.REBALANCE_IN_PROGRESS, Code.MEMBER_ID_REQUIRED)


class Promises:
    """Judge requests to a consumer group with members of both protocols; update the model."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.model = Model()
        #: The least interval since the last target: its successor may have been under way before a change.
        self.interval_ms = setting.interval_ms

    def configured(self, setting: Setting) -> None:
        """The group's configs changed: they apply from the next heartbeat, timer or restart on."""
        self.setting = setting
        self.interval_ms = min(self.interval_ms, setting.interval_ms)
        for known in self.model.members.values():
            if not known.classic:
                known.session_ms = setting.session_ms

    # -- checks after every event ----------------------------------------------------------------

    def always(self, before: Seen, after: Seen, catalogue: Catalogue, now: int) -> None:
        """Epochs never fall, no partition has two holders, and each instance id has one member."""
        must(after.epoch >= before.epoch, "B1: the group epoch fell", before.epoch, after.epoch)
        must(
            after.target_epoch >= before.target_epoch,
            "B1: the target's epoch fell",
            after.target_epoch,
        )
        must(
            after.target_epoch <= after.epoch,
            "B1: the target is ahead of the group",
            after.target_epoch,
        )
        held: dict[Any, str] = {}
        for member_id, me in after.members.items():
            must(
                me.epoch <= after.target_epoch, "B1: a member is ahead of the target", member_id, me
            )
            for pair in sorted(me.assigned) + sorted(me.revoking):
                must(pair not in held, "B2: held twice", pair, held.get(pair), member_id)
                held[pair] = member_id
            old = before.members.get(member_id)
            fell = old is not None and me.epoch < old.epoch and me.epoch != -2
            must(not fell, "B1: a member epoch fell", member_id, old, me)
        must(
            set(after.members) == set(self.model.members),
            "members",
            set(after.members) ^ set(self.model.members),
        )
        names = [k.instance for k in self.model.members.values() if k.instance is not None]
        must(len(names) == len(set(names)), "B7: two members of one instance", names)
        self._target(before, after, catalogue, now)

    def _target(self, before: Seen, after: Seen, catalogue: Catalogue, now: int) -> None:
        """A new target gives every subscribed partition to one of its subscribers, evenly."""
        if not after.members:
            self.model.computed_at = None  # the next member need not wait
        if after.target_epoch == before.target_epoch or not after.members:
            return
        last, model = self.model.computed_at, self.model
        hurried = last is not None and now < last + self.interval_ms and before.members
        must(not hurried, "the target was computed again too early", last, now)
        model.computed_at, self.interval_ms = now, self.setting.interval_ms
        given: set[Any] = set()
        for member_id, me in after.members.items():
            must(not me.target & given, "a target gives a partition twice", member_id, me)
            given |= me.target
        if after.target_epoch < after.epoch or self.setting.inline_size == 0:
            return  # the target was computed for an earlier group
        readers = {m: rules.reads(k, catalogue) for m, k in model.members.items()}
        wanted = {
            (t, p)
            for ids in readers.values()
            for t in ids
            for p in range(catalogue.by_id[t].partitions)
        }
        must(given == wanted, "a target leaves something out, or invents it", given ^ wanted)
        for member_id, ids in readers.items():
            strange = {t for t, _ in after.members[member_id].target} - ids
            must(not strange, "a target gives what is not read", member_id, strange)
        loads = sorted(len(me.target) for me in after.members.values())
        if len(set(readers.values())) == 1 and rules.assignor(model) == "uniform":
            must(loads[-1] - loads[0] <= 1, "the target is uneven", loads)

    # -- requests --------------------------------------------------------------------------------

    def judge(
        self,
        event: Any,
        before: Seen,
        after: Seen,
        replies: Mapping[int, fx.Reply],
        now: int,
        cat: Catalogue,
    ) -> None:
        """Check a request to a consumer group, and update the model."""
        reply = replies.get(event.token)
        must(
            reply is not None and len(replies) == 1,
            "one request, one answer, at once",
            event,
            replies,
        )
        error, expected = getattr(reply, "error", None), self._expected(event, before, cat)
        must(
            error is expected, "B3: the error", getattr(error, "name", error), expected.name, event
        )
        if expected is not Code.NONE or isinstance(
            event, CommitOffsets | FetchOffsets | Heartbeat | SyncGroup
        ):
            must(after.records == before.records, "B3: it changed the group", event, expected.name)
        if expected in CALM:
            LEARN[type(event)](self, event, before, after, reply, now, cat)

    def _expected(self, event: Any, seen: Seen, cat: Catalogue) -> Code:
        model = self.model
        match event:
            case ConsumerGroupHeartbeat():
                return rules.heartbeat(event, model, seen.members, self.setting)
            case JoinGroup():
                return rules.join(event, model, self.setting)
            case SyncGroup():
                return rules.sync(event, model, seen)
            case Heartbeat():
                return rules.beat(event, model, seen)
            case CommitOffsets():
                return rules.commit(event, model, seen.members, cat)
            case FetchOffsets():
                return rules.fetch(event, model, seen.members)
            case DeleteGroup():
                return Code.NON_EMPTY_GROUP if model.members else Code.NONE
        return Code.NONE

    def heard(
        self,
        event: ConsumerGroupHeartbeat,
        before: Seen,
        after: Seen,
        reply: Any,
        now: int,
        cat: Any,
    ) -> None:
        """A KIP-848 member joined, stayed or left."""
        model, member_id = self.model, event.member_id
        if event.member_epoch in (-1, -2):
            must(reply.member_epoch == event.member_epoch, "the answer to a leave", reply)
            if event.member_epoch == -1:
                self.gone([member_id], before, after)
                return
            model.members[member_id].held = frozenset()
            model.members[member_id].drop("rebalance")
            me = after.members[member_id]
            must((me.epoch, me.revoking) == (-2, frozenset()), "a static member that is away", me)
            must(
                after.epoch == before.epoch,
                "a short absence is no rebalance",
                before.epoch,
                after.epoch,
            )
            return
        start = self._arrives(event.instance_id, member_id, event.member_epoch == 0, before)
        known = model.members.get(member_id)
        old = (known.names, known.regex) if known is not None else None
        model.members[member_id] = new = Known(
            False,
            event.instance_id or (known.instance if known else None),
            frozenset(event.subscribed_topic_names) if event.subscribed_topic_names is not None
            else known.names if known else frozenset(),
            event.subscribed_topic_regex if event.subscribed_topic_regex is not None
            else known.regex if known else "",
            event.rebalance_timeout_ms if event.rebalance_timeout_ms != -1
            else known.rebalance_ms if known else -1,
            self.setting.session_ms,
            event.server_assignor or (known.assignor if known else None),
            held=known.held if known else frozenset(),
            due=dict(known.due) if known else {},
        )  # fmt: skip
        changed = old != (new.names, new.regex)
        self._epoch(before, after, changed)
        if event.owned is not None:
            new.held &= pairs(event.owned)
        owned = None if event.owned is None else pairs(event.owned)
        me = self._stepped(member_id, start, after, owned, cat, changed)
        new.drop("join", "sync")
        new.set("session", now + new.session_ms)
        if me.state != "unrevoked_partitions":
            new.drop("rebalance")
        elif me.revoking != start.revoking or "rebalance" not in new.due:
            new.set("rebalance", now + new.rebalance_ms)
        self._answered(event, start, me, reply, member_id)

    def _answered(
        self, event: Any, start: SeenMember, me: SeenMember, reply: Any, member_id: str
    ) -> None:
        must(
            (reply.member_id, reply.member_epoch) == (member_id, me.epoch),
            "the answer's epoch",
            reply,
            me,
        )
        told_ms, wanted_ms = reply.heartbeat_interval_ms, self.setting.heartbeat_ms
        must(told_ms == wanted_ms, "the group's heartbeat interval", told_ms, wanted_ms)
        must(reply.member_epoch != 0, "a member hears epoch 0, which means joining", reply)
        repeats = (
            event.subscribed_topic_names is not None or event.subscribed_topic_regex is not None
        )
        full = event.rebalance_timeout_ms != -1 and event.owned is not None and repeats
        tells = event.member_epoch == 0 or full or start.assigned != me.assigned
        must(
            (reply.assignment is not None) == tells,
            "an assignment is told when it changed",
            reply,
            start,
            me,
        )
        if reply.assignment is not None:
            must(pairs(reply.assignment) == me.assigned, "the assignment told", reply, me)
            self.granted(member_id, me.assigned)

    def granted(self, member_id: str, told: frozenset[Any]) -> None:
        """A granted partition must not be in use by another member (B2)."""
        others, known = self.model.others_hold(member_id), self.model.members[member_id]
        for pair in sorted(told - known.held):
            must(
                pair not in others,
                "B2: granted before it was given up",
                pair,
                others.get(pair),
                member_id,
            )
        known.held |= told

    def _arrives(
        self, instance: str | None, member_id: str, joins: bool, before: Seen
    ) -> SeenMember:
        """Return the member's start: a returning static member keeps its former state."""
        model = self.model
        holder = model.instances().get(instance) if instance is not None else None
        if not joins or holder is None:
            return before.members.get(member_id, SeenMember())
        known = model.members.pop(holder)
        model.members.pop(member_id, None)
        known.held = frozenset()
        known.due = {}
        model.members[member_id] = known
        start = before.members[holder]
        return SeenMember(
            0, 0, start.state, start.assigned, start.revoking, start.target, start.since
        )

    def _epoch(self, before: Seen, after: Seen, changed: bool) -> None:
        rise = after.epoch - before.epoch
        must(rise == changed, "the group epoch rises by what changed", rise, changed)

    def _stepped(
        self,
        member_id: str,
        start: SeenMember,
        after: Seen,
        owned: frozenset[Any] | None,
        cat: Catalogue,
        reads_anew: bool,
    ) -> SeenMember:
        """The member made the right step."""
        me = after.members[member_id]
        readable = rules.reads(self.model.members[member_id], cat)
        expected = rules.next_step(
            start,
            me.target,
            after.target_epoch,
            readable,
            after.taken(member_id),
            owned,
            reads_anew,
        )
        made = (me.epoch, me.state, me.assigned, me.revoking)
        must(made == expected, "its next step", member_id, "made", made, "expected", expected)
        moved = made != (start.epoch, start.state, start.assigned, start.revoking)
        must(
            not moved or me.previous_epoch == start.epoch, "the epoch before", member_id, start, me
        )
        for pair, since in me.since.items():
            given = start.since[pair] if pair in start.assigned else me.epoch
            must(
                since == given or pair in me.revoking,
                "since when it has it",
                pair,
                since,
                start,
                me,
            )
        return me

    def joined(
        self, event: JoinGroup, before: Seen, after: Seen, reply: Any, now: int, cat: Catalogue
    ) -> None:
        """A classic member joined or rejoined."""
        member_id = event.member_id or event.new_member_id
        must(reply.member_id == member_id, "whose answer it is", reply)
        if reply.error is not Code.NONE:
            return
        topics, claimed = SAID[event.protocols[0].metadata]
        start = self._arrives(event.instance_id, member_id, not event.member_id, before)
        model = self.model
        known = model.members.get(member_id)
        changed = known is None or (known.names, known.regex) != (frozenset(topics), "")
        owned = pairs(cat.partitions_of(claimed))
        held = (known.held if known else frozenset()) & owned
        model.members[member_id] = new = Known(
            True, event.instance_id or (known.instance if known else None), frozenset(topics), "",
            event.rebalance_timeout_ms, event.session_timeout_ms, None,
            tuple(p.name for p in event.protocols), held,
        )  # fmt: skip
        self._epoch(before, after, changed)
        me = self._stepped(member_id, start, after, owned, cat, changed)
        must(reply.generation == me.epoch, "its generation is its epoch", reply, me)
        must(
            reply.protocol_name == event.protocols[0].name and not reply.members,
            "who assigns",
            reply,
        )
        new.set("session", now + new.session_ms)
        new.set("sync", now + new.rebalance_ms)

    def synced(
        self, event: SyncGroup, before: Seen, after: Seen, reply: Any, now: int, cat: Catalogue
    ) -> None:
        """A classic member fetched its assignment."""
        known, me = self.model.members[event.member_id], after.members[event.member_id]
        if reply.error is Code.REBALANCE_IN_PROGRESS:
            known.due.setdefault("join", (now + known.rebalance_ms,) * 2)
            return
        told = pairs(cat.partitions_of(read_assignment(reply.assignment) or {}))
        there = frozenset(x for x in me.assigned if x[0] in cat.by_id)
        must(told == there, "the assignment in bytes", told, there)
        self.granted(event.member_id, told)
        known.held = told
        known.drop("sync")
        known.set("session", now + known.session_ms)

    def beat(
        self, event: Heartbeat, before: Seen, after: Seen, reply: Any, now: int, cat: Catalogue
    ) -> None:
        """A classic member sent a heartbeat."""
        known = self.model.members[event.member_id]
        known.set("session", now + known.session_ms)
        if reply.error is Code.REBALANCE_IN_PROGRESS:
            known.due.setdefault("join", (now + known.rebalance_ms,) * 2)

    def left(
        self, event: LeaveGroup, before: Seen, after: Seen, reply: Any, now: int, cat: Catalogue
    ) -> None:
        """Check the answers of a LeaveGroup."""
        found = [rules.leaver(who, self.model) for who in event.leavers]
        told = [
            (w.member_id, w.instance_id, code)
            for w, (_, code) in zip(event.leavers, found, strict=True)
        ]
        must(list(reply.results) == told, "the answer to each leaver", reply.results, told)
        gone = {member_id for member_id, code in found if code is Code.NONE}
        if gone:
            self.gone(sorted(gone), before, after)
        else:
            must(after.records == before.records, "nobody left, and something changed", event)

    def gone(self, who: Sequence[str], before: Seen, after: Seen) -> None:
        """The members left in the same rebalance."""
        for member_id in who:
            del self.model.members[member_id]
        must(
            after.epoch == before.epoch + 1,
            "a leave raises the epoch once",
            before.epoch,
            after.epoch,
        )
        if not after.members:
            must(after.target_epoch == after.epoch, "an empty group is never behind", after)

    def nothing(self, *told: Any) -> None:
        """The request does not change the model."""


LEARN = {
    ConsumerGroupHeartbeat: Promises.heard,
    JoinGroup: Promises.joined,
    SyncGroup: Promises.synced,
    Heartbeat: Promises.beat,
    LeaveGroup: Promises.left,
    CommitOffsets: Promises.nothing,
    FetchOffsets: Promises.nothing,
    DeleteGroup: Promises.nothing,
}
