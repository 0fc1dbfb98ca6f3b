"""The leader's part of a round: metadata -> the planner's input -> placement -> every answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from mode import get_logger

from faust_assigner.app.rebalance.doubts import Record, checked
from faust_assigner.app.rebalance.member_claims import (
    Claimed,
    MemberClaims,
    claims_of,
    read_members,
)
from faust_assigner.app.rebalance.next_round import awaited, going_on
from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.app.rebalance.outcome import outcome_of, trigger
from faust_assigner.app.rebalance.placement import (
    ByTopic,
    Placement,
    dealt,
    directory_of,
    of_plan,
    with_globals,
)
from faust_assigner.app.rebalance.table_facts import TableFacts, agreed
from faust_assigner.app.rebalance.two_phase import Step, disbelieved, held_up, landed, step
from faust_assigner.ledger import decision_id
from faust_assigner.model import Member
from faust_assigner.planner import Plan, plan
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.answer import AnswerWriter
from faust_assigner.wire.bounded import LARGEST_INT
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.join import VERSION, JoinData
from faust_assigner.wire.outcome import Outcome

if TYPE_CHECKING:
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

logger = get_logger(__name__)

#: Faust's protocol version; an answer carries the lowest version among the members.
PROTOCOL_VERSION = 4


def no_warmups(is_cooperative: bool) -> WarmupPolicy | None:
    """Return no policy: all tasks move at once."""


@dataclass(frozen=True)
class LeaderView:
    """The leader's knowledge beside the members' metadata.

    ``generation`` is Kafka's number of the round being formed, -1 if the consumer does not know it.
    ``last`` and ``last_generation`` are the directory and generation of the leader's own last
    assignment. ``warmups`` returns the warm-up policy; its argument is whether all members are
    cooperative. ``names_standbys``: the answers name the holders of copies, if there is room.
    ``held_up``: member -> number of consecutive rounds, led by this leader, that the member delayed
    with old claims. ``record`` holds the leader's answers in the last of these rounds, ``before``
    the inputs of that decision. ``member_id`` is the leader's own, ``now`` the time in seconds
    since 1970. ``first`` is the outcome of the last round, if this round is its second round.
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


@dataclass(frozen=True)
class Round:
    """One decided round: the inputs, the plan (None if the planner failed) and all answers.

    ``awaited``: member -> changelog -> partitions that a follow-up round would move to this
    member's standbys. ``promised``: member -> topic -> partitions that the member gets in a second
    round; ``placement`` omits them. ``follows``: a second round follows at once. ``failure`` is the
    planner's exception. ``oversize`` is the size in bytes of the group's record with the directory
    of owners, if this was too large and the directory was omitted; else 0. ``held_up`` is the
    view's, after this round.
    """

    inputs: DecisionInputs
    member_claims: tuple[MemberClaims, ...]
    claimed: Claimed
    plan: Plan | None
    placement: Placement
    tables: TableFacts
    missing: tuple[str, ...]
    answers: Mapping[str, ConsumerProtocolMemberAssignment]
    failure: Exception | None = None
    oversize: int = 0
    awaited: Mapping[str, ByTopic] = field(default_factory=dict)
    promised: Mapping[str, ByTopic] = field(default_factory=dict)
    follows: bool = False
    held_up: Mapping[str, int] = field(default_factory=dict)
    outcome: Outcome = field(default_factory=Outcome)

    @property
    def refused(self) -> dict[str, str]:
        """Return member -> reason, for the members with refused claims."""
        return dict(self.inputs.refused)

    @property
    def record(self) -> Record:
        """Return the claims that truthful members of this round make in the next round."""
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
        """Return URL -> members, for each URL that more than one member gave."""
        by_url: dict[str, list[str]] = {}
        for one in self.member_claims:
            by_url.setdefault(one.data.url, []).append(one.member_id)
        return {url: members for url, members in by_url.items() if url and len(members) > 1}


