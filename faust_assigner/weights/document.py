"""Partition weights: a versioned document and its validation.

A weight is the load of a partition relative to an ordinary partition (1.0). The pipeline computes the
weights with Spark or plain Python. A file or a compacted topic carries the weights to the assignor.
This module does no I/O. It has the rules that keep a bad document from harming a group:

* the writer and the reader clamp a weight to 0.25-4 times the median of its group, or to the
  limits that the operator of the group sets for both (``limits.py``);
* a missing, stale or invalid document means 1.0 for every partition, with the reason;
* a partition outside the document weighs 1.0.

    {"format": "faust-assigner-weights", "format_version": 1, "version": 1795232422123,
     "computed_at": "2026-11-21T03:40:22.123Z", "partition_weight": [{"group_id": ..., "topic": ...,
     "partition": 0, "weight": 1.25, ...}, ...]}
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from faust_assigner.errors import FaustAssignerError
from faust_assigner.settings.table import WEIGHTS_MAX_AGE_S
from faust_assigner.weights.limits import DEFAULT_LIMITS, Limits, clamp_to_median

FORMAT = "faust-assigner-weights"
FORMAT_VERSION = 1

#: Seconds after which weights count as stale, because they no longer describe the load.
MAX_AGE_S = WEIGHTS_MAX_AGE_S.default
#: Seconds by which the clocks of two machines may differ. A document from further in the future is not used.
CLOCK_SKEW_S = 3_600.0
MAX_BYTES = 64 * 1024 * 1024

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class WeightsRefused(FaustAssignerError, ValueError):
    """A weights document was refused; the message is the reason for the log."""


class WeightRow(NamedTuple):
    """A row of the table ``partition_weight``; rates are per second, ``state_bytes`` in bytes.

    The fields are in the order of the columns. ``weight`` is clamped; ``samples`` is the number of underlying
    samples, ``sampled_at`` the time of the newest sample. ``confidence`` is 1 minus half the width of the 95%
    interval of the partition's share of the load, relative to this share. It is 0 for fewer than two hours of
    samples.
    """

    group_id: str
    dt: str
    version: int
    computed_at: datetime
    topic: str
    partition: int
    weight: float
    bytes_rate: float
    record_rate: float
    cpu_rate: float
    state_bytes: int
    recovery_s_est: float
    samples: int
    sampled_at: datetime | None = None
    confidence: float = 0.0


@dataclass(frozen=True)
class WeightSet:
    """The weights of one group, (topic, partition) -> weight, with their version; or why there are none.

    ``code`` is the reason as a word: loading, missing, invalid, stale, future, unnamed.
    """

    version: int | None
    weights: Mapping[tuple[str, int], float] = field(default_factory=dict)
    code: str | None = None
    reason: str | None = None

    @property
    def in_force(self) -> bool:
        """Whether there are weights; without weights every partition weighs 1.0."""
        return bool(self.weights)


def neutral(code: str, reason: str) -> WeightSet:
    """Return weights of 1.0 for every partition, with ``reason``."""
    return WeightSet(None, MappingProxyType({}), code, reason)


@dataclass(frozen=True)
class WeightsDocument:
    """A parsed file or record: a version of the weights of one or more groups."""

    version: int
    computed_at: datetime
    rows: tuple[Mapping[str, Any], ...]
    #: Group -> the time of its newest sample, from which its age counts; by default ``computed_at``.
    sampled_at: Mapping[str, datetime] = field(default_factory=dict)

    def for_group(
        self,
        group_id: str,
        *,
        now: datetime,
        max_age_s: float = MAX_AGE_S,
        limits: Limits = DEFAULT_LIMITS,
    ) -> WeightSet:
        """Return the weights of ``group_id`` clamped around their median, or 1.0 with the reason."""
        sampled_at = self.sampled_at.get(group_id, self.computed_at)
        old = (now - min(sampled_at, self.computed_at)).total_seconds()
        if old > max_age_s:
            return neutral(
                "stale",
                f"version {self.version} is stale: its newest sample is {old:.0f} s old, the limit is "
                f"{max_age_s:.0f}",
            )
        age = (now - self.computed_at).total_seconds()
        if age < -CLOCK_SKEW_S:
            return neutral(
                "future", f"version {self.version} was computed {-age:.0f} s in the future"
            )
        mine = [row for row in self.rows if row["group_id"] == group_id]
        if not mine:
            return neutral(
                "unnamed", f"version {self.version} has no partition of group {group_id!r}"
            )
        clamped = clamp_to_median(np.array([row["weight"] for row in mine]), limits)
        return WeightSet(
            self.version,
            MappingProxyType(
                {
                    (row["topic"], row["partition"]): weight
                    for row, weight in zip(mine, clamped.tolist(), strict=True)
                }
            ),
        )


def encode(
    rows: Sequence[WeightRow],
    *,
    version: int,
    computed_at: datetime,
    sampled_at: Mapping[str, datetime] | None = None,
) -> bytes:
    """Return the document with ``rows``, a row per line so that versions can be compared with diff.

    ``sampled_at`` is the time of each group's newest sample, from which the document's age counts.
    """
    head = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": version,
        "computed_at": stamp(computed_at),
        "sampled_at": {group: stamp(at) for group, at in sorted((sampled_at or {}).items())},
    }
    lines = ",\n".join(
        json.dumps(_plain_row(row), separators=(", ", ": "), allow_nan=False) for row in rows
    )
    return f'{json.dumps(head)[:-1]}, "partition_weight": [\n{lines}\n]}}\n'.encode()


def decode(data: bytes) -> WeightsDocument:
    """Parse and validate a document, plain or zlib-compressed.

    Raises WeightsRefused with the first fault: size, JSON, format, version, or a row. One bad row refuses the
    whole document: with half of the rows, load would shift to the other partitions.
    """
    text = _inflate_document(data)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WeightsRefused(f"not JSON: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise WeightsRefused(f"not a weights document: 'format' is not {FORMAT!r}")
    if found.get("format_version") != FORMAT_VERSION:
        raise WeightsRefused(
            f"it has format_version {found.get('format_version')!r}, this build reads {FORMAT_VERSION}"
        )
    version = _checked_integer(found.get("version"), "version", 2**63)
    computed_at = parse_stamp(found.get("computed_at"))
    rows = found.get("partition_weight")
    if not isinstance(rows, list):
        raise WeightsRefused("'partition_weight' is not a list")
    sampled_at = found.get("sampled_at", {})
    if not isinstance(sampled_at, dict):
        raise WeightsRefused("'sampled_at' is not an object")
    return WeightsDocument(
        version,
        computed_at,
        _checked_rows(rows),
        {group: parse_stamp(at, "sampled_at") for group, at in sampled_at.items()},
    )


def compress(document: bytes) -> bytes:
    """Compress the document for a record's value; :func:`decode` accepts both forms."""
    return zlib.compress(document, 6)


