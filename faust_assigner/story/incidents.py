"""Group rounds (rebalances) into incidents: a cause with all its rounds. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from faust_assigner.story.decisions import Decision, Place, Recovery
from faust_assigner.story.read import Story


@dataclass(frozen=True, kw_only=True)
class Incident:
    """A cause and its rounds (rebalances); ``before`` is the last decision before them, or None.

    A static member that restarts within its session timeout gets a new id without a round (KIP-345). Such a
    member is neither in ``gone`` nor in ``came``.
    """

    rounds: tuple[Decision, ...]
    before: Decision | None

    @property
    def first(self) -> Decision:
        """The first round of the incident."""
        return self.rounds[0]

    @property
    def last(self) -> Decision:
        """The last round of the incident."""
        return self.rounds[-1]

    @property
    def gone(self) -> frozenset[str]:
        """The ids of members before the incident that are missing in its first round."""
        return self._only_before - self.restarted.keys()

    @property
    def came(self) -> frozenset[str]:
        """The ids of members that are new in the incident's first round."""
        return self._only_after - set(self.restarted.values())

    @property
    def restarted(self) -> dict[str, str]:
        """Former id -> new id of each static member that restarted within its session timeout."""
        return {
            former: new
            for former in self._only_before
            for new in self._only_after
            if is_same_member(self.before, former, self.first, new)
        }

    @property
    def _only_before(self) -> frozenset[str]:
        if self.before is None:
            return frozenset()
        return members_of(self.before) - members_of(self.first)

    @property
    def _only_after(self) -> frozenset[str]:
        before = frozenset() if self.before is None else members_of(self.before)
        return members_of(self.first) - before

    @property
    def handed_over(self) -> frozenset[str]:
        """The members that announced their stop (SIGTERM) in a round of the incident."""
        return frozenset(m for one in self.rounds for m in one.leaving)


def members_of(decision: Decision) -> frozenset[str]:
    """Return the members of the round without the members that were leaving."""
    return frozenset(decision.names) - decision.leaving


def is_same_member(before: Decision | None, former: str, after: Decision, new: str) -> bool:
    """Return whether ``former`` in one round and ``new`` in a later round are ids of the same member."""
    if former == new:
        return True
    return (
        before is not None
        and former in before.static
        and new in after.static
        and before.names[former] == after.names[new]
    )


def incidents(story: Story) -> tuple[Incident, ...]:
    """Return all incidents, by time; a round after an unfinished round belongs to the same incident.

    A round is unfinished if its row announces a second round, or if the next row states that it completes the
    round. If the leader changes between the two rounds, only the announcement exists.
    """
    found: list[list[Decision]] = []
    for decision in story.decisions:
        last = found[-1][-1] if found else None
        if (
            last is not None
            and _decision_before(decision, last) is last
            and (last.follows or decision.completes)
        ):
            found[-1].append(decision)
        else:
            found.append([decision])
    earlier: list[Decision | None] = [None, *(rounds[-1] for rounds in found)]
    return tuple(
        Incident(rounds=tuple(rounds), before=_decision_before(rounds[0], last))
        for rounds, last in zip(found, earlier, strict=False)
    )


def _decision_before(first: Decision, last: Decision | None) -> Decision | None:
    """Return the decision before ``first``: the last one in the ledger, or ``first.before`` if that is newer.

    ``first.before`` is newer if another leader's decisions are missing from the ledger.
    """
    if first.before is None or (last is not None and last.generation >= first.before.generation):
        return last
    return first.before


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A partition's change of owner in an incident, from ``was`` to ``to``; ``by`` is the deciding round.

    ``origin`` is the last incident in which members joined or left. ``origin`` differs from ``incident``
    if the partition moved in a follow-up of ``origin``.
    """

    incident: Incident
    origin: Incident
    by: Decision
    was: str | None
    to: str


def moves_of(place: Place, found: Sequence[Incident]) -> Iterator[Moved]:
    """Yield each change of a partition's owner, by time, beginning with its first placement."""
    owner: str | None = None
    seen: Decision | None = None
    origin: Incident | None = None
    for incident in found:
        if incident.gone or incident.came or origin is None:
            origin = incident
        known = None if incident.before is None else incident.before.actives.get(place)
        if known is not None:
            owner, seen = known.member_id, incident.before
        was, was_seen = owner, seen
        by = incident.first
        for decision in incident.rounds:
            active = decision.actives.get(place)
            if active is None:
                continue
            if owner is None or not is_same_member(seen, owner, decision, active.member_id):
                by = decision
            owner, seen = active.member_id, decision
        if owner is None or seen is None:
            continue
        if was is None or not is_same_member(was_seen, was, seen, owner):
            yield Moved(incident=incident, origin=origin, by=by, was=was, to=owner)


def changed(before: Decision | None, after: Decision) -> set[Place]:
    """Return the partitions whose owner changed in a round."""
    if before is None:
        return set()
    return {
        place
        for place, active in after.actives.items()
        if place in before.actives
        and not is_same_member(before, before.actives[place].member_id, after, active.member_id)
    }


def recoveries_of(
    story: Story, move: Moved, topics: Sequence[str], number: int
) -> tuple[Recovery, ...]:
    """Return the recoveries of the task's state on its new owner during the incident."""
    rounds = {decision.decision_id for decision in move.incident.rounds}
    name = story.name(move.to)
    return tuple(
        one
        for one in story.recoveries
        if one.place[1] == number
        and one.place[0] in topics
        and one.decision_id in rounds
        and (one.member_id == move.to or story.name(one.member_id) == name)
    )
