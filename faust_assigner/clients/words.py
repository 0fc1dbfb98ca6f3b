"""What these consumers tell each other in their user_data: JSON, versioned, bounded, and nothing is trusted.

A member says what it holds and since which round; the leader's answer says the round, and which of the
partitions are spare copies. Rounds are counted by the leaders, because aiokafka tells its assignors no
generation: each answer is one more than the highest round any member has seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Claims
from faust_assigner.wire.bounded import LARGEST_INT, NAME_CHARS, TOPICS, read_json, read_label

VERSION: Final = 1
SMALLEST_CAPACITY: Final = 1e-6
LARGEST_CAPACITY: Final = 1e6
#: Rounds stay there: one more could not be read by anybody.
LAST_ROUND: Final = LARGEST_INT - 1
#: Labels of one member, and partitions that it may claim.
LABELS: Final = 64
NUMBERS: Final = 200_000


@dataclass(frozen=True, kw_only=True)
class Word:
    """One member's word: ``active`` and ``spare`` map topics to the partitions given to it in ``round``.

    ``round`` is -1 for a member that was never given any. ``labels`` are its own facts (its rack, say).
    """

    round: int = -1
    active: Claims = field(default_factory=dict)
    spare: Claims = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The leader's word to one member, beside the partitions themselves."""

    round: int = -1
    spare: Claims = field(default_factory=dict)


def encode_word(word: Word) -> bytes:
    """A member's word as user_data."""
    return _encode(
        {
            "v": VERSION,
            "round": word.round,
            "labels": dict(word.labels),
            "capacity": word.capacity,
            "active": _runs(word.active),
            "spare": _runs(word.spare),
        }
    )


def decode_word(data: bytes) -> Word:
    """A member's word; raises :class:`MetadataRefused` for anything that is none."""
    fields = read_json(data or b"")
    capacity = fields.get("capacity", 1.0)
    if type(capacity) not in (int, float) or not SMALLEST_CAPACITY <= capacity <= LARGEST_CAPACITY:
        raise MetadataRefused(
            f"a capacity that is no number from {SMALLEST_CAPACITY:g} to {LARGEST_CAPACITY:g}"
        )
    return Word(
        round=_round(fields),
        labels=_labels(fields.get("labels", {})),
        capacity=float(capacity),
        active=_claims(fields.get("active")),
        spare=_claims(fields.get("spare")),
    )


def next_round(words: Iterable[Word]) -> int:
    """The round that follows all of these, whatever they say."""
    return min(1 + max((word.round for word in words), default=-1), LAST_ROUND)


def encode_answer(answer: Answer) -> bytes:
    """The leader's answer as user_data."""
    return _encode({"v": VERSION, "round": answer.round, "spare": _runs(answer.spare)})


def decode_answer(data: bytes) -> Answer:
    """The leader's answer; raises :class:`MetadataRefused` for anything that is none."""
    fields = read_json(data or b"")
    return Answer(round=_round(fields), spare=_claims(fields.get("spare")))


def _encode(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def _round(fields: Mapping[str, Any]) -> int:
    value = fields.get("round", -1)
    if type(value) is not int or not -1 <= value <= LAST_ROUND:
        raise MetadataRefused("a round that is no whole number from -1 on")
    return value


def _runs(claims: Claims) -> dict[str, list[int]]:
    """Topic -> first, last, first, last ... of each run of its numbers."""
    return {
        topic: runs for topic in sorted(claims) if (runs := _pairs(sorted(map(int, claims[topic]))))
    }


def _pairs(numbers: list[int]) -> list[int]:
    pairs: list[int] = []
    for number in numbers:
        if pairs and number == pairs[-1] + 1:
            pairs[-1] = number
        else:
            pairs += [number, number]
    return pairs


def _claims(value: Any) -> dict[str, list[int]]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > TOPICS:
        raise MetadataRefused("claims that are no object of topics")
    claims: dict[str, list[int]] = {}
    room = NUMBERS
    for topic, pairs in value.items():
        runs = _ranges(pairs)
        room -= sum(map(len, runs))
        if room < 0:
            raise MetadataRefused(f"more than {NUMBERS} partitions")
        claims[read_label(topic, "a topic", chars=NAME_CHARS)] = [
            number for run in runs for number in run
        ]
    return claims


def _ranges(pairs: Any) -> list[range]:
    if (
        not isinstance(pairs, list)
        or len(pairs) % 2
        or not all(type(n) is int and 0 <= n < LARGEST_INT for n in pairs)
    ):
        raise MetadataRefused("runs that are no pairs of numbers")
    return [range(first, last + 1) for first, last in zip(pairs[::2], pairs[1::2], strict=True)]


def _labels(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > LABELS:
        raise MetadataRefused(f"labels that are no object of at most {LABELS}")
    return {
        read_label(name, "a label's name"): read_label(text, "a label")
        for name, text in value.items()
    }
