"""Promises about protocol conversions, expired members and changed topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import re2  # type: ignore[import-untyped]

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.classic import ClassicGroup
from faust_assigner.coordinator.effects import Group
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    ConsumerGroupHeartbeat,
    DeleteGroup,
    JoinGroup,
    LeaveGroup,
)
from faust_assigner.coordinator.protocol import read_assignment, read_subscription
from tests.property.consumer_sim import rules
from tests.property.consumer_sim.model import Known, Model, pairs
from tests.property.consumer_sim.promises import Promises
from tests.property.consumer_sim.seen import Seen, SeenMember
from tests.property.lives import must


@dataclass(frozen=True)
class Snapshot:
    """A classic group before an event: its members as described by the protocol."""

    members: Mapping[str, Known]
    assigned: Mapping[str, Mapping[str, tuple[int, ...]]]
    generation: int
    is_consumers: bool
    readable: bool


class Conversions(Promises):
    """Judge conversions between the protocols."""

    def snapshot(self, group: Group | None) -> Snapshot | None:
        """Return the classic group's state, in case the event converts the group."""
        if not isinstance(group, ClassicGroup):
            return None
        spoken = group.protocol_name or group.roster.select_protocol()
        members, assigned, readable = {}, {}, True
        for m in group.roster:
            said, given = read_subscription(m.metadata(spoken)), read_assignment(m.assignment)
            if said is None or given is None:
                readable = False
                continue
            names = tuple(p.name for p in m.protocols)
            members[m.member_id] = Known(
                True, m.instance_id, frozenset(said.topics), "", m.rebalance_timeout_ms, m.session_timeout_ms,
                None, names,
            )  # fmt: skip
            assigned[m.member_id] = given
        consumers = group.protocol_type == "consumer"
        return Snapshot(members, assigned, group.generation, consumers, readable)

    def judge_all(
        self,
        event: Any,
        before: Seen,
        after: Seen,
        replies: Mapping[int, fx.Reply],
        now: int,
        cat: Catalogue,
    ) -> None:
        """Judge a request to a group that stays a consumer group."""
        must(not self._must_downgrade(event), "it should have become a classic group", event)
        founds = isinstance(event, JoinGroup) and not self.model.members
        if founds:
            must(
                self._expect_founding(event) is not Code.NONE,
                "an empty group takes any protocol",
                event,
            )
            return
        self.judge(event, before, after, replies, now, cat)

    def _expect_founding(self, event: JoinGroup) -> Code:
        if not 6_000 <= event.session_timeout_ms <= 1_800_000:
            return Code.INVALID_SESSION_TIMEOUT
        if not event.protocols or not event.protocol_type:
            return Code.INCONSISTENT_GROUP_PROTOCOL
        return Code.UNKNOWN_MEMBER_ID if event.member_id else Code.NONE

    # -- upgrade ---------------------------------------------------------------------------------

    def expect_upgrade(self, event: ConsumerGroupHeartbeat, was: Snapshot) -> Code:
        """Return the answer to a ConsumerGroupHeartbeat sent to a classic group."""
        error = rules.is_malformed(event)
        if error is not Code.NONE:
            return error
        bad_regex = event.subscribed_topic_regex == "("
        fits = len(was.members) <= self.setting.max_size
        allowed = not was.members or (self.setting.policy.upgrades and was.is_consumers and fits)
        if event.member_epoch != 0 or not was.readable or not allowed:
            return Code.GROUP_ID_NOT_FOUND
        replaces = any(k.instance == event.instance_id for k in was.members.values() if k.instance)
        full = (
            len(was.members) >= self.setting.max_size
            and event.member_id not in was.members
            and not replaces
        )
        if full:
            return Code.GROUP_MAX_SIZE_REACHED
        return Code.INVALID_REGULAR_EXPRESSION if bad_regex else Code.NONE

    def upgraded(
        self,
        event: Any,
        was: Snapshot | None,
        after: Seen,
        replies: Mapping[int, fx.Reply],
        now: int,
        cat: Catalogue,
    ) -> None:
        """A classic group became a consumer group: each member has its last assignment."""
        assert was is not None
        joins = (
            isinstance(event, ConsumerGroupHeartbeat)
            and self.expect_upgrade(event, was) is Code.NONE
        )
        must(joins, "nothing allowed this upgrade", event, self.setting.policy)
        others = {t: r for t, r in replies.items() if t != event.token}
        told = all(getattr(r, "error", None) is Code.REBALANCE_IN_PROGRESS for r in others.values())
        must(told, "who was parked is told to come again", others)
        taken: set[Any] = set()
        before: dict[str, SeenMember] = {}
        epoch = max(was.generation, 1)  # 0 would mean joining
        for member_id, given in was.assigned.items():
            has = pairs(cat.partitions_of(given)) - taken
            taken |= has
            since = dict.fromkeys(has, epoch)
            before[member_id] = SeenMember(epoch, epoch, "stable", has, frozenset(), has, since)
        self.model.members = dict(was.members)
        self.model.computed_at = None
        for member_id, known in self.model.members.items():
            known.held = before[member_id].assigned
            known.set("session", now + known.session_ms)
        seen = Seen(before, epoch, epoch, {})
        own = {event.token: replies[event.token]}
        self.judge(event, seen, after, own, now, cat)

    def in_classic(self, event: Any, was: Snapshot | None, replies: Mapping[int, fx.Reply]) -> None:
        """A classic group stayed classic."""
        self.model.members.clear()
        if isinstance(event, ConsumerGroupHeartbeat) and was is not None:
            expected, reply = self.expect_upgrade(event, was), replies[event.token]
            must(
                expected is not Code.NONE,
                "it should have become a consumer group",
                event,
                self.setting.policy,
            )
            must(reply.error is expected, "B3: the error", reply.error.name, expected.name, event)

    # -- downgrade -------------------------------------------------------------------------------

    def _leavers(self, event: Any) -> set[str]:
        """Return the members removed by a valid and accepted request."""
        if isinstance(event, ConsumerGroupHeartbeat) and event.member_epoch == -1:
            known = event.member_id in self.model.members
            fits = (
                event.instance_id is None
                or self.model.instances().get(event.instance_id) == event.member_id
            )
            well = rules.is_malformed(event) is Code.NONE
            return {event.member_id} if known and fits and well else set()
        if isinstance(event, LeaveGroup):
            found = [rules.leaver(who, self.model) for who in event.leavers]
            return {member_id for member_id, code in found if code is Code.NONE}
        return set()

    def _must_downgrade(self, event: Any) -> bool:
        if not self.setting.policy.downgrades:
            return False
        model, gone = self.model, self._leavers(event)
        if isinstance(event, JoinGroup) and model.members:
            holder = (
                model.instances().get(event.instance_id) if event.instance_id is not None else None
            )
            if (
                holder is None
                or event.member_id
                or rules.join(event, model, self.setting) is not Code.NONE
            ):
                return False
            alone = len(model.members) == 1
            return not model.members[holder].classic and (alone or _leaves_classic(model, {holder}))
        return _leaves_classic(model, gone)

    def downgraded(
        self, event: Any, before: Seen, group: Group | None, replies: Mapping[int, fx.Reply]
    ) -> None:
        """A consumer group became classic, or was dropped."""
        if group is None:
            must(isinstance(event, DeleteGroup) and not before.members, "it was dropped", event)
            self.model = Model()
            return
        founded = isinstance(event, JoinGroup) and not before.members
        must(
            founded or self._must_downgrade(event),
            "nothing allowed this downgrade",
            event,
            self.setting.policy,
        )
        must(
            founded or replies[event.token].error is Code.NONE,
            "the answer of who brought it about",
            replies,
        )
        arrived = set()
        gone = self._leavers(event)
        if isinstance(event, JoinGroup) and not founded:
            gone = {self.model.instances()[str(event.instance_id)]}
            arrived = {event.new_member_id}
        if not founded:
            self._check_classic(before, group, gone, arrived)
        self.model.members.clear()

    def all_are_told(self, before: Seen, group: ClassicGroup, cat: Catalogue) -> None:
        """B2: each member has its partitions already, or its next heartbeat requires a rejoin."""
        if group.state_name == "PreparingRebalance":
            return
        for member in group.roster:
            stood = before.members.get(member.member_id)
            if stood is None or stood.epoch != group.generation:
                continue  # the member fetches its assignment, or its generation is fenced
            given = read_assignment(member.assignment)
            must(
                given is not None and pairs(cat.partitions_of(given)) == stood.assigned,
                "B2: nobody reads what a member was never told of",
                member.member_id,
                given,
                stood,
            )

    def downgraded_by_time(self, before: Seen, group: Group | None, now: int) -> None:
        """The session of the last KIP-848 member ended."""
        may = self.model.may_expire(now)
        staying = {m.member_id for m in group.describe().members} if group is not None else set()
        gone = before.members.keys() - staying
        allowed = (
            self.setting.policy.downgrades
            and gone <= may
            and _leaves_classic(self.model, set(gone))
        )
        must(allowed, "nothing allowed this downgrade", gone, may)
        self.model.members.clear()

    def _check_classic(self, before: Seen, group: Group, gone: set[str], arrived: set[str]) -> None:
        view = group.describe()
        expected = (before.members.keys() - gone) | arrived
        must(
            {m.member_id for m in view.members} == expected,
            "the members of the classic group",
            view,
            expected,
        )
        must(
            view.epoch >= before.epoch,
            "B1: the generation is below the group epoch",
            view.epoch,
            before.epoch,
        )

    # -- time and topics -------------------------------------------------------------------------

    def expired(self, before: Seen, after: Seen, now: int, *, dirty: bool) -> None:
        """Only members with an expired timer were removed, and the epoch rose for each."""
        gone = before.members.keys() - after.members.keys()
        must(
            gone <= self.model.may_expire(now),
            "it was removed too early",
            gone - self.model.may_expire(now),
        )
        stays = self.model.must_expire(now) - gone
        must(not stays, "B10: its time is over", stays)
        rise = after.epoch - before.epoch
        must(len(gone) <= rise <= len(gone) + dirty, "expired members raise the epoch", gone, rise)
        for member_id in gone:
            del self.model.members[member_id]

    def topics_changed(self, before: Seen, after: Seen, old: Catalogue, new: Catalogue) -> None:
        """The epoch rises exactly when a subscribed topic has changed."""
        must(after.members.keys() == before.members.keys(), "topics changed the members")
        rise, changed = after.epoch - before.epoch, self._facts(old) != self._facts(new)
        must(
            rise == (changed and bool(before.members)), "topics and the group epoch", rise, changed
        )

    def _facts(self, catalogue: Catalogue) -> dict[str, int]:
        names = {n for k in self.model.members.values() for n in k.names}
        regexes = {k.regex for k in self.model.members.values() if k.regex}
        return {n: topic.partitions for n, topic in catalogue.by_name.items()
                if n in names or any(re2.fullmatch(r, n) for r in regexes)}  # fmt: skip


def _leaves_classic(model: Model, gone: set[str]) -> bool:
    """Whether a member leaves and only classic members stay."""
    staying = [k for m, k in model.members.items() if m not in gone]
    return bool(staying) and bool(gone) and all(k.classic for k in staying)
