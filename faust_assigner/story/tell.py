"""Explain a partition's owner, or a member's history, as a timeline. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from faust_assigner.story.again import Remedy, remedies, task_of
from faust_assigner.story.causes import cause_of, round_text
from faust_assigner.story.decisions import Active, Place, Recovery
from faust_assigner.story.incidents import (
    Incident,
    Moved,
    incidents,
    members_of,
    moves_of,
    recoveries_of,
)
from faust_assigner.story.read import NothingKnown, Story
from faust_assigner.views.explanation import SAID
from faust_assigner.wire.plan_input import as_runs

#: The version of the report; a later version only adds keys.
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Event:
    """A line of a timeline; ``at`` is in seconds since 1970."""

    at: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of ``faust-assigner why``; ``headline`` is the answer in one line.

    ``rule``: the planner's reason. ``avoided_by``: changes that avoid the move, smallest first. ``unknown``:
    sentences that name missing data. ``restored_s``: seconds from the decision until the state was restored.
    ``is_first``: whether the partition had no owner before.
    """

    group: str
    subject: str
    headline: str
    events: tuple[Event, ...]
    is_first: bool = False
    rule: str = ""
    avoided_by: tuple[Remedy, ...] = ()
    restored_s: float | None = None
    unknown: tuple[str, ...] = field(default=())
    version: int = VERSION


def why_partition(story: Story, place: Place, *, at: float | None = None) -> Answer:
    """Explain the last move of a partition; with ``at`` (seconds since 1970), the last move up to that time.

    Raises :class:`NothingKnown` if the ledger has no such move.
    """
    found = incidents(story)
    moves = list(moves_of(place, found))
    subject = f"{place[0]}/{place[1]}"
    if not moves:
        raise NothingKnown(_unmoved_headline(story, place, subject))
    # Times on the command line have minutes, so all moves in the minute ``at`` are included.
    chosen = [move for move in moves if at is None or move.incident.first.at < at + 60.0]
    if not chosen:
        raise NothingKnown(f"{subject} was not placed before that time; {_period(story)}")
    return _answer_for_move(story, chosen[-1], place, subject)


def _unmoved_headline(story: Story, place: Place, subject: str) -> str:
    first, owned = story.decisions[0], story.decisions[-1].actives.get(place)
    if owned is None:
        places = set(story.decisions[-1].actives)
        similar = {one for one in places if one[0] == place[0]} or places
        known = f"; the last decision places {_places(similar)}" if similar else ""
        return f"no decision in the ledger places {subject}{known}; {_period(story)}"
    return (
        f"{story.name(owned.member_id)} owns {subject}, which has not moved since before generation "
        f"{first.generation}, the ledger's first. The leader of an earlier move has its row: repeat the "
        "command when that worker runs, or name its ledger with --ledger"
    )


def _answer_for_move(story: Story, move: Moved, place: Place, subject: str) -> Answer:
    topics = task_of(move.by, place)
    restored = recoveries_of(story, move, topics, place[1])
    active = move.by.actives[place]
    is_first = move.was is None
    to = story.name(move.to)
    headline = f"{subject} was placed on {to}"
    if not is_first:
        was = story.name(move.was or "")
        headline = f"{subject} moved from {was} to {to}, {_warmth(move, active, topics)}"
    found, unknown = ((), "") if is_first else remedies(story, move, place)
    rule = SAID.get(active.rule or "", "")
    return Answer(
        group=story.group,
        subject=subject,
        headline=headline,
        is_first=is_first,
        events=tuple(
            sorted(_timeline_events(story, move, place, restored), key=lambda event: event.at)
        ),
        rule=rule.format(before=story.name(move.was or "")) if rule else "",
        avoided_by=found,
        restored_s=max((one.ended for one in restored), default=move.by.at) - move.by.at
        if restored
        else None,
        unknown=tuple(
            one for one in (unknown, _missing_recovery_text(restored, active.cold)) if one
        ),
    )


def _warmth(move: Moved, active: Active, topics: Sequence[str]) -> str:
    asked = move.by.asked
    if asked is not None and not asked.changelogs & set(topics):
        return "without a table"
    if active.standby_hit:
        return "warm: the new owner had a copy of its table"
    if active.cold:
        return "cold: only other members had its table"
    return "cold: no living member had its table"


def _missing_recovery_text(restored: Sequence[Recovery], is_cold: bool) -> str:
    if restored or not is_cold:
        return ""
    return "the restore time: the new owner's ledger is missing, or the partition moved on"


