"""Find changes that would have avoided a move: plan the decision again, with one change at a time. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from faust_assigner.errors import FaustAssignerError
from faust_assigner.model import NOBODY, Member
from faust_assigner.planner import Plan
from faust_assigner.story.decisions import Decision, Place
from faust_assigner.story.incidents import Moved
from faust_assigner.story.read import Story
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.plan_input import PlanInput


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A plan's owner of a task, and whether this owner has none of the task's state."""

    owner: str
    is_cold: bool


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A change that avoids the move or its cold restore.

    ``change`` is a setting or an event, as text; ``then`` is the result of the change, as text.
    """

    change: str
    then: str


def remedies(story: Story, move: Moved, place: Place) -> tuple[tuple[Remedy, ...], str]:
    """Return (changes that avoid the move or its cold restore; the reason if none was tried, else "")."""
    decision, asked = move.by, move.by.asked
    if asked is None:
        return ((), "the ledger lacks the decision's input (an older version wrote the ledger)")
    try:
        was = _outcome(asked.plan(), place)
        if was is None or was.owner != move.to:
            return (
                (),
                "planning again gives a different plan: the round carried out the previous round's target",
            )
        found = [
            remedy
            for change, make in _possible_changes(story, move, place, asked)
            if (remedy := _try_change(story, change, make, place, move, was)) is not None
        ]
    except FaustAssignerError as error:
        return (), f"the decision {decision.decision_id} cannot be planned again: {error}"
    return tuple(found), ""


def _try_change(
    story: Story,
    change: str,
    make: Callable[[], PlanInput | None],
    place: Place,
    move: Moved,
    was: Outcome,
) -> Remedy | None:
    asked = make()
    now = None if asked is None else _outcome(asked.plan(), place)
    if now is None:
        return None
    if move.was is not None and now.owner == move.was:
        return Remedy(change=change, then=f"it stays with {story.name(move.was)}")
    if was.is_cold and not now.is_cold:
        return Remedy(
            change=change, then=f"it goes to {story.name(now.owner)}, which has its state"
        )
    return None


def _possible_changes(
    story: Story, move: Moved, place: Place, asked: PlanInput
) -> Iterator[tuple[str, Callable[[], PlanInput | None]]]:
    """Yield (text, function that makes the changed input) per change: events, then settings, then more disk.

    A function returns None if its change is not possible.
    """
    incident = move.origin
    for gone in sorted(incident.gone):
        name = story.name(gone)
        static = incident.before is not None and gone in incident.before.static
        if static:
            wait = "a longer session timeout (broker_session_timeout): the static member"
            yield f"{wait} {name} is back in time", partial(_with_departed, gone, move, asked)
        elif gone in incident.handed_over:
            change = (
                f"an instance id for {name} (consumer_group_instance_id), back within its session"
            )
            yield change, partial(_with_departed, gone, move, asked)
        else:
            yield f"{name} still there", partial(_with_departed, gone, move, asked)
    if incident.came:
        names = ", ".join(sorted(map(story.name, incident.came)))
        yield f"without {names}", partial(_without_newcomers, incident.came, asked)
    if asked.warmups is None:
        yield "warm-ups on (FAUST_ASSIGNER_WARMUPS)", lambda: replace(asked, warmups=WarmupPolicy())
    else:
        smaller = replace(asked.warmups, acceptable_recovery_lag=0)
        if smaller != asked.warmups:
            change = "an acceptable lag of 0 records (FAUST_ASSIGNER_ACCEPTABLE_RECOVERY_LAG=0)"
            yield change, lambda: replace(asked, warmups=smaller)
    if asked.weights is not None:
        yield "weights off (FAUST_ASSIGNER_WEIGHTS_MODE)", lambda: replace(asked, weights=None)
    if len({member.capacity for member in asked.members}) > 1:
        yield (
            "equal capacities (FAUST_ASSIGNER_CAPACITY)",
            lambda: asked.with_members(replace(member, capacity=1.0) for member in asked.members),
        )
    more = asked.replicas + 1
    change = f"one standby more (table_standby_replicas={more}), caught up"
    yield change, partial(_with_one_more_standby, move, asked)


def _with_departed(gone: str, move: Moved, asked: PlanInput) -> PlanInput | None:
    """Return the input with the departed member as it was in the previous round; None if that is unknown."""
    member = _member_as_before(gone, move.origin.before, asked)
    return None if member is None else asked.with_members((*asked.members, member))


def _member_as_before(gone: str, before: Decision | None, asked: PlanInput) -> Member | None:
    if before is None or not asked.members:
        return None
    known = None if before.asked is None else before.asked.member(gone)
    model = known or asked.members[0]
    newest = max(member.generation for member in asked.members)
    return replace(
        model,
        member_id=gone,
        actives=_partitions_of(gone, {p: a.member_id for p, a in before.actives.items()}),
        standbys={
            topic: [n for (t, n), held in before.standbys.items() if t == topic and gone in held]
            for topic in {t for (t, _), held in before.standbys.items() if gone in held}
        },
        former_actives={},
        generation=newest,
        positions=None,
        awaited={},
        overdue={},
    )


def _partitions_of(member_id: str, owners: dict[Place, str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for (topic, number), owner in sorted(owners.items()):
        if owner == member_id:
            found.setdefault(topic, []).append(number)
    return found


def _without_newcomers(came: frozenset[str], asked: PlanInput) -> PlanInput | None:
    left = [member for member in asked.members if member.member_id not in came]
    return asked.with_members(left) if left else None


def _with_one_more_standby(move: Moved, asked: PlanInput) -> PlanInput | None:
    """Return the input with one more standby per task from the previous round; None if that is unknown."""
    before = move.incident.before
    if before is None or before.asked is None:
        return None
    earlier = replace(before.asked, replicas=asked.replicas + 1).plan()
    members = [
        replace(member, standbys=_all_claims(member, earlier), positions=None)
        if member.member_id in earlier.member_ids
        else member
        for member in asked.members
    ]
    return replace(asked, members=tuple(members), replicas=asked.replicas + 1)


def _all_claims(member: Member, earlier: Plan) -> dict[str, list[int]]:
    copies = earlier.standbys(member.member_id)
    return {
        topic: sorted({*copies.get(topic, ()), *map(int, member.standbys.get(topic, ()))})
        for topic in {*copies, *member.standbys}
    }


def _outcome(plan: Plan, place: Place) -> Outcome | None:
    topic, number = place
    for g, group in enumerate(plan.groups):
        if topic in group.topics and number < group.partitions:
            owner = int(plan.owner[g][number])
            if owner == NOBODY:
                return None
            held = plan.previous_owner[g][number] == owner or plan.standby_hit[g][number]
            return Outcome(
                owner=plan.member_ids[owner], is_cold=group.is_stateful and not bool(held)
            )
    return None


def task_of(decision: Decision, place: Place) -> tuple[str, ...]:
    """Return the topics that are co-partitioned with a partition's topic, or only this topic if unknown."""
    if decision.asked is not None:
        with suppress(FaustAssignerError):
            for group in decision.asked.plan().groups:
                if place[0] in group.topics:
                    return group.topics
    return (place[0],)
