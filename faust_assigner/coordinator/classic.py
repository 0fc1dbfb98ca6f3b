"""The classic group protocol as a pure, table-driven machine: ``step(event, now_ms) -> effects``.

Two literal tables are the whole protocol. ``NEXT`` (in ``states``) has the next state for each cause.
``RULES`` has the rule for each event in each state. The rules are functions in ``join_rules`` and
``rules``; the checks of requests are in ``refusals``. The machine reads no clock, draws no random number
and does no I/O.

Behaviour follows Apache Kafka's coordinator: KIP-62 (timeouts), KIP-134 (initial delay), KIP-345 (static
members), KIP-394 (known member ids), KIP-559 (protocol in sync), KIP-800 (reasons), KIP-814 (skipped
assignment).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator import events as ev
from faust_assigner.coordinator import rules
from faust_assigner.coordinator.absent import answer_absent
from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.consumer.upgrade import upgrade
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.group_views import GroupType, GroupView, MemberView, Retention
from faust_assigner.coordinator.join_rules import join
from faust_assigner.coordinator.members import Member
from faust_assigner.coordinator.protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from faust_assigner.coordinator.rounds import GroupRounds
from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.coordinator.states import NEXT, Cause, GroupLimits, State
from faust_assigner.coordinator.timers import Purpose

__all__ = ["NEXT", "RULES", "Cause", "ClassicGroup", "GroupLimits", "State", "answer_absent"]


class ClassicGroup(GroupRounds):
    """A classic group. The broker feeds events, applies the effects in order and sends each ``TimersDue``.

    Cost: O(1) per heartbeat, O(log members) per join or follower's sync. The end of a phase, the replacement
    of a static member and the leader's assignment cost O(members). Requests of a client never raise.
    """

    @classmethod
    def restore(
        cls,
        record: fx.GroupRecord,
        limits: GroupLimits,
        now_ms: int,
        *,
        consumer: ConsumerLimits | None = None,
        catalogue: Catalogue | None = None,
    ) -> Self:
        """Restore a group from its record; every member has a fresh session.

        The state is Empty, Stable, or (not settled) PreparingRebalance, in which members have to rejoin.
        """
        group = cls(
            record.group_id,
            limits,
            now_ms,
            wall_ms=record.state_since_ms,
            consumer=consumer,
            catalogue=catalogue,
        )
        group.generation = record.generation
        group.protocol_type, group.protocol_name = record.protocol_type, record.protocol_name
        group.state = State.STABLE if record.members else State.EMPTY
        for saved in record.members:
            member = Member.from_record(saved)
            group.timers.set(Purpose.SESSION, member.member_id, now_ms + member.session_timeout_ms)
            group.roster.add(member)
        group.roster.leader = record.leader
        if not record.settled:
            group.state = State.PREPARING
            group.join_phase.begin(now_ms, group.roster.rebalance_timeout_ms())
        return group

    def step(
        self, event: ev.Event, now_ms: int, wall_ms: int | None = None
    ) -> tuple[fx.Effect, ...]:
        """Apply one event at time ``now_ms``; return the effects in order."""
        self.now_ms, self.wall_ms = now_ms, now_ms if wall_ms is None else wall_ms
        self.out = []
        RULES[(self.state, type(event))](self, event)
        return tuple(self.out)

    # -- questions of the broker -----------------------------------------------------------------

    @property
    def group_type(self) -> GroupType:
        """The type of the group, always "classic"."""
        return "classic"

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members. Member ids that were only handed out do not count."""
        return not len(self.roster)

    @property
    def is_unproven(self) -> bool:
        """Whether no member has ever joined. Member ids that were only handed out do not count."""
        return self.is_empty and not self.generation

    @property
    def is_unused(self) -> bool:
        """Whether no member has ever joined, and no handed-out member id waits for its join."""
        return self.is_unproven and not self.roster.pending

    @property
    def member_counts(self) -> Mapping[GroupType, int]:
        """The number of members, all of the classic protocol."""
        return {"classic": len(self.roster)}

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics of all members, or None if the group's protocol does not name topics."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self.roster:
            found = subscribed_topics(member.metadata(self.protocol_name))
            if found is None:
                return None
            topics.update(found)
        return frozenset(topics)

    def retention(self) -> Retention:
        """Return a function (topic, commit time) -> start of the offset's retention in ms, or None.

        The retention starts at the commit or, in a group whose members have left, at the last leave.
        None: the offset is in use and does not expire.
        """
        if self.protocol_type is None:
            return lambda topic, committed_at_ms: committed_at_ms
        if self.state is State.EMPTY:
            return lambda topic, committed_at_ms: max(self.state_since_ms, committed_at_ms)
        read = self.subscribed_topics() if self.state is State.STABLE else None
        return lambda topic, committed_at_ms: (
            committed_at_ms if read is not None and topic not in read else None
        )

    def describe(self) -> GroupView:
        """Return the administrator's view, with metadata and assignments only in the state Stable."""
        settled = self.state is State.STABLE
        return GroupView(
            self.group_id,
            "classic",
            self.state.value,
            self.protocol_type or "",
            self.protocol_name or "" if settled else "",
            self.generation,
            self.generation,
            self.roster.leader or "",
            tuple(
                MemberView(
                    m.member_id,
                    m.instance_id,
                    m.client_id,
                    m.client_host,
                    "classic",
                    self.generation,
                    m.rebalance_timeout_ms,
                    metadata=m.metadata(self.protocol_name) if settled else b"",
                    assignment=m.assignment if settled else b"",
                )
                for m in self.roster
            ),
        )

    # -- KIP-848 ---------------------------------------------------------------------------------

    def upgrade(self, event: ev.ConsumerGroupHeartbeat) -> None:
        """Convert the group for a member of KIP-848, or refuse the member."""
        outcome = upgrade(self, event, self.now_ms, ClassicGroup.restore)
        if not isinstance(outcome, tuple):
            self.out.append(outcome)
            return
        group, records, effects = outcome

        def saved(error: Code) -> None:
            if error is not Code.NONE:
                self.out.append(answer_absent(event, error))
                return
            self.out.append(fx.ReplaceMachine(group))
            for member in self.roster:
                self.answer_parked(member, Code.REBALANCE_IN_PROGRESS)
            self.out += effects

        self.out.append(fx.SaveRecords(records, self.after_save(saved)))


