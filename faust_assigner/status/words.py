"""Formats numbers, durations, rounds and members' states as text, for terminals and pages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from faust_assigner.status.report import ANSWERED, NOT_ASKED, Decision, MemberReport, Report

#: Stands for an unknown or missing value.
NOTHING = "-"
#: The most names in a list; further names are only counted.
MOST_NAMED = 4
#: Trigger of a round -> the reason as text.
TRIGGERS: Mapping[str, str] = {
    "first": "no member had partitions",
    "join": "members joined",
    "leave": "members left",
    "subscription": "subscriptions changed",
    "partitions": "topics got other partition counts",
    "rejoin": "a member requested it",
}
#: For each unit from a minute on: its seconds and sign; seconds and sign of the next smaller unit.
_UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key by which ``shop-2`` comes before ``shop-10``, also within longer names.

    >>> sorted(["shop-10.shop", "shop-2.shop"], key=natural)
    ['shop-2.shop', 'shop-10.shop']
    """
    parts = re.split(r"([0-9]{1,18})", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], name


def names_of(report: Report) -> dict[str, str]:
    """Return the name of each member by its URL."""
    return {member.url.rstrip("/"): member.name for member in report.members if member.url}


def with_member_names(decision: Decision, names: Mapping[str, str]) -> Decision:
    """Return the decision with members' names instead of their URLs, as far as known."""
    joined, left = (
        tuple(names.get(url.rstrip("/"), url) for url in urls)
        for urls in (decision.joined, decision.left)
    )
    return replace(decision, joined=joined, left=left)


def why(decision: Decision) -> str:
    """Return the reason of a round, with the joined or left members if the leader reported them."""
    named = {"join": decision.joined, "leave": decision.left}
    reasons = []
    for trigger in (decision.completes or decision.trigger).split("+"):
        urls = named.get(trigger, ())
        reasons.append(TRIGGERS.get(trigger, trigger) + (f" ({', '.join(urls)})" if urls else ""))
    second = " (second of two rounds)" if decision.completes else ""
    return " and ".join(reasons) + second


def condition(member: MemberReport) -> tuple[str, str]:
    """Return (``good``, ``changing``, ``bad`` or ``unknown``; the member's state in words)."""
    if member.answer != ANSWERED:
        return "unknown" if member.answer == NOT_ASKED else "bad", member.answer
    if member.is_leaving:
        return "changing", "stops"
    if member.not_live:
        return "bad", f"not live: {member.not_live[0]}"
    if member.not_ready:
        return "bad", f"not ready: {member.not_ready[0]}"
    if member.restore_remaining_records:
        left = behind(member.restore_remaining_records, member.restore_remaining_s)
        return "changing", f"ready, restores {left}"
    return "good", "ready"


def behind(records: int | None, seconds: float | None) -> str:
    """Format a lag: records, and the time if both are known and above zero."""
    if records and seconds:
        return f"{records:,} ({span(seconds)})"
    return number(records)


def table_of(topic: str, group: str) -> str:
    """Return the table behind a changelog by Faust's naming convention; "" for any other topic."""
    prefix, suffix = f"{group}-", "-changelog"
    if topic.startswith(prefix) and topic.endswith(suffix):
        return topic[len(prefix) : -len(suffix)]
    return ""


def leader_topic(group: str) -> str:
    """Return the name of Faust's leader topic, which contains no records."""
    return f"{group}-__assignor-__leader"


def list_names(names: Sequence[str]) -> str:
    """Join the first names, with a count of the omitted names."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def number(value: int | None) -> str:
    """Format a count, or :data:`NOTHING` for an unknown count."""
    return NOTHING if value is None else f"{value:,}"


def count_of(count: int, noun: str) -> str:
    """Format a count with its noun, in the plural except for 1."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def span(seconds: float) -> str:
    """Format a duration in one or two units.

    >>> [span(s) for s in (0.4, 59, 61, 3600, 90000)]
    ['0.4 s', '59 s', '1 min 1 s', '1 h', '1 d 1 h']
    """
    if seconds < 60:
        return (
            f"{seconds:.1f} s" if seconds < 10 and seconds != int(seconds) else f"{seconds:.0f} s"
        )
    size, unit, small, below = next(one for one in _UNITS if seconds >= one[0])
    whole, rest = divmod(int(seconds), size)
    return f"{whole} {unit}" + (f" {rest // small} {below}" if rest // small else "")


def size(count: float) -> str:
    """Format bytes in a readable unit.

    >>> [size(count) for count in (900, 2048, 3.5 * 2**30)]
    ['900 B', '2.0 KiB', '3.5 GiB']
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
