"""Explains a partition's owner, or a member's history, as a timeline. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from faust_assigner.story.again import Remedy, remedies, task_of
from faust_assigner.story.incidents import (
    Incident,
    Moved,
    changed,
    incidents,
    members_of,
    moves_of,
    recoveries_of,
)
from faust_assigner.story.read import Active, Decision, NothingKnown, Place, Recovery, Story
from faust_assigner.views.explanation import SAID
from faust_assigner.wire.plan_input import as_runs

#: The version of the report; a later version only adds keys.
VERSION = 1
#: Trigger of a round -> the cause as text.
_TRIGGERS = {
    "first": "the group's first round",
    "join": "members joined",
    "leave": "members left",
    "subscription": "subscriptions changed",
    "partitions": "topics got other partition counts",
    "rejoin": "a member requested a round, or came back to it",
}


@dataclass(frozen=True, kw_only=True)
class Event:
    """A line of a timeline; ``at`` is in seconds since 1970."""

    at: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """``headline`` is the answer in one line. ``rule`` is the planner's reason.

    ``avoided_by`` are changes found by planning again, the smallest first; ``unknown`` names missing data.
    ``restored_s`` is the time from the decision until the state was restored. ``is_first``: the partition had
    no owner before.
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
    """Explain the last move of a partition; with ``at``, the last move that had begun by then.

    Raises :class:`NothingKnown` if the ledger does not name the partition.
    """
    found = incidents(story)
    moves = list(moves_of(place, found))
    subject = f"{place[0]}/{place[1]}"
    if not moves:
        raise NothingKnown(_unmoved(story, place, subject))
    # A time has the precision of a minute: the whole minute counts.
    chosen = [move for move in moves if at is None or move.incident.first.at < at + 60.0]
    if not chosen:
        raise NothingKnown(f"{subject} was not placed before then; {_period(story)}")
    return _answer(story, chosen[-1], place, subject)


def _unmoved(story: Story, place: Place, subject: str) -> str:
    first, owned = story.decisions[0], story.decisions[-1].actives.get(place)
    if owned is None:
        return f"no decision in the ledger places {subject}; {_period(story)}"
    return (
        f"{story.name(owned.member_id)} owns {subject}, which has not moved since before generation "
        f"{first.generation}, the ledger's first. The leader of an earlier move has its row: repeat the "
        "command when that worker runs, or name its ledger with --ledger"
    )


def _answer(story: Story, move: Moved, place: Place, subject: str) -> Answer:
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
        events=tuple(sorted(_timeline(story, move, place, restored), key=lambda event: event.at)),
        rule=rule.format(before=story.name(move.was or "")) if rule else "",
        avoided_by=found,
        restored_s=max((one.ended for one in restored), default=move.by.at) - move.by.at
        if restored
        else None,
        unknown=tuple(one for one in (unknown, _no_recovery(restored, active.cold)) if one),
    )


def _warmth(move: Moved, active: Active, topics: Sequence[str]) -> str:
    asked = move.by.asked
    if asked is not None and not asked.changelogs & set(topics):
        return "without a table"
    if active.standby_hit:
        return "warm: a copy of its table was there"
    if active.cold:
        return "cold: its table was elsewhere"
    return "cold: no living member had its table"


def _no_recovery(restored: Sequence[Recovery], is_cold: bool) -> str:
    if restored or not is_cold:
        return ""
    return (
        "how long it was restored: the ledger of its new owner is missing, or it was lost meanwhile"
    )


def _timeline(
    story: Story, move: Moved, place: Place, restored: Sequence[Recovery]
) -> Iterator[Event]:
    if move.origin is not move.incident:
        first = move.origin.first
        yield Event(at=first.at, text=_round(story, move.origin, first))
    yield from _lost(story, move.origin)
    for decision in move.incident.rounds:
        yield Event(at=decision.at, text=_round(story, move.incident, decision))
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


