"""What the leader writes, decided from the view alone, each decision a small bundle of compares and writes.

A bundle is applied whole or not at all; bundles do not depend on each other, so that one partition that is
stuck, or has just changed, holds up no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from faust_assigner.service import keys as codec
from faust_assigner.service.handoff import (
    Effect,
    Handoff,
    Happening,
    Phase,
    State,
    TopicPartition,
    advanced,
    state_of,
    step,
)
from faust_assigner.service.leading.targets import Targets, bound_topics, crew_of
from faust_assigner.service.records import Assigned, PlannedMove, Status, names_itself
from faust_assigner.service.settings import ServiceSettings
from faust_assigner.service.store.base import MAX_OPERATIONS, Compare, Delete, Put, Write
from faust_assigner.service.view import Entry, View, has_more

#: One compare of each transaction is the leader's key.
MAX_BUNDLE = MAX_OPERATIONS - 1
#: etcd refuses a request of 1.5 MiB, keys and all.
MAX_CHUNK_BYTES = 1 << 20
#: Stand for leases of a cool-down's time, and of ``EXPELLED_S``, which the leader takes out when it writes
#: the bundle.
COOLDOWN_LEASE = -1
EXPELLED_LEASE = -2


@dataclass(frozen=True)
class Bundle:
    """One decision. ``story`` is for the log; ``ended`` names how a hand-off ended, where one did;
    ``warning`` is for the operator."""

    story: str
    compares: tuple[Compare, ...]
    writes: tuple[Write, ...]
    ended: tuple[str, TopicPartition] | None = None
    warning: str = ""


# -- hand-offs under way ---------------------------------------------------------------------------------


def advance(
    view: View, late: Collection[TopicPartition], settings: ServiceSettings, now: float
) -> Iterator[Bundle]:
    """What is due of the hand-offs under way. The time of those in ``late`` is over. ``now`` (unix seconds)
    is written into cool-downs for readers and decides nothing."""
    bound = bound_topics(view)
    given: dict[TopicPartition, list[Bundle]] = {}
    expelled: set[str] = set()
    for at in sorted(view.handoffs):
        entry = view.handoffs[at]
        state, crew = state_of(entry.value), _crew(view, at, bound)
        for happening in _happenings(view, entry.value, crew, late):
            after = step(state, happening, strict=entry.value.strict)
            if after is None:
                continue
            if after[1] is Effect.EXPEL:
                # One hand-off ends the session; the others of this owner wait with it for its lease.
                if entry.value.old_owner not in expelled:
                    expelled.add(entry.value.old_owner)
                    yield _expelling(view, entry, happening)
                break
            bundle = _moved(view, entry, happening, *after, now + settings.cooldown_s)
            if happening is Happening.LOOK and after[1] is Effect.GIVE:
                given.setdefault(crew_of(at, bound)[0], []).append(bundle)
            else:
                yield bundle
            break
    for bundles in given.values():
        yield from _joined(bundles)


def _crew(view: View, at: TopicPartition, bound: Mapping[str, tuple[str, ...]]) -> list[Handoff]:
    """The hand-offs under way with this one: of co-partitioned topics, between the same two consumers."""
    mine = view.handoffs[at].value
    found = (view.handoffs[other].value for other in crew_of(at, bound) if other in view.handoffs)
    return [
        other
        for other in found
        if other.phase is not Phase.COMPLETE
        and (other.old_owner, other.new_owner) == (mine.old_owner, mine.new_owner)
    ]


def _joined(bundles: Sequence[Bundle]) -> Iterator[Bundle]:
    """Those of one crew, all or none as far as the store takes so many at once; what is left follows."""
    for chunk in chunks(bundles, MAX_BUNDLE):
        yield (
            chunk[0]
            if len(chunk) == 1
            else Bundle(
                "; ".join(bundle.story for bundle in chunk),
                tuple(compare for bundle in chunk for compare in bundle.compares),
                tuple(write for bundle in chunk for write in bundle.writes),
                chunk[0].ended,
            )
        )


def chunks(bundles: Sequence[Bundle], limit: int) -> Iterator[list[Bundle]]:
    """Bundles together while neither their compares nor their writes are more than ``limit``, nor their
    values more than :data:`MAX_CHUNK_BYTES`."""
    chunk: list[Bundle] = []
    sizes = [0, 0, 0]
    for bundle in bundles:
        values = sum(len(write.value) for write in bundle.writes if isinstance(write, Put))
        more = [len(bundle.compares), len(bundle.writes), values]
        limits = (limit, limit, MAX_CHUNK_BYTES)
        if chunk and any(
            size + extra > most for size, extra, most in zip(sizes, more, limits, strict=True)
        ):
            yield chunk
            chunk, sizes = [], [0, 0, 0]
        chunk.append(bundle)
        sizes = [size + extra for size, extra in zip(sizes, more, strict=True)]
    if chunk:
        yield chunk


def _happenings(
    view: View, handoff: Handoff, crew: Sequence[Handoff], late: Collection[TopicPartition]
) -> Iterator[Happening]:
    """What is the case, the most urgent first."""
    new = view.consumers.get(handoff.new_owner)
    owner = view.assignments.get(handoff.at)
    # Somebody else has written the assignment, or the partition is no more: the hand-off has no object.
    lost = (
        owner is None
        or not view.exists(handoff.at)
        or (owner.value.owner, owner.value.incarnation)
        != (
            (handoff.new_owner, handoff.new_incarnation)
            if handoff.phase is Phase.COMPLETE
            else (handoff.old_owner, handoff.old_incarnation)
        )
    )
    is_new_gone = not view.is_registered(handoff.new_owner, handoff.new_incarnation)
    is_old_registered = view.is_registered(handoff.old_owner, handoff.old_incarnation)
    state = state_of(handoff)
    leaving = new is not None and new.value.status is Status.DRAINING
    if state is State.UNRELEASED and is_old_registered:
        yield Happening.LOOK  # whatever becomes of the hand-off, the old owner cannot go on
    if is_new_gone or lost or (leaving and handoff.phase is not Phase.COMPLETE):
        yield Happening.NEW_GONE
    if not view.may_work(handoff.old_owner, handoff.old_incarnation):
        yield Happening.OLD_GONE
    if handoff.phase is not Phase.COMPLETE:
        # What travels together is given together, and given up together.
        if any(other.at != handoff.at and _fails(other, late) for other in crew):
            yield Happening.NEW_GONE
        ready = all(state_of(other) in (State.READY, State.RELEASED) for other in crew)
        if not ready and handoff.failed is None:
            # Nobody is expelled twice: the lease of one that is not registered runs out by itself.
            if handoff.at in late and (state is State.WARMING or is_old_registered):
                yield Happening.LATE
            return
    yield Happening.LOOK
    if handoff.at in late:
        yield Happening.LATE


def _fails(handoff: Handoff, late: Collection[TopicPartition]) -> bool:
    """Whether it is about to be given up."""
    is_warming = state_of(handoff) is State.WARMING
    return handoff.failed is not None or (is_warming and handoff.at in late)


def _moved(
    view: View,
    entry: Entry[Handoff],
    happening: Happening,
    to: State,
    effect: Effect,
    cool_until: float,
) -> Bundle:
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
        if happening is Happening.OLD_GONE:
            compares.append(_still_gone(view, handoff.old_owner))
        writes.append(_owner(view, at, handoff.new_owner, handoff.new_incarnation, handoff.offset))
    elif effect is Effect.COOL:
        key = view.keys.cooldown(at, handoff.new_owner)
        writes.append(Put(key, codec.dump_until(cool_until), COOLDOWN_LEASE))
    outcome = None
    if effect is Effect.GIVE:
        outcome = "orphan" if happening is Happening.OLD_GONE else "handed"
        outcome = "expelled" if handoff.unreleased is not None else outcome
    elif handoff.phase is not Phase.COMPLETE:
        outcome = "aborted"
    return Bundle(
        f"{at}: {happening.value}: {to.value}",
        tuple(compares),
        tuple(writes),
        None if outcome is None else (outcome, at),
    )


def _expelling(view: View, entry: Entry[Handoff], happening: Happening) -> Bundle:
    """End the old owner's session. What it owns is nobody else's until its lease, which is renewed no more,
    is over."""
    handoff, keys = entry.value, view.keys
    name, incarnation = handoff.old_owner, handoff.old_incarnation
    session = view.consumers[name].kv
    after = advanced(handoff, State.EXPELLED)
    # A process that does not name itself is not told from the next one: it is refused during its lease.
    lease = EXPELLED_LEASE if names_itself(incarnation) else session.lease
    writes: list[Write] = [Put(entry.kv.key, codec.dump_handoff(after)), Delete(session.key)]
    if lease:
        writes.append(Put(keys.expelled(name, incarnation), str(after.unreleased).encode(), lease))
    if session.lease:
        writes.append(Put(keys.fence(name, incarnation), b"expelled", session.lease))
    return Bundle(
        f"{handoff.at}: {happening.value}: {name} is expelled",
        (view.same(entry.kv.key), view.same(session.key)),
        tuple(writes),
        warning=(
            f"{handoff.at}: {name} (incarnation {incarnation or 'not given'}) is expelled: "
            f"{after.unreleased}. Its partitions are given on when its lease has run out; "
            "restart the process"
        ),
    )


def _still_gone(view: View, name: str) -> Compare:
    """Whoever came back meanwhile goes on with what is its own: it is not given away under its hands."""
    return view.same(view.keys.consumer(name))


def _owner(
    view: View, at: TopicPartition, owner: str, incarnation: str, offset: int | None = None
) -> Put:
    assigned = Assigned(at, owner, offset=offset, incarnation=incarnation)
    return Put(view.keys.assignment(at), codec.dump_assigned(assigned))


# -- a rebalance -----------------------------------------------------------------------------------------


def rebalance(
    view: View, targets: Targets, settings: ServiceSettings, now: float
) -> Iterator[Bundle]:
    """Orphans first and at once, then hand-offs as far as the limits allow. ``now`` unix seconds."""
    wanted = targets.owner
    if not view.consumers:
        yield from _nobody(view)
        return
    for at in sorted(at for at in wanted if _is_orphan(view, at)):
        yield _given(view, at, wanted[at])
    for at in sorted(
        at
        for at in view.assignments.keys() | view.handoffs.keys()
        if not view.exists(at)
        or (
            at not in wanted
            and not _is_fenced(view, at)
            and not _is_leaving(view, _living_owner(view, at))
        )
    ):
        yield _forgotten(view, at)
    yield from _unwanted(view, wanted)
    yield from _begun(view, wanted, settings, now)


def waiting(view: View, targets: Targets) -> int:
    """How many partitions are to move and have no hand-off yet."""
    return sum(1 for _ in _due(view, targets.owner))


def _due(view: View, wanted: Mapping[TopicPartition, str]) -> Iterator[TopicPartition]:
    for at, name in wanted.items():
        if at not in view.handoffs and _living_owner(view, at) not in (None, name):
            yield at


def _is_leaving(view: View, owner: str | None) -> bool:
    """A draining owner keeps what nobody can take."""
    return owner is not None and view.consumers[owner].value.status is Status.DRAINING


def planned(view: View, targets: Targets, without: Collection[str] = ()) -> Iterator[PlannedMove]:
    """Every partition that is not where it belongs; those in ``without`` are taken for gone."""
    for at, name in sorted(targets.owner.items()):
        owner = _living_owner(view, at)
        old = None if owner in without else owner
        if old != name:
            yield PlannedMove(at, old, name)


def _nobody(view: View) -> Iterator[Bundle]:
    """No consumers: nothing is anybody's, but for replaced processes that may still be working."""
    for at in sorted(view.assignments.keys() | view.handoffs.keys()):
        if not _is_fenced(view, at):
            yield _forgotten(view, at)


