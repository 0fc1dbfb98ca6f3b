"""The views of a classic group (:class:`~faust_assigner.coordinator.group.Group`)."""

from __future__ import annotations

from faust_assigner.coordinator.group import GroupType, GroupView, MemberView, Retention
from faust_assigner.coordinator.protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from faust_assigner.coordinator.rounds import GroupRounds
from faust_assigner.coordinator.states import State


class ClassicViews(GroupRounds):
    """Read-only questions."""

    @property
    def group_type(self) -> GroupType:
        """A classic group."""
        return "classic"

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members; unused ids do not count."""
        return not len(self.roster)

    @property
    def is_unproven(self) -> bool:
        """Whether no member has ever joined; unused ids do not count."""
        return self.is_empty and not self.generation

    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics of any member, or None if the group's protocol does not name topics."""
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
        """Offsets expire from their commit if no member ever joined, else from the last leave."""
        if self.protocol_type is None:
            return lambda topic, committed_at_ms: committed_at_ms
        if self.state is State.EMPTY:
            return lambda topic, committed_at_ms: max(self.state_since_ms, committed_at_ms)
        read = self.subscribed_topics() if self.state is State.STABLE else None
        return lambda topic, committed_at_ms: (
            committed_at_ms if read is not None and topic not in read else None
        )

    def describe(self) -> GroupView:
        """Return the administrator's view; metadata and assignments only while valid."""
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
