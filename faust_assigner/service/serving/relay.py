"""Derives the consumers' commands from changes of the store, without I/O.

Each command follows from the current state, not from a single event. The commands are therefore
complete even if the mirror has missed intermediate changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from faust_assigner.service.commands import (
    AbortWarm,
    Assignment,
    Command,
    Owned,
    Release,
    Replicas,
    Warm,
)
from faust_assigner.service.handoff import Handoff, Phase, State, TopicPartition, state_of
from faust_assigner.service.questions import leaving
from faust_assigner.service.records import Assigned
from faust_assigner.service.view import Change, Entry, View

Told = tuple[str, Command]


def commands_of_changes(view: View, changes: Sequence[Change]) -> Iterator[Told]:
    """Yield (consumer, command) for changes that are already in ``view``.

    A consumer gets at most one assignment.
    """
    gained: dict[str, list[Owned]] = {}
    lost: dict[str, list[TopicPartition]] = {}
    others: list[Told] = []
    for change in changes:
        if change.kind == "assignments":
            _assignment(view, change, gained, lost)
        elif change.kind == "handoffs":
            others += _handoff_commands(view, change, gained, lost)
        elif change.kind == "replicas":
            others.append((change.name, Replicas(change.after.value if change.after else ())))
    for name in sorted(gained.keys() | lost.keys()):
        assigned = {owned.at: owned for owned in gained.get(name, ())}
        unassigned = sorted(set(lost.get(name, ())) - assigned.keys())
        yield name, Assignment(tuple(assigned[at] for at in sorted(assigned)), tuple(unassigned))
    yield from others


def _owned_value(view: View, assigned: Assigned) -> Owned:
    said = view.dated(assigned)
    return Owned(said.at, said.epoch, said.offset)


def _assignment(
    view: View,
    change: Change,
    gained: dict[str, list[Owned]],
    lost: dict[str, list[TopicPartition]],
) -> None:
    before: Assigned | None = change.before.value if change.before else None
    after: Assigned | None = change.after.value if change.after else None
    # If a consumer loses and gains a partition in one batch, only the gain becomes a command. Skip
    # a gain that a later write of the same batch undid.
    is_current = change.after is not None and view.assignments.get(change.name) == change.after
    if after is not None and is_current and view.is_registered(*after.process):
        gained.setdefault(after.owner, []).append(_owned_value(view, after))
    if before is None or (after is not None and after.owner == before.owner):
        return
    entry = view.handoffs.get(change.name)
    # In Complete the old owner gets a Release command instead of an unassignment.
    if (
        entry is None
        or entry.value.old_owner != before.owner
        or entry.value.phase is not Phase.COMPLETE
    ):
        lost.setdefault(before.owner, []).append(change.name)


def _handoff_commands(
    view: View,
    change: Change,
    gained: dict[str, list[Owned]],
    lost: dict[str, list[TopicPartition]],
) -> Iterator[Told]:
    before: Entry[Handoff] | None = change.before
    after: Entry[Handoff] | None = change.after
    if before is not None and (
        after is None or after.kv.create_revision != before.kv.create_revision
    ):
        yield from _commands_of_end(view, before, gained, lost)
        before = None
    current = view.handoffs.get(change.name)
    # Yield no command for a state that a later write of the same batch has replaced. Otherwise an
    # owner could release a partition that it has regained.
    if after is not None and current is not None and current.kv == after.kv:
        known = state_of(before.value) if before else None
        if known is not state_of(after.value):
            yield from _commands_of_state(view, after)


def _commands_of_state(view: View, entry: Entry[Handoff]) -> Iterator[Told]:
    """Yield the commands to the two consumers that the hand-off's state requires.

    A consumer gets its command only if its registered process is the process in the hand-off.
    """
    handoff, handoff_id = entry.value, entry.kv.create_revision
    state = state_of(handoff)
    if state is State.WARMING and view.is_registered(*handoff.new_process):
        yield handoff.new_owner, Warm(handoff.at, handoff.old_owner, handoff_id, handoff.strict)
    elif state in (State.RELEASING, State.COMPLETE) and view.is_registered(*handoff.old_process):
        yield (
            handoff.old_owner,
            Release(handoff.at, handoff.new_owner, handoff_id, state is State.RELEASING),
        )


def _commands_of_end(
    view: View,
    entry: Entry[Handoff],
    gained: dict[str, list[Owned]],
    lost: dict[str, list[TopicPartition]],
) -> Iterator[Told]:
    handoff = entry.value
    assigned = view.assignments.get(handoff.at)
    owner = assigned.value.owner if assigned else None
    if owner == handoff.new_owner:
        lost.setdefault(handoff.old_owner, []).append(handoff.at)
        return
    yield handoff.new_owner, AbortWarm(handoff.at, entry.kv.create_revision)
    # In strict mode the old owner may have released the partition already; grant it again.
    if (
        assigned
        and view.is_registered(*handoff.old_process)
        and assigned.value.process == handoff.old_process
        and handoff.strict
        and handoff.phase is Phase.READY
    ):
        kept = replace(_owned_value(view, assigned.value), keep=True)
        gained.setdefault(handoff.old_owner, []).append(kept)


def snapshot(view: View, name: str) -> Iterator[Command]:
    """Yield a consumer's full assignment, even if empty, its hand-off commands and its replicas.

    Cost: one pass over the consumer's own assignments and hand-offs.
    """
    asked = [
        command
        for at in sorted(view.moving.get(name, ()))
        for told, command in _commands_of_state(view, view.handoffs[at])
        if told == name
    ]
    releasing = tuple(command.at for command in asked if isinstance(command, Release))
    yield replace(_full_assignment(view, name), releasing=releasing)
    yield from asked
    if name in view.replicas:
        yield Replicas(view.replicas[name].value)


def _full_assignment(view: View, name: str) -> Assignment:
    """Return a consumer's full assignment, without the partitions that it must release.

    In strict mode the consumer still owns such a partition. But its PartitionReleased may be on the
    way, and then the consumer must not resume work on the partition. If the consumer has not got
    the Release yet, ``releasing`` makes it keep the partition. Otherwise it would drop the
    partition without a flush.
    """
    mine, let_go = view.incarnation(name), leaving(view, name)
    owned = [
        _owned_value(view, assigned)
        for at in sorted(view.owned.get(name, ()))
        if (assigned := view.assignments[at].value).incarnation == mine and at not in let_go
    ]
    return Assignment(tuple(owned), full=True)