def _forgotten(view: View, at: TopicPartition) -> Bundle:
    both = [key for key in (view.keys.assignment(at), view.keys.handoff(at)) if key in view.raw]
    compares = [*map(view.same, both), *_of_owner(view, at)]
    return Bundle(f"{at}: nobody's", tuple(compares), tuple(map(Delete, both)))


def _of_owner(view: View, at: TopicPartition) -> list[Compare]:
    entry = view.assignments.get(at)
    return [] if entry is None else [_still_gone(view, entry.value.owner)]


def _living_owner(view: View, at: TopicPartition) -> str | None:
    """The owner's name, where the process that owns the partition is the registered one."""
    entry = view.assignments.get(at)
    if entry is None or not view.is_registered(entry.value.owner, entry.value.incarnation):
        return None
    return entry.value.owner


def _is_fenced(view: View, at: TopicPartition) -> bool:
    """Whether the owner is a replaced process whose lease has not run out: nobody else may begin."""
    entry = view.assignments.get(at)
    return entry is not None and (entry.value.owner, entry.value.incarnation) in view.fences


def _is_orphan(view: View, at: TopicPartition) -> bool:
    """Nobody living owns it. What a hand-off does about it is done before (see ``advance``)."""
    return _living_owner(view, at) is None and not _is_fenced(view, at)


