"""Rounds -> incidents: one cause, and all the rounds that it took. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from faust_assigner.story.read import Decision, Place, Recovery, Story


@dataclass(frozen=True, kw_only=True)
class Incident:
    """One cause and its rounds. ``before`` is the last decision before them, None where there is none.

    ``gone`` are member ids that were in the group before and are not after, ``came`` those that are new.
    """

    rounds: tuple[Decision, ...]
    before: Decision | None

    @property
    def first(self) -> Decision:
        """The round that the cause began."""
        return self.rounds[0]

    @property
    def last(self) -> Decision:
        """The round that completed it."""
        return self.rounds[-1]

    @property
    def gone(self) -> frozenset[str]:
        """Member ids."""
        return (
            frozenset() if self.before is None else members_of(self.before) - members_of(self.first)
        )

    @property
    def came(self) -> frozenset[str]:
        """Member ids."""
        return members_of(self.first) - (
            frozenset() if self.before is None else members_of(self.before)
        )

    @property
    def handed_over(self) -> frozenset[str]:
        """Those of the gone that said so: they were told to stop (SIGTERM)."""
        return frozenset(m for one in self.rounds for m in one.leaving)


def members_of(decision: Decision) -> frozenset[str]:
    """Members that took part and did not leave."""
    return frozenset(decision.names) - decision.leaving


def incidents(story: Story) -> tuple[Incident, ...]:
    """All of them, by time. A round belongs to the one before it where that one left it something.

    The leader of the second round may be another member: then the first one's row says that a second
    follows, and the second one's says nothing.
    """
    found: list[list[Decision]] = []
    for decision in story.decisions:
        last = found[-1][-1] if found else None
        if (
            last is not None
            and _before(decision, last) is last
            and (last.follows or decision.completes)
        ):
            found[-1].append(decision)
        else:
            found.append([decision])
    earlier: list[Decision | None] = [None, *(rounds[-1] for rounds in found)]
    return tuple(
        Incident(rounds=tuple(rounds), before=_before(rounds[0], last))
        for rounds, last in zip(found, earlier, strict=False)
    )


def _before(first: Decision, last: Decision | None) -> Decision | None:
    """The ledger's last decision; where another leader's are missing between, what ``first`` knows."""
    if first.before is None or (last is not None and last.generation >= first.before.generation):
        return last
    return first.before


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A partition that has another owner after an incident; ``by`` is the round that decided it.

    ``origin`` is the incident in which members came or went, where ``incident`` is a later round that only
    carries out what that one began; else the same.
    """

    incident: Incident
    origin: Incident
    by: Decision
    was: str | None
    to: str


def moves_of(place: Place, found: Sequence[Incident]) -> Iterator[Moved]:
    """Every change of a partition's owner, by time; its first placement included."""
    owner: str | None = None
    origin: Incident | None = None
    for incident in found:
        if incident.gone or incident.came or origin is None:
            origin = incident
        known = None if incident.before is None else incident.before.actives.get(place)
        before = owner = owner if known is None else known.member_id
        by = incident.first
        for decision in incident.rounds:
            active = decision.actives.get(place)
            if active is not None and active.member_id != owner:
                owner, by = active.member_id, decision
        if owner is not None and owner != before:
            yield Moved(incident=incident, origin=origin, by=by, was=before, to=owner)


def changed(before: Decision | None, after: Decision) -> set[Place]:
    """The partitions that have another owner after a round."""
    if before is None:
        return set()
    return {
        place
        for place, active in after.actives.items()
        if place in before.actives and before.actives[place].member_id != active.member_id
    }


def recoveries_of(
    story: Story, move: Moved, topics: Sequence[str], number: int
) -> tuple[Recovery, ...]:
    """How the task's state came back where the incident put it."""
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
