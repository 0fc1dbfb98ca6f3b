"""The outcome of a round: its decision and the reason, in about 30 bytes of each answer.

A group's coordinator stores the answers of the last round. So an operator's tool can read the outcome from
any answer, even after the leader of that round has left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from faust_assigner.errors import MetadataRefused
from faust_assigner.wire.runs import Reader, Writer

_PLANNED, _LEADS = 1, 2
#: The maximum number of URLs in ``joined`` and in ``left``; further URLs are left out.
MOST_NAMED = 10
_TEXT_CHARS = 2048
_LATEST = 1 << 40


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one round.

    ``decided_at`` is in seconds since 1970 by the leader's clock, 0 if unknown. ``trigger`` is the change
    since the leader's last round (join, leave, ...). ``members`` and ``tasks`` are the numbers of all members
    and tasks. Of the tasks, ``moved`` have a new owner, and ``cold`` of these moved without their state.
    ``off_target`` are not yet on their target member, and ``warming`` have a warm-up on it. ``is_planned`` is
    False if the planner failed. ``joined`` and ``left`` are URLs of members, and ``leads`` marks the leader;
    only the leader's own answer has these three. ``completes`` is the trigger of an unfinished earlier round,
    "" for none.
    """

    trigger: str = ""
    completes: str = ""
    decided_at: int = 0
    members: int = 0
    tasks: int = 0
    moved: int = 0
    cold: int = 0
    off_target: int = 0
    warming: int = 0
    is_planned: bool = True
    leads: bool = False
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def for_others(outcome: Outcome) -> Outcome:
    """Return the outcome without names, for all members except the leader."""
    return replace(outcome, leads=False, joined=(), left=())


def encode_outcome(outcome: Outcome) -> bytes:
    """Encode the outcome for :func:`decode_outcome`."""
    out = Writer()
    out.varint(_PLANNED * outcome.is_planned | _LEADS * outcome.leads)
    out.varint(outcome.decided_at)
    for count in _counts(outcome):
        out.varint(count)
    out.text(outcome.trigger)
    out.text(outcome.completes)
    for names in (outcome.joined, outcome.left):
        out.varint(len(names[:MOST_NAMED]))
        for name in names[:MOST_NAMED]:
            out.text(name)
    return bytes(out.data)


def _counts(outcome: Outcome) -> tuple[int, ...]:
    return (
        outcome.members,
        outcome.tasks,
        outcome.moved,
        outcome.cold,
        outcome.off_target,
        outcome.warming,
    )


def decode_outcome(body: Reader) -> Outcome:
    """Decode an outcome; ignore further bytes, of a later version. Raises :class:`MetadataRefused`."""
    flags, decided_at = body.varint(), body.varint(limit=_LATEST)
    members, tasks, moved, cold, off_target, warming = (body.varint() for _ in range(6))
    trigger, completes = _decode_text(body), _decode_text(body)
    joined, left = (
        tuple(_decode_text(body) for _ in range(body.count(limit=MOST_NAMED))) for _ in range(2)
    )
    return Outcome(
        trigger=trigger,
        completes=completes,
        decided_at=decided_at,
        members=members,
        tasks=tasks,
        moved=moved,
        cold=cold,
        off_target=off_target,
        warming=warming,
        is_planned=bool(flags & _PLANNED),
        leads=bool(flags & _LEADS),
        joined=joined,
        left=left,
    )


def _decode_text(body: Reader) -> str:
    text = body.text()
    if len(text) > _TEXT_CHARS:
        raise MetadataRefused(f"a text of {len(text)} characters, the limit is {_TEXT_CHARS}")
    return text
