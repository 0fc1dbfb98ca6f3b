"""Describe the cause of an incident, and each of its rounds, as text. No I/O.

An incident is a cause, such as a crash, with all rebalances (rounds) that follow from it.
"""

from __future__ import annotations

from faust_assigner.story.decisions import Decision
from faust_assigner.story.incidents import Incident, changed, members_of
from faust_assigner.story.read import Story

#: Trigger of a round -> the cause as text.
_TRIGGERS = {
    "first": "no member had partitions",
    "join": "members joined",
    "leave": "members left",
    "subscription": "subscriptions changed",
    "partitions": "topics got other partition counts",
    "rejoin": "a member requested a round, or came back to it",
}


def round_text(story: Story, incident: Incident, decision: Decision) -> str:
    """Return the line of a round: its generation, its cause and the moved partitions."""
    head = f"generation {decision.generation} ({len(members_of(decision))} members): "
    if decision is not incident.first:
        return f"{head}second of the incident's rounds: revoked partitions are assigned"
    places = changed(incident.before, decision)
    warm = sum(decision.actives[place].standby_hit for place in places)
    moved = f"; {len(places)} partitions move, {warm} of them to a copy" if places else ""
    return f"{head}{cause_of(story, incident)}{moved}"


def cause_of(story: Story, incident: Incident) -> str:
    """Return the cause of an incident: the members that left, joined or restarted, else the trigger."""
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
        returned = {m for m in incident.came if _was_member(story, incident, m)}
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


def _was_member(story: Story, incident: Incident, member_id: str) -> bool:
    name = incident.first.names.get(member_id, member_id)
    return any(
        name in decision.names.values()
        for decision in story.decisions
        if decision.at < incident.first.at
    )


def _names(story: Story, members: frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(map(story.name, members)))