def decide(
    view: LeaderView,
    partitions_of: Callable[[str], Any],
    metadata: Mapping[str, ConsumerProtocolMemberMetadata],
) -> Round:
    """Decide a round from ``metadata``, aiokafka's member id -> ConsumerProtocolMemberMetadata."""
    said = checked(read_members(metadata), view.generation, view.last_generation, view.record)
    said = disbelieved(said, view.held_up)
    topics = sorted({topic for one in said for topic in one.topics})
    counts = {topic: len(partitions_of(topic) or ()) for topic in topics}
    partitions = {topic: count for topic, count in counts.items() if count}
    tables = agreed(view.tables, ((j.topics, j.data) for j in said), view.app_id)
    generation = view.generation
    if generation < 0:
        dates = [max(j.data.generation, j.data.former_generation) for j in said]
        generation = min(max([view.last_generation, *dates]) + 1, LARGEST_INT - 1)
    # A leaving member gets no partitions. If all members are leaving, their partitions do not move.
    staying = tuple(j for j in said if not j.data.leaves) or said
    claimed = claims_of(
        staying,
        partitions,
        tables.globals_,
        generation=generation,
        is_kafkas=view.generation >= 0,
        last=view.last,
        last_generation=view.last_generation,
    )
    refused = {j.member_id: j.refused for j in said if j.refused is not None}
    inputs = DecisionInputs(
        view.app_id,
        generation,
        claimed.members,
        partitions,
        view.replicas,
        tables.stateful,
        view.weights,
        _previous_ids(said),
        {**refused, **claimed.refused},
        {j.member_id: j.data.software for j in said},
        weightless=frozenset({leader_topic(view.app_id)}) & partitions.keys(),
        warmups=view.warmups(all(j.data.cooperative for j in said)),
        joined=frozenset(j.data.url for j in said if _is_new(j, view.last)),
        left=frozenset(view.last.urls) - {j.data.url for j in said},
        urls={j.member_id: j.data.url for j in said},
        leaving=frozenset(j.member_id for j in said) - {j.member_id for j in staying},
    )
    inputs = replace(inputs, trigger=trigger(view.before, inputs))
    if view.before is None or view.before.generation != view.last_generation:
        inputs = replace(inputs, last=view.last, last_generation=view.last_generation)
    started = perf_counter()
    found, placement, failure = _place(inputs, staying)
    now = step(placement, said)
    inputs = replace(inputs, solve_ms=(perf_counter() - started) * 1000, follows=now.follows)
    off_target = {} if found is None else _awaited(found, inputs, now.follows)
    outcome = outcome_of(inputs, found, at=view.now, first=view.first)
    inputs = replace(inputs, completes=outcome.completes)
    answers, oversize = _answer(
        view, outcome, generation, said, staying, now, off_target, partitions, tables, metadata
    )
    missing = tuple(topic for topic in topics if topic not in partitions)
    return Round(
        inputs,
        said,
        claimed,
        found,
        now.placement,
        tables,
        missing,
        answers,
        failure,
        oversize,
        off_target,
        now.promised,
        now.follows,
        held_up(view.held_up, now.held_up_by),
        outcome,
    )


def _is_new(one: MemberClaims, last: Directory) -> bool:
    # Without a directory (it was too large) only members that never had an assignment are surely
    # new.
    return one.data.generation < 0 or (bool(last.urls) and one.data.url not in last.urls)


def leader_topic(app_id: str) -> str:
    """Return Faust's leader topic: its one partition's owner leads the app. It carries no work."""
    return f"{app_id}-__assignor-__leader"


def _previous_ids(said: Sequence[MemberClaims]) -> dict[str, int]:
    """Return topic -> the previous id of its group; the newest metadata has priority."""
    ids: dict[str, int] = {}
    for one in sorted(said, key=lambda j: (j.data.generation, j.data.version)):
        ids.update(one.data.group_ids)
    return ids


def _place(
    inputs: DecisionInputs,
    said: Sequence[MemberClaims],
) -> tuple[Plan | None, Placement, Exception | None]:
    """Return (the plan, its placement, the planner's exception)."""
    try:
        anew = _plan(inputs, inputs.members)
        found = landed(anew, said)
        if found is not anew and inputs.warmups is not None:
            found = _going_on(found, inputs)
        return found, of_plan(found), None
    except Exception as exc:  # any answer is better for the group than no answer
        return (
            None,
            dealt(
                inputs.members,
                inputs.partitions,
                replicas=inputs.replicas,
                changelogs=inputs.changelogs,
                previous_ids=inputs.previous_ids,
            ),
            exc,
        )


def _plan(inputs: DecisionInputs, members: Sequence[Member]) -> Plan:
    return plan(
        members,
        inputs.partitions,
        replicas=inputs.replicas,
        changelogs=inputs.changelogs,
        weightless=inputs.weightless,
        weights=inputs.weights,
        previous_ids=inputs.previous_ids,
        warmups=inputs.warmups,
    )


def _going_on(found: Plan, inputs: DecisionInputs) -> Plan:
    # ``onward`` of a plan refers to the plan's own owners, not to the owners of the previous round.
    try:
        return going_on(found, inputs.members, partial(_plan, inputs))
    except Exception:  # this round is valid without the next
        logger.exception("Could not plan the follow-up round; the present warm-ups continue")
        return found


