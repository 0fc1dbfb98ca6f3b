"""Encodes rows of the ledger as lines of JSON; formats the id of a decision and times."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from faust_assigner.ledger.tables import TABLES, TIMESTAMP

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def stamp(seconds: float) -> str:
    """Format a point in time (seconds since 1970, UTC) for the ledger.

    >>> stamp(1795232422.1239)
    '2026-11-21T03:40:22.123Z'
    """
    # Convert to whole milliseconds first: float error must not round a time up to the next millisecond.
    moment = _EPOCH + timedelta(milliseconds=math.floor(seconds * 1000 + 1e-6))
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def decision_id(group_id: str, generation: int, member_ids: Iterable[str]) -> str:
    """Return the id of a round, equal for two leaders of one generation, new for a recreated group.

    Kafka makes member ids unique, so generation 1 of a recreated group gets a different id.

    >>> decision_id("shop", 7, ["b", "a"]) == decision_id("shop", 7, ["a", "b"])
    True
    """
    said = "\0".join([group_id, str(generation), *sorted(member_ids)])
    return f"{generation}-{hashlib.sha256(said.encode('utf-8', 'replace')).hexdigest()[:16]}"


def encode(table: str, row: Mapping[str, object]) -> bytes:
    """Encode ``row`` as a line of the ledger with its newline; timestamp columns take seconds."""
    line: dict[str, Any] = {"table": table, **row}
    for name in _TIMES[table]:
        line[name] = stamp(line[name])
    text = json.dumps(line, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace") + b"\n"


#: The first bytes of a partition sample's line.
SAMPLE: Final = b'{"table":"partition_sample"'


def group_marker(group_id: str) -> bytes:
    """Return bytes that every line of the group contains and hardly any other line contains.

    >>> group_marker("shop") in encode("partition_sample", {"group_id": "shop", "ts": 1.0})
    True
    """
    return f'"group_id":{json.dumps(group_id, ensure_ascii=False)}'.encode("utf-8", "replace")


_TIMES = {
    table: tuple(column.name for column in columns if column.type == TIMESTAMP)
    for table, columns in TABLES.items()
}
