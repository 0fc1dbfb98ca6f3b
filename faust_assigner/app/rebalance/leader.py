"""The leader's part of a round: from the members' metadata to a plan and to all answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from mode import get_logger

from faust_assigner.app.rebalance.answers import encode_answers
from faust_assigner.app.rebalance.doubts import (
    agreed,
    checked,
    count_delayed_rounds,
    refuse_overdue_claims,
)
from faust_assigner.app.rebalance.leader_round import LeaderView, Round
from faust_assigner.app.rebalance.member_claims import (
    Claimed,
    MemberClaims,
    claims_of,
    read_members,
)
from faust_assigner.app.rebalance.next_round import awaited, with_next_warmups
from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.app.rebalance.outcome import outcome_of, trigger
from faust_assigner.app.rebalance.placement import ByTopic, Placement, dealt, placement_of_plan
from faust_assigner.app.rebalance.second_round import landed
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.app.rebalance.two_phase import step
from faust_assigner.model import Member
from faust_assigner.planner import Plan, plan
from faust_assigner.wire.bounded import LARGEST_INT
from faust_assigner.wire.directory import Directory

if TYPE_CHECKING:
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

logger = get_logger(__name__)


def decide(
    view: LeaderView,
    partitions_of: Callable[[str], Any],
    metadata: Mapping[str, ConsumerProtocolMemberMetadata],
) -> Round:
    """Decide a round from ``metadata``: member id -> aiokafka's ConsumerProtocolMemberMetadata.

    ``partitions_of`` returns the partitions of a topic; None or empty if the topic has none.
    """
    said = checked(read_members(metadata), view.generation, view.last_generation, view.record)
    said = refuse_overdue_claims(said, view.held_up)
    topics = sorted({topic for one in said for topic in one.topics})
    counts = {topic: len(partitions_of(topic) or ()) for topic in topics}
    partitions = {topic: count for topic, count in counts.items() if count}
    tables = agreed(view.tables, said, view.app_id)
    # A leaving member gets no partitions. If all members are leaving, their partitions do not move.
    staying = tuple(j for j in said if not j.data.leaves) or said
    claimed = claims_of(
        staying,
        partitions,
        tables.globals_,
        generation=_generation_of_round(view, said),
        is_kafkas=view.generation >= 0,
        last=view.last,
        last_generation=view.last_generation,
    )
    inputs = _decision_inputs(view, said, staying, claimed, partitions, tables)
    started = perf_counter()
    found, placement, failure = _plan_or_round_robin(inputs, staying)
    now = step(placement, said, is_cooperative=view.is_cooperative)
    inputs = replace(inputs, solve_ms=(perf_counter() - started) * 1000, follows=now.follows)
    outcome = outcome_of(inputs, found, at=view.now, first=view.first)
    decided = Round(
        replace(inputs, completes=outcome.completes),
        said,
        claimed,
        found,
        now.placement,
        tables,
        missing=tuple(topic for topic in topics if topic not in partitions),
        failure=failure,
        awaited={} if found is None else _awaited_standbys(found, inputs),
        promised=now.promised,
        held_up=count_delayed_rounds(view.held_up, now.held_up_by),
        outcome=outcome,
    )
    answers, oversize = encode_answers(view, decided)
    return replace(decided, answers=answers, oversize=oversize)


def _generation_of_round(view: LeaderView, said: Sequence[MemberClaims]) -> int:
    """Return Kafka's generation of this round; if unknown, the number after the newest claim."""
    if view.generation >= 0:
        return view.generation
    dates = [max(j.data.generation, j.data.former_generation) for j in said]
    return min(max([view.last_generation, *dates]) + 1, LARGEST_INT - 1)


def _decision_inputs(
    view: LeaderView,
    said: Sequence[MemberClaims],
    staying: Sequence[MemberClaims],
    claimed: Claimed,
    partitions: Mapping[str, int],
    tables: TableFacts,
) -> DecisionInputs:
    """Return the planner's input, with further facts for the log and the ledger."""
    refused = {j.member_id: j.refused for j in said if j.refused is not None}
    inputs = DecisionInputs(
        view.app_id,
        _generation_of_round(view, said),
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
        joined=frozenset(j.data.url for j in said if _is_new_member(j, view.last)),
        left=frozenset(view.last.urls) - {j.data.url for j in said},
        urls={j.member_id: j.data.url for j in said},
        leaving=frozenset(j.member_id for j in said) - {j.member_id for j in staying},
    )
    inputs = replace(inputs, trigger=trigger(view.before, inputs))
    if view.before is None or view.before.generation != view.last_generation:
        inputs = replace(inputs, last=view.last, last_generation=view.last_generation)
    return inputs


def _is_new_member(one: MemberClaims, last: Directory) -> bool:
    # The last answer may lack its directory because of the size. Then only a member that never
    # had an assignment is certainly new.
    return one.data.generation < 0 or (bool(last.urls) and one.data.url not in last.urls)


def leader_topic(app_id: str) -> str:
    """Return the name of Faust's leader topic.

    The owner of its only partition is the app's leader. The topic counts as no load.
    """
    return f"{app_id}-__assignor-__leader"


def _previous_ids(said: Sequence[MemberClaims]) -> dict[str, int]:
    """Return topic -> the previous id of its group; the newest metadata has priority."""
    ids: dict[str, int] = {}
    for one in sorted(said, key=lambda j: (j.data.generation, j.data.version)):
        ids.update(one.data.group_ids)
    return ids


def _plan_or_round_robin(
    inputs: DecisionInputs, said: Sequence[MemberClaims]
) -> tuple[Plan | None, Placement, Exception | None]:
    """Return (plan, placement, None); after a failure (None, round-robin placement, the error)."""
    try:
        anew = _plan_members(inputs, inputs.members)
        found = landed(anew, said)
        if found is not anew and inputs.warmups is not None:
            found = _with_next_warmups(found, inputs)
        return found, placement_of_plan(found), None
    except Exception as exc:  # the group needs an answer, even without a plan
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


def _plan_members(inputs: DecisionInputs, members: Sequence[Member]) -> Plan:
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


def _with_next_warmups(found: Plan, inputs: DecisionInputs) -> Plan:
    # The warm-ups of the new plan refer to the new plan's owners, so plan warm-ups for the owners
    # in ``found``.
    try:
        return with_next_warmups(found, inputs.members, partial(_plan_members, inputs))
    except Exception:  # this round's answers are valid without the next round's warm-ups
        logger.exception("Could not plan the follow-up round; the present warm-ups continue")
        return found


def _awaited_standbys(found: Plan, inputs: DecisionInputs) -> dict[str, ByTopic]:
    if inputs.warmups is not None:
        # Send the awaited standbys even in the first of two rounds: members report them back, so
        # that the second round keeps the target.
        return {m: topics for m in found.member_ids if (topics := found.awaited(m))}
    if inputs.follows:  # the second round computes the awaited standbys
        return {}
    try:
        return awaited(found, inputs.members, partial(_plan_members, inputs))
    except Exception:  # this round's answers are valid without the follow-up round
        logger.exception("Could not plan the follow-up round; no member requests it")
        return {}