def _awaited(found: Plan, inputs: DecisionInputs, follows: bool) -> dict[str, ByTopic]:
    if inputs.warmups is not None:
        # Also sent in the first of two rounds: members report it back, so that the target is kept.
        return {m: topics for m in found.member_ids if (topics := found.awaited(m))}
    if follows:  # the second round computes the awaited standbys
        return {}
    try:
        return awaited(found, inputs.members, partial(_plan, inputs))
    except Exception:  # this round is valid without the next
        logger.exception("Could not plan the follow-up round; no member requests it")
        return {}


def _answer(
    view: LeaderView,
    outcome: Outcome,
    generation: int,
    said: Sequence[MemberClaims],
    staying: Sequence[MemberClaims],
    now: Step,
    off_target: Mapping[str, ByTopic],
    partitions: Mapping[str, int],
    tables: TableFacts,
    metadata: Mapping[str, object],
) -> tuple[dict[str, ConsumerProtocolMemberAssignment], int]:
    """Return each member's assignment, and the least size of a too large group record (else 0)."""
    placement = now.placement
    given = with_globals(
        placement, {j.member_id: j.topics for j in staying}, partitions, tables.globals_
    )
    writer = AnswerWriter(
        _directory(view, said, placement, tables),
        placement.group_ids,
        generation=generation,
        is_uniform=all(j.data.is_ours for j in said),
        version=min((j.data.version for j in said if j.data.is_ours), default=VERSION),
        decision_id=decision_id(view.app_id, generation, placement.member_ids),
        among=len(staying) if now.follows else 0,
        outcome=outcome,
    )
    version = max(0, min([PROTOCOL_VERSION, *(j.protocol_version for j in said)]))

    def answer(one: MemberClaims, *, with_directory: bool) -> ConsumerProtocolMemberAssignment:
        actives, standbys = (
            given.actives.get(one.member_id, {}),
            given.standbys.get(one.member_id, {}),
        )
        if one.data.is_ours:
            own = placement.actives.get(one.member_id, {})
            packed = writer.for_ours(
                actives,
                standbys,
                one.data.url,
                with_directory=with_directory,
                awaited=off_target.get(one.member_id),
                promised=now.promised.get(one.member_id),
                writes={t: own[t] for t in tables.globals_ if t in own},
                leads=one.member_id == view.member_id,
            )
        else:
            packed = writer.for_stock(actives, standbys, one.data.url)
        return ConsumerProtocolMemberAssignment(version, protocol_list(actives, standbys), packed)

    size = sum(writer.shared_bytes for one in said if one.data.is_ours)
    if size <= view.record_bytes:
        answers = {one.member_id: answer(one, with_directory=True) for one in said}
        size = sum(
            _record_bytes(one, metadata[one.member_id], answers[one.member_id]) for one in said
        )
        if size <= view.record_bytes:
            return answers, 0
    if view.names_standbys:
        return _answer(
            replace(view, names_standbys=False),
            outcome,
            generation,
            said,
            staying,
            now,
            off_target,
            partitions,
            tables,
            metadata,
        )
    return {one.member_id: answer(one, with_directory=False) for one in said}, size


def _directory(
    view: LeaderView, said: Sequence[MemberClaims], placement: Placement, tables: TableFacts
) -> Directory:
    urls = {j.member_id: j.data.url for j in said}
    instances = {j.member_id: j.data.instance_id for j in said if j.data.instance_id}
    return directory_of(
        placement,
        urls,
        instances,
        tables.changelogs,
        tables.globals_,
        with_standbys=view.names_standbys,
    )


def _record_bytes(
    one: MemberClaims,
    said: ConsumerProtocolMemberMetadata,
    answer: ConsumerProtocolMemberAssignment,
) -> int:
    """Return the bytes that Kafka stores per member: metadata, assignment and about 150 more."""
    size = 150 + 2 * len(one.member_id) + len(said.user_data or b"") + len(answer.user_data)
    size += sum(2 + len(topic) for topic in one.topics)
    return size + sum(10 + len(topic) + 4 * len(numbers) for topic, numbers in answer.assignment)


def protocol_list(
    actives: Mapping[str, list[int]],
    standbys: Mapping[str, list[int]],
) -> list[tuple[str, list[int]]]:
    """Return topic -> partitions to fetch, actives before standbys; stock members compare this."""
    topics = sorted(actives.keys() | standbys.keys())
    return [(topic, [*actives.get(topic, ()), *standbys.get(topic, ())]) for topic in topics]
