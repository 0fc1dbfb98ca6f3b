"""The columns of the ledger's tables. The pipeline derives its Spark schemas from these definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

#: The allowed column types. ``string_map`` is map<string,string>; ``structs`` is array<struct>.
STRING: Final = "string"
INT: Final = "int"
LONG: Final = "long"
DOUBLE: Final = "double"
BOOLEAN: Final = "boolean"
TIMESTAMP: Final = "timestamp"
STRING_MAP: Final = "map<string,string>"
STRUCTS: Final = "array<struct>"
#: A key of a decision's ``config``. Its value is the names of the weightless topics, separated by spaces.
WEIGHTLESS: Final = "weightless"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type, whether its value is optional, and its allowed ``words`` if they are limited."""

    name: str
    type: str
    optional: bool = False
    words: tuple[str, ...] = ()
    fields: tuple[Column, ...] = ()


def columns(text: str) -> tuple[Column, ...]:
    """Parse columns from ``name type`` pairs; ``?`` after the name marks an optional column."""
    pairs = (entry.split() for entry in text.split(","))
    return tuple(Column(name.rstrip("?"), kind, name.endswith("?")) for name, kind in pairs)


GROUP: Final = Column("group_id", STRING)
DECISION = (
    GROUP,
    *columns("decision_id string, ts timestamp, generation int, trigger string, policy string"),
    Column("config", STRING_MAP),
    Column(
        "members",
        STRUCTS,
        fields=columns(
            "member_id string, rack? string, capacity double, epoch int, instance_id? string"
        ),
    ),
    Column("solve_ms", DOUBLE),
    Column("session_timeout_s", DOUBLE, optional=True),
)
ASSIGNMENT = (
    GROUP,
    *columns("decision_id string, topic string, partition int"),
    Column("role", STRING, words=("active", "standby", "warmup")),
    *columns(
        "member_id string, prev_member_id? string, moved boolean, standby_hit boolean, cold boolean"
    ),
)
RECOVERY = (
    GROUP,
    *columns("decision_id string, topic string, partition int, member_id string"),
    Column("source", STRING, words=("local", "standby", "snapshot", "replay")),
    *columns(
        "started timestamp, ended timestamp, start_offset long, end_offset long, "
        "records long, bytes long"
    ),
)
PARTITION_SAMPLE = (
    GROUP,
    *columns(
        "ts timestamp, topic string, partition int, end_offset long, committed_offset long, "
        "bytes_in long, records_in long, cpu_ms double, state_bytes long"
    ),
)
#: The tables that a ledger line may name.
TABLES: Mapping[str, tuple[Column, ...]] = MappingProxyType(
    {
        "decision": DECISION,
        "assignment": ASSIGNMENT,
        "recovery": RECOVERY,
        "partition_sample": PARTITION_SAMPLE,
    }
)