def _given(view: View, at: TopicPartition, to: str) -> Bundle:
    key = view.keys.handoff(at)
    compares = (view.same(view.keys.assignment(at)), view.same(key), *_of_owner(view, at))
    writes: tuple[Write, ...] = (_owner(view, at, to, view.incarnation(to)),)
    return Bundle(
        f"{at}: to {to} at once", compares, (*writes, Delete(key)) if key in view.raw else writes
    )


def _unwanted(view: View, wanted: Mapping[TopicPartition, str]) -> Iterator[Bundle]:
    for at, entry in sorted(view.handoffs.items()):
        after = step(state_of(entry.value), Happening.UNWANTED)
        if after is not None and wanted.get(at, entry.value.new_owner) != entry.value.new_owner:
            yield _moved(view, entry, Happening.UNWANTED, *after, 0.0)


def _begun(
    view: View, wanted: Mapping[TopicPartition, str], settings: ServiceSettings, now: float
) -> Iterator[Bundle]:
    warming = Counter(
        entry.value.new_owner
        for entry in view.handoffs.values()
        if entry.value.phase is not Phase.COMPLETE
    )
    room, bound = settings.max_handoffs - warming.total(), bound_topics(view)
    due = set(_due(view, wanted))
    for crew in sorted({crew_of(at, bound) for at in due}):
        moving = [at for at in crew if at in due]
        for new in sorted({wanted[at] for at in moving}):
            mine = [at for at in moving if wanted[at] == new]
            # What travels together begins together, even where one consumer's limit is less than that.
            free = settings.max_handoffs_per_consumer - warming[new]
            if room <= 0 or free <= 0 or (len(mine) > free and warming[new]):
                continue
            room -= len(mine)
            warming[new] += len(mine)
            yield from _joined([_beginning(view, at, new, settings, now) for at in mine])


