"""Decides the next steps of the hand-offs in progress, from the view of the store alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import (
    Effect,
    Handoff,
    HandoffEvent,
    Phase,
    State,
    TopicPartition,
    advanced,
    state_of,
    step,
)
from faust_assigner.service.leading.bundles import (
    COOLDOWN_LEASE,
    EXPELLED_LEASE,
    Bundle,
    joined,
    owner,
    still_gone,
)
from faust_assigner.service.leading.copartitioned import bound_topics, copartitioned_with
from faust_assigner.service.records import Status, names_itself
from faust_assigner.service.store.base import Delete, Put, Write
from faust_assigner.service.view import Entry, View
from faust_assigner.settings.service import ServiceSettings


def advance(
    view: View, late: Collection[TopicPartition], settings: ServiceSettings, now: float
) -> Iterator[Bundle]:
    """Iterate over the due steps of the hand-offs in progress.

    ``late``: the hand-offs whose time is over. ``now`` (unix seconds) is only written into the
    cool-downs, for operators; no decision depends on ``now``.
    """
    bound = bound_topics(view)
    given: dict[TopicPartition, list[Bundle]] = {}
    expelled: set[str] = set()
    for at in sorted(view.handoffs):
        entry = view.handoffs[at]
        state, copartitioned = state_of(entry.value), _incomplete_in_group(view, at, bound)
        for event in _events(view, entry.value, copartitioned, late):
            after = step(state, event, strict=entry.value.strict)
            if after is None:
                continue
            if after[1] is Effect.EXPEL:
                # One expulsion ends the owner's session; its other hand-offs then wait until the
                # owner's lease has expired.
                if entry.value.old_owner not in expelled:
                    expelled.add(entry.value.old_owner)
                    yield _expelling(view, entry, event)
                break
            bundle = step_bundle(view, entry, event, *after, now + settings.cooldown_s)
            if event is HandoffEvent.LOOK and after[1] is Effect.GIVE:
                given.setdefault(copartitioned_with(at, bound)[0], []).append(bundle)
            else:
                yield bundle
            break
    for bundles in given.values():
        yield from joined(bundles)


def _incomplete_in_group(
    view: View, at: TopicPartition, bound: Mapping[str, tuple[str, ...]]
) -> list[Handoff]:
    """Return the incomplete hand-offs of co-partitioned partitions between the same two consumers.

    Co-partitioned partitions have the same number (:func:`copartitioned_with`).
    """
    mine = view.handoffs[at].value
    found = (
        view.handoffs[other].value
        for other in copartitioned_with(at, bound)
        if other in view.handoffs
    )
    return [
        other
        for other in found
        if other.phase is not Phase.COMPLETE
        and (other.old_owner, other.new_owner) == (mine.old_owner, mine.new_owner)
    ]


def _events(
    view: View, handoff: Handoff, copartitioned: Sequence[Handoff], late: Collection[TopicPartition]
) -> Iterator[HandoffEvent]:
    """Iterate over the events that apply to the hand-off now, the most urgent first."""
    new = view.consumers.get(handoff.new_owner)
    owner = view.assignments.get(handoff.at)
    # The assignment has changed or the partition was removed: the hand-off can no longer take
    # effect.
    lost = (
        owner is None
        or not view.exists(handoff.at)
        or owner.value.process
        != (handoff.new_process if handoff.phase is Phase.COMPLETE else handoff.old_process)
    )
    is_new_gone = not view.is_registered(*handoff.new_process)
    is_old_registered = view.is_registered(*handoff.old_process)
    state = state_of(handoff)
    leaving = new is not None and new.value.status is Status.DRAINING
    if state is State.UNRELEASED and is_old_registered:
        yield HandoffEvent.LOOK  # first: an old owner that could not flush is expelled in any case
    if is_new_gone or lost or (leaving and handoff.phase is not Phase.COMPLETE):
        yield HandoffEvent.NEW_GONE
    if not view.may_work(*handoff.old_process):
        yield HandoffEvent.OLD_GONE
    if handoff.phase is not Phase.COMPLETE:
        # The hand-offs of co-partitioned partitions complete together and abort together.
        if any(other.at != handoff.at and _fails(other, late) for other in copartitioned):
            yield HandoffEvent.NEW_GONE
        ready = all(state_of(other) in (State.READY, State.RELEASED) for other in copartitioned)
        if not ready and handoff.failed is None:
            # An unregistered old owner needs no expulsion: its lease expires without renewal.
            if handoff.at in late and (state is State.WARMING or is_old_registered):
                yield HandoffEvent.LATE
            return
    yield HandoffEvent.LOOK
    if handoff.at in late:
        yield HandoffEvent.LATE


def _fails(handoff: Handoff, late: Collection[TopicPartition]) -> bool:
    """Whether the hand-off is about to be aborted."""
    is_warming = state_of(handoff) is State.WARMING
    return handoff.failed is not None or (is_warming and handoff.at in late)


def step_bundle(
    view: View,
    entry: Entry[Handoff],
    event: HandoffEvent,
    to: State,
    effect: Effect,
    cool_until: float,
) -> Bundle:
    """Make the bundle for one step of a hand-off, with its change to the assignment."""
    handoff, at = entry.value, entry.value.at
    key, assignment = view.keys.handoff(at), view.keys.assignment(at)
    compares = [view.same(key)]
    writes: list[Write] = []
    if to is State.GONE:
        writes.append(Delete(key))
    else:
        writes.append(Put(key, codec.dump_handoff(advanced(handoff, to))))
    if effect is Effect.GIVE:
        compares.append(view.same(assignment))
        if event is HandoffEvent.OLD_GONE:
            compares.append(still_gone(view, handoff.old_owner))
        writes.append(owner(view, at, *handoff.new_process, handoff.offset))
    elif effect is Effect.COOL:
        key = view.keys.cooldown(at, handoff.new_owner)
        writes.append(Put(key, codec.dump_until(cool_until), COOLDOWN_LEASE))
    outcome = _outcome(handoff, event, effect)
    return Bundle(
        tuple(compares),
        tuple(writes),
        ((str(at), _outcome_text(handoff, outcome)),) if outcome else (),
        ((outcome, at),) if outcome else (),
    )


#: The event that aborts a hand-off -> the outcome in the metrics.
_ABORTED: Mapping[HandoffEvent, str] = {
    HandoffEvent.LOOK: "failed",
    HandoffEvent.LATE: "late",
    HandoffEvent.UNWANTED: "unwanted",
    HandoffEvent.NEW_GONE: "target_gone",
}


def _outcome(handoff: Handoff, event: HandoffEvent, effect: Effect) -> str:
    """Return the outcome that the step reports; "" if the hand-off was already complete."""
    if effect is Effect.GIVE:
        if handoff.unreleased is not None:
            return "expelled"
        return "orphan" if event is HandoffEvent.OLD_GONE else "handed"
    return "" if handoff.phase is Phase.COMPLETE else _ABORTED[event]


def _outcome_text(handoff: Handoff, outcome: str) -> str:
    """Describe the outcome for the log."""
    old, new = handoff.old_owner, handoff.new_owner
    kept = f"stays with {old}, because {new}"
    return {
        "handed": f"{new} is the new owner; {old} handed it over",
        "orphan": f"{new} is the new owner, because {old} is gone",
        "expelled": f"{new} is the new owner, because {old} did not release it and was expelled",
        "failed": f"{kept} gave up: {handoff.failed}",
        "late": f"{kept} did not get ready in time",
        "unwanted": f"stays with {old}: the plan no longer moves it to {new}",
        "target_gone": f"{kept} is gone or leaves, or the hand-off of a co-partitioned partition "
        "ended",
    }[outcome]


def _expelling(view: View, entry: Entry[Handoff], event: HandoffEvent) -> Bundle:
    """Make the bundle that ends the old owner's session.

    The service no longer renews the old owner's lease. Until this lease has expired, the expelled
    owner's partitions get no new owner.
    """
    handoff, keys = entry.value, view.keys
    name, incarnation = handoff.old_process
    session = view.consumers[name].kv
    after = advanced(handoff, State.EXPELLED)
    # Without an incarnation, a process cannot be distinguished from its successor. The key that
    # refuses both is therefore bound to the process's lease.
    lease = EXPELLED_LEASE if names_itself(incarnation) else session.lease
    writes: list[Write] = [Put(entry.kv.key, codec.dump_handoff(after)), Delete(session.key)]
    if lease:
        writes.append(Put(keys.expelled(name, incarnation), str(after.unreleased).encode(), lease))
    if session.lease:
        writes.append(Put(keys.fence(name, incarnation), b"expelled", session.lease))
    return Bundle(
        (view.same(entry.kv.key), view.same(session.key)),
        tuple(writes),
        warning=(
            f"{handoff.at}: {name} (incarnation {incarnation or 'not given'}) is expelled: "
            f"{after.unreleased}. Other consumers get its partitions when its lease has expired; "
            "restart the process"
        ),
    )