def _lost(story: Story, incident: Incident) -> Iterator[Event]:
    """Return the latest possible time of the last heartbeat of a silent member."""
    before = incident.before
    if before is None or before.session_timeout_s is None:
        return
    for gone in sorted(incident.gone - incident.handed_over):
        yield Event(
            at=max(before.at, incident.first.at - before.session_timeout_s),
            text=f"{story.name(gone)} sends no heartbeat from here on, at the earliest: the group waits "
            f"for its session timeout of {before.session_timeout_s:g} s",
        )


def _round(story: Story, incident: Incident, decision: Decision) -> str:
    head = f"generation {decision.generation} ({len(members_of(decision))} members): "
    if decision is not incident.first:
        return f"{head}second of the incident's rounds: revoked partitions are assigned"
    places = changed(incident.before, decision)
    warm = sum(decision.actives[place].standby_hit for place in places)
    moved = f"; {len(places)} partitions move, {warm} of them to a copy" if places else ""
    return f"{head}{_cause(story, incident)}{moved}"


def _cause(story: Story, incident: Incident) -> str:
    parts = []
    handed = incident.gone & incident.handed_over
    if handed:
        parts.append(f"{_names(story, handed)} stopped (SIGTERM) and handed over")
    if static := {
        m for m in incident.gone - handed if incident.before and m in incident.before.static
    }:
        parts.append(f"{_names(story, static)} (static) was not back within its session timeout")
    if dead := incident.gone - handed - static:
        parts.append(
            f"{_names(story, dead)} left without handing over: killed, cut off, or stopped with "
            "FAUST_ASSIGNER_LEAVE_S=0"
        )
    if incident.restarted:
        names = _names(story, set(incident.restarted.values()))
        parts.append(f"{names} (static) restarted within its session timeout")
    if incident.came:
        returned = {m for m in incident.came if _was_there(story, incident, m)}
        if returned:
            parts.append(f"{_names(story, returned)} came back")
        if new := incident.came - returned:
            parts.append(f"{_names(story, new)} joined")
    places = changed(incident.before, incident.first)
    if not parts and places and all(incident.first.actives[p].standby_hit for p in places):
        parts = ["follow-up round: copies have caught up, and their tasks move there"]
    if not parts:
        parts = [_TRIGGERS.get(one, one) for one in incident.first.trigger.split("+")]
    return " and ".join(parts)


def _was_there(story: Story, incident: Incident, member_id: str) -> bool:
    name = incident.first.names.get(member_id, member_id)
    return any(
        name in decision.names.values()
        for decision in story.decisions
        if decision.at < incident.first.at
    )


def _names(story: Story, members: frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(map(story.name, members)))


def _period(story: Story) -> str:
    count = len(story.decisions)
    return f"the ledger has {count} decision{'s' * (count != 1)} of the group {story.group}"


# -- a member


def why_member(story: Story, name: str, *, at: float | None = None) -> Answer:
    """List each incident in which a member joined, left, gained or lost partitions.

    Raises :class:`NothingKnown` if no decision names the member.
    """
    origin = name.rstrip("/").rpartition("://")[2]
    wanted = {name, origin, origin.partition(":")[0]}
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
        for event in _of_member(story, incident, ids)
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


def _of_member(story: Story, incident: Incident, ids: set[str]) -> Iterator[Event]:
    after, before = incident.last, incident.before
    mine = {p for p, active in after.actives.items() if active.member_id in ids}
    had = set() if before is None else {p for p, a in before.actives.items() if a.member_id in ids}
    gained, lost = mine - had, had - mine
    takes_part = bool(ids & (incident.gone | incident.came))
    if not (gained or lost or takes_part):
        return
    parts = [f"gains {_places(gained)}"] * bool(gained) + [f"loses {_places(lost)}"] * bool(lost)
    cold = sum(after.actives[place].cold for place in gained)
    text = f"{_cause(story, incident)}: {'; '.join(parts) or 'no partition moves'}"
    yield Event(at=incident.first.at, text=text + (f" ({cold} cold)" if cold else ""))


def _places(places: set[Place]) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(places):
        by_topic.setdefault(topic, []).append(number)
    return ", ".join(f"{topic}/{as_runs(numbers)}" for topic, numbers in by_topic.items())