def _beginning(
    view: View, at: TopicPartition, new: str, settings: ServiceSettings, now: float
) -> Bundle:
    key, owner = view.keys.handoff(at), view.assignments[at].value
    old = owner.owner
    handoff = Handoff(
        at,
        old,
        new,
        Phase.WARMING,
        now,
        strict=settings.strict,
        old_incarnation=owner.incarnation,
        new_incarnation=view.incarnation(new),
    )
    return Bundle(
        f"{at}: from {old} to {new}",
        (view.same(key), view.same(view.keys.assignment(at))),
        (Put(key, codec.dump_handoff(handoff)),),
    )


# -- around it -------------------------------------------------------------------------------------------


def tidy(view: View, targets: Targets) -> Iterator[Bundle]:
    """Replicas, drained consumers, cool-downs that no lease ends (earlier releases wrote such ones)."""
    for name in sorted(targets.replicas.keys() | view.replicas.keys()):
        yield from _replicas(view, name, targets.replicas.get(name, ()))
    for name, entry in sorted(view.consumers.items()):
        if entry.value.status is Status.DRAINING and not has_more(view, name):
            key = view.keys.consumer(name)
            yield Bundle(f"{name}: drained", (view.same(key),), (Delete(key),))
    for (at, name), cooling in sorted(view.cooldowns.items()):
        if not cooling.kv.lease:
            key = cooling.kv.key
            yield Bundle(f"{at}: {name} may be asked again", (view.same(key),), (Delete(key),))


def _replicas(view: View, name: str, wanted: tuple[TopicPartition, ...]) -> Iterator[Bundle]:
    key = view.keys.replicas(name)
    if name not in view.consumers or not wanted:
        if key in view.raw:
            yield Bundle(f"{name}: no replicas", (view.same(key),), (Delete(key),))
    elif name not in view.replicas or view.replicas[name].value != wanted:
        yield Bundle(
            f"{name}: replicas", (view.same(key),), (Put(key, codec.dump_partitions(wanted)),)
        )