Rule = Callable[[ClassicGroup, Any], None]

#: A row for each event: the rules in Empty, PreparingRebalance, CompletingRebalance and Stable.
_LIVING: Final[Mapping[type[Any], tuple[Rule, Rule, Rule, Rule]]] = {
    ev.JoinGroup: (join,) * 4,
    ev.SyncGroup: (
        rules.sync_too_early,
        rules.sync_too_early,
        rules.sync_completing,
        rules.sync_stable,
    ),
    ev.Heartbeat: (rules.heartbeat, rules.heartbeat_preparing, rules.heartbeat, rules.heartbeat),
    ev.CommitOffsets: (rules.commit_empty, rules.commit, rules.commit_completing, rules.commit),
    ev.FetchOffsets: (rules.fetch,) * 4,
    ev.LeaveGroup: (rules.leave,) * 4,
    ev.DeleteGroup: (rules.delete, rules.refuse_delete, rules.refuse_delete, rules.refuse_delete),
    ev.ConsumerGroupHeartbeat: (ClassicGroup.upgrade,) * 4,
    ev.CatalogueChanged: (rules.catalogue_changed,) * 4,
    ev.Saved: (rules.saved,) * 4,
    ev.TimersDue: (rules.timers_due,) * 4,
    ev.TargetComputed: (rules.nothing,) * 4,
}
#: The rules of a dead group for events that are not requests.
_DEAD: Final[Mapping[type[Any], Rule]] = {
    ev.CatalogueChanged: rules.catalogue_changed,
    ev.Saved: rules.saved,
    ev.TimersDue: rules.nothing,
    ev.TargetComputed: rules.nothing,
}
RULES: Final[Mapping[tuple[State, type[Any]], Rule]] = {
    (state, event): rule
    for event, row in _LIVING.items()
    for state, rule in zip(State, (*row, _DEAD.get(event, rules.answer_dead)), strict=True)
}
