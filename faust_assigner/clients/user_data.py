"""The user_data that these consumers exchange: JSON, versioned, bounded and untrusted.

A member reports its partitions and the round in which they were assigned. The leader's answer contains the
round and marks the spare copies. The leaders number the rounds themselves, because aiokafka passes no
generation to its assignors: the next round is the highest reported round + 1.
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
#: The maximum round, because a decoder refuses a higher number.
LAST_ROUND: Final = LARGEST_INT - 1
#: The maximum numbers of a member's labels, and of its claimed partitions.
LABELS: Final = 64
NUMBERS: Final = 200_000


@dataclass(frozen=True, kw_only=True)
class UserData:
    """One member's report: ``active`` and ``spare`` map topics to its partitions of ``round``.

    ``round`` is -1 before the first assignment. ``labels`` describe the member, for example its rack.
    """

    round: int = -1
    active: Claims = field(default_factory=dict)
    spare: Claims = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The leader's user_data for a member, which Kafka sends with the member's partitions."""

    round: int = -1
    spare: Claims = field(default_factory=dict)


def encode_user_data(data: UserData) -> bytes:
    """Encode a member's report as user_data."""
    return _encode_json(
        {
            "v": VERSION,
            "round": data.round,
            "labels": dict(data.labels),
            "capacity": data.capacity,
            "active": _claims_as_runs(data.active),
            "spare": _claims_as_runs(data.spare),
        }
    )


def decode_user_data(data: bytes) -> UserData:
    """Decode a member's report; raises :class:`MetadataRefused` for other data."""
    fields = read_json(data or b"")
    capacity = fields.get("capacity", 1.0)
    if (
        isinstance(capacity, bool)
        or not isinstance(capacity, int | float)
        or not SMALLEST_CAPACITY <= capacity <= LARGEST_CAPACITY
    ):
        raise MetadataRefused(
            f"the capacity is not a number from {SMALLEST_CAPACITY:g} to {LARGEST_CAPACITY:g}"
        )
    return UserData(
        round=_read_round(fields),
        labels=_read_labels(fields.get("labels", {})),
        capacity=float(capacity),
        active=_read_claims(fields.get("active")),
        spare=_read_claims(fields.get("spare")),
    )


def next_round(reports: Iterable[UserData]) -> int:
    """Return the number of the next round: the highest reported number plus 1, at most the maximum."""
    return min(1 + max((data.round for data in reports), default=-1), LAST_ROUND)


def encode_answer(answer: Answer) -> bytes:
    """Encode the leader's answer as user_data."""
    return _encode_json(
        {"v": VERSION, "round": answer.round, "spare": _claims_as_runs(answer.spare)}
    )


def decode_answer(data: bytes) -> Answer:
    """Decode the leader's answer; raises :class:`MetadataRefused` for other data."""
    fields = read_json(data or b"")
    return Answer(round=_read_round(fields), spare=_read_claims(fields.get("spare")))


def _encode_json(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def _read_round(fields: Mapping[str, Any]) -> int:
    value = fields.get("round", -1)
    if type(value) is not int or not -1 <= value <= LAST_ROUND:
        raise MetadataRefused("the round is not a whole number of at least -1")
    return value


def _claims_as_runs(claims: Claims) -> dict[str, list[int]]:
    """Encode claims as topic -> [first, last, first, last, ...] of the runs of contiguous numbers."""
    return {
        topic: runs
        for topic in sorted(claims)
        if (runs := _run_bounds(sorted(map(int, claims[topic]))))
    }


def _run_bounds(numbers: list[int]) -> list[int]:
    pairs: list[int] = []
    for number in numbers:
        if pairs and number == pairs[-1] + 1:
            pairs[-1] = number
        else:
            pairs += [number, number]
    return pairs


def _read_claims(value: object) -> dict[str, list[int]]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > TOPICS:
        raise MetadataRefused("the claims are not an object with topics as keys")
    claims: dict[str, list[int]] = {}
    room = NUMBERS
    for topic, pairs in value.items():
        runs = _ranges(pairs)
        room -= sum(map(len, runs))
        if room < 0:
            raise MetadataRefused(f"the claims contain more than {NUMBERS} partitions")
        claims[read_label(topic, "a topic", chars=NAME_CHARS)] = [
            number for run in runs for number in run
        ]
    return claims


def _ranges(pairs: object) -> list[range]:
    if (
        not isinstance(pairs, list)
        or len(pairs) % 2
        or not all(type(n) is int and 0 <= n < LARGEST_INT for n in pairs)
    ):
        raise MetadataRefused("the runs are not pairs of numbers")
    return [range(first, last + 1) for first, last in zip(pairs[::2], pairs[1::2], strict=True)]


def _read_labels(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > LABELS:
        raise MetadataRefused(f"the labels are not an object with at most {LABELS} entries")
    return {
        read_label(name, "a label's name"): read_label(text, "a label")
        for name, text in value.items()
    }
