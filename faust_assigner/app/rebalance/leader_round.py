"""The leader's round as two values: the inputs of the decision, and the decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from faust_assigner.app.rebalance.doubts import Record
from faust_assigner.app.rebalance.member_claims import Claimed, MemberClaims
from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.app.rebalance.placement import ByTopic, Placement
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.planner import Plan
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.join import JoinData
from faust_assigner.wire.outcome import Outcome

if TYPE_CHECKING:
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment


def no_warmups(is_cooperative: bool) -> WarmupPolicy | None:
    """Return None, which means that no task warms up: all tasks move at once."""


@dataclass(frozen=True)
class LeaderView:
    """The inputs of a leader's decision in addition to the members' metadata.

    - ``generation``: Kafka's number of the round being formed; -1 if the consumer does not know it.
    - ``last``, ``last_generation``: the directory of owners and the generation of the leader's own
      last assignment.
    - ``warmups``: returns the warm-up policy; its argument is whether all members are cooperative.
    - ``names_standbys``: whether the answers contain the holders of copies, if there is room.
    - ``held_up``: member -> number of consecutive rounds of this leader that the member has delayed
    with claims of an old generation.
    - ``record``, ``before``: this leader's last answers, and the inputs of that decision.
    - ``member_id``: the leader's own member id.
    - ``now``: the time in seconds since 1970.
    - ``first``: the outcome of the last round, if this round is its second round.
    - ``is_cooperative``: whether the group has chosen the cooperative protocol for this round.
    """

    app_id: str
    tables: TableFacts
    replicas: int
    generation: int = -1
    last: Directory = field(default_factory=Directory)
    last_generation: int = -1
    weights: Any = None
    record_bytes: int = 1_000_000
    warmups: Callable[[bool], WarmupPolicy | None] = no_warmups
    names_standbys: bool = False
    held_up: Mapping[str, int] = field(default_factory=dict)
    record: Record = field(default_factory=Record)
    before: DecisionInputs | None = None
    member_id: str = ""
    now: float = 0.0
    first: Outcome | None = None
    is_cooperative: bool = False


@dataclass(frozen=True)
class Round:
    """One decided round: the inputs, the plan (None if the planner failed) and all answers.

    - ``awaited``: member -> changelog -> partitions that a follow-up round would move to this
      member's standbys.
    - ``promised``: member -> topic -> partitions that the member gets in a second round;
      ``placement`` omits them.
    - ``failure``: the planner's exception.
    - ``oversize``: 0, or the size in bytes of a group record that was too large, so that the
      directory of owners was omitted.
    - ``held_up``: as in :class:`LeaderView`, after this round.
    """

    inputs: DecisionInputs
    member_claims: tuple[MemberClaims, ...]
    claimed: Claimed
    plan: Plan | None
    placement: Placement
    tables: TableFacts
    missing: tuple[str, ...]
    answers: Mapping[str, ConsumerProtocolMemberAssignment] = field(default_factory=dict)
    failure: Exception | None = None
    oversize: int = 0
    awaited: Mapping[str, ByTopic] = field(default_factory=dict)
    promised: Mapping[str, ByTopic] = field(default_factory=dict)
    held_up: Mapping[str, int] = field(default_factory=dict)
    outcome: Outcome = field(default_factory=Outcome)

    @property
    def follows(self) -> bool:
        """Return whether a second round follows at once."""
        return self.inputs.follows

    @property
    def staying(self) -> tuple[MemberClaims, ...]:
        """Return the members that get partitions."""
        leaving = self.inputs.leaving
        return tuple(one for one in self.member_claims if one.member_id not in leaving)

    @property
    def refused(self) -> dict[str, str]:
        """Return member -> reason, for the members with refused claims."""
        return dict(self.inputs.refused)

    @property
    def record(self) -> Record:
        """Return the claims that the members of this round may make in the next round."""
        placement, among = self.placement, self.inputs.members if self.follows else ()
        return Record(
            self.inputs.generation,
            {
                m: JoinData(
                    actives=placement.actives.get(m, {}),
                    standbys=placement.standbys.get(m, {}),
                    promised=self.promised.get(m, {}),
                    awaited=self.awaited.get(m, {}),
                    among=len(among),
                    generation=self.inputs.generation,
                )
                for m in self.answers
            },
        )

    @property
    def shared_urls(self) -> dict[str, list[str]]:
        """Return URL -> members, for each URL that more than one member reports."""
        by_url: dict[str, list[str]] = {}
        for one in self.member_claims:
            by_url.setdefault(one.data.url, []).append(one.member_id)
        return {url: members for url, members in by_url.items() if url and len(members) > 1}