def stamp(moment: datetime) -> str:
    """Format ISO 8601 UTC with milliseconds, as everywhere in the pipeline."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_stamp(value: Any, name: str = "computed_at") -> datetime:
    """Parse the result of :func:`stamp`; raises WeightsRefused."""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise WeightsRefused(f"'{name}' is not an ISO 8601 time: {str(value)[:60]!r}") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def millis(moment: datetime) -> int:
    """Return milliseconds since 1970: the version of weights whose newest sample is from ``moment``."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _plain_row(row: WeightRow) -> dict[str, object]:
    sampled_at = None if row.sampled_at is None else stamp(row.sampled_at)
    return {**row._asdict(), "computed_at": stamp(row.computed_at), "sampled_at": sampled_at}


def _inflate_document(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise WeightsRefused(f"{len(data)} bytes, the limit is {MAX_BYTES}")
    if data[:1] != b"\x78":  # zlib's first byte; JSON starts with a brace or white space
        return data
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(data, MAX_BYTES)
    except zlib.error as error:
        raise WeightsRefused(f"not zlib: {error}") from None
    if inflater.unconsumed_tail or not inflater.eof:
        raise WeightsRefused(f"truncated, or more than {MAX_BYTES} bytes when decompressed")
    return text


def _checked_rows(rows: Iterable[object]) -> tuple[Mapping[str, object], ...]:
    checked, seen = [], set()
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise WeightsRefused(f"row {number} is not an object")
        group_id, topic = row.get("group_id"), row.get("topic")
        if not isinstance(group_id, str) or not isinstance(topic, str):
            raise WeightsRefused(f"row {number}: 'group_id' and 'topic' must be strings")
        partition = _checked_integer(row.get("partition"), f"row {number}: 'partition'", 2**31)
        weight = row.get("weight")
        if (
            isinstance(weight, bool)
            or not isinstance(weight, int | float)
            or not _is_valid_weight(weight)
        ):
            raise WeightsRefused(
                f"row {number} ({topic}/{partition}): weight {str(weight)[:40]} "
                "is not a positive number"
            )
        if (group_id, topic, partition) in seen:
            raise WeightsRefused(f"row {number}: {topic}/{partition} of {group_id} is a duplicate")
        seen.add((group_id, topic, partition))
        checked.append(row)
    return tuple(checked)


def _is_valid_weight(weight: float) -> bool:
    try:
        return math.isfinite(weight) and weight > 0
    except OverflowError:  # an integer beyond a double
        return False


def _checked_integer(value: object, name: str, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < limit:
        raise WeightsRefused(f"{name} is not an integer from 0 to {limit - 1}: {str(value)[:40]!r}")
    return value