def _timeline_events(
    story: Story, move: Moved, place: Place, restored: Sequence[Recovery]
) -> Iterator[Event]:
    if move.origin is not move.incident:
        first = move.origin.first
        yield Event(at=first.at, text=round_text(story, move.origin, first))
    yield from _lost_member_events(story, move.origin)
    for decision in move.incident.rounds:
        yield Event(at=decision.at, text=round_text(story, move.incident, decision))
        if decision is move.by:
            active = decision.actives[place]
            over = [story.name(m) for m in active.rejected]
            passed = f"; passed over: {', '.join(over)}" if over else ""
            was = "no owner" if move.was is None else story.name(move.was)
            yield Event(
                at=decision.at,
                text=f"  {place[0]}/{place[1]}: {was} -> {story.name(move.to)}{passed}",
            )
    for one in restored:
        where = f"{one.place[0]}/{one.place[1]} on {story.name(one.member_id)}"
        yield Event(at=one.started, text=f"restore of {where} begins, from {_SOURCES[one.source]}")
        seconds = one.ended - one.started
        yield Event(
            at=one.ended, text=f"{where} is restored: {one.records:,} records in {seconds:.1f} s"
        )


_SOURCES = {
    "local": "files on its own disk",
    "standby": "its standby",
    "snapshot": "a snapshot",
    "replay": "the changelog alone",
}


def _lost_member_events(story: Story, incident: Incident) -> Iterator[Event]:
    """Yield an event for each member that left without notice: the latest time of its last heartbeat."""
    before = incident.before
    if before is None or before.session_timeout_s is None:
        return
    for gone in sorted(incident.gone - incident.handed_over):
        yield Event(
            at=max(before.at, incident.first.at - before.session_timeout_s),
            text=f"{story.name(gone)} sends no heartbeat from here on, at the latest: the group waits "
            f"for its session timeout of {before.session_timeout_s:g} s",
        )


def _period(story: Story) -> str:
    count = len(story.decisions)
    return f"the ledger has {count} decision{'s' * (count != 1)} of the group {story.group}"


# The history of a member


def why_member(story: Story, name: str, *, at: float | None = None) -> Answer:
    """List each incident in which a member joined or left the group, or gained or lost partitions.

    Raises :class:`NothingKnown` if no decision names the member.
    """
    origin = name.rstrip("/").rpartition("://")[2]
    wanted = {name, origin, origin.rpartition(":")[0]} - {""}
    ids = {
        member_id
        for decision in story.decisions
        for member_id, known in decision.all_names.items()
        if wanted & {member_id, known}
    }
    if not ids:
        known = sorted({n for decision in story.decisions for n in decision.all_names.values()})
        raise NothingKnown(f"no member {name!r} in the ledger; it names {', '.join(known)}")
    events = [
        event
        for incident in incidents(story)
        if at is None or incident.first.at < at + 60.0
        for event in _member_events(story, incident, ids)
    ]
    shown = story.name(sorted(ids)[0])
    last = story.decisions[-1]
    owns = {place for place, active in last.actives.items() if active.member_id in ids}
    is_there = bool(ids & members_of(last))
    state = f"owns {_places(owns) or 'nothing'}" if is_there else "is not in the group"
    return Answer(
        group=story.group,
        subject=shown,
        headline=f"{shown} {state} by the last decision in the ledger",
        events=tuple(events),
    )


def _member_events(story: Story, incident: Incident, ids: set[str]) -> Iterator[Event]:
    after, before = incident.last, incident.before
    mine = {p for p, active in after.actives.items() if active.member_id in ids}
    had = set() if before is None else {p for p, a in before.actives.items() if a.member_id in ids}
    gained, lost = mine - had, had - mine
    takes_part = bool(ids & (incident.gone | incident.came))
    if not (gained or lost or takes_part):
        return
    parts = [f"gains {_places(gained)}"] * bool(gained) + [f"loses {_places(lost)}"] * bool(lost)
    cold = sum(after.actives[place].cold for place in gained)
    text = f"{cause_of(story, incident)}: {'; '.join(parts) or 'no partition moves'}"
    yield Event(at=incident.first.at, text=text + (f" ({cold} cold)" if cold else ""))


def _places(places: set[Place]) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(places):
        by_topic.setdefault(topic, []).append(number)
    return ", ".join(f"{topic}/{as_runs(numbers)}" for topic, numbers in by_topic.items())
