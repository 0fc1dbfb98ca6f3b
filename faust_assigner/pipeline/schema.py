"""The pipeline's tables as Spark and Arrow schemas, derived from one set of column definitions.

:mod:`faust_assigner.ledger` defines the tables of ledger lines; this module defines the tables that only the
pipeline writes. The column ``dt`` (the UTC day) is computed, never read from a ledger line.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from faust_assigner.ledger import (
    BOOLEAN,
    DOUBLE,
    GROUP,
    INT,
    LONG,
    STRING,
    STRING_MAP,
    STRUCTS,
    TABLES,
    TIMESTAMP,
    Column,
    columns,
)

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

DATE = "date"
LEADER_TOPIC = "__assignor-__leader"
BINARY = "binary"
DAY = Column("dt", DATE)


#: The ledger's lines in the history: each accepted line once, stored by its day.
FACTS: Mapping[str, tuple[Column, ...]] = MappingProxyType(
    {
        # The longest recovery of a decision may begin on a later day; the decision's row stores it.
        "decisions": (*TABLES["decision"], *columns("longest_recovery_s? double")),
        "placements": TABLES["assignment"],
        "recoveries": TABLES["recovery"],
        "samples": TABLES["partition_sample"],
    }
)
#: Each fact -> its ledger table.
LEDGER_TABLE: Mapping[str, str] = MappingProxyType(dict(zip(FACTS, TABLES, strict=True)))

_MOVED = "decisions long, assigned long, moved long, cold_moves long, standby_hits long"


def _daily(text: str) -> tuple[Column, ...]:
    return (GROUP, DAY, *columns(text))


#: The tables that ``history`` computes for each day, and the refused lines: one Parquet folder per table.
HISTORY: Mapping[str, tuple[Column, ...]] = MappingProxyType(
    {
        "movement": _daily(f"policy string, {_MOVED}"),
        # Rounds with warm-ups are counted in ``warmup_rounds`` and excluded from the other columns.
        "balance": _daily(
            "policy string, max_spread? double, mean_spread? double, idle_members long, "
            "warmup_rounds long"
        ),
        "recovery": _daily(
            "source string, recoveries long, records long, p50_s double, p90_s double, max_s double"
        ),
        "skew": _daily("topic string, partition int, records_in long, bytes_in long, share double"),
        "rebalances": _daily(
            "decision_id string, ts timestamp, trigger string, policy string, deploy string, "
            "members int, assigned long, moved long, cold_moves long, standby_hits long, "
            "tasks_moved long, tasks_cold long, tasks_orphaned long, spread long, idle long, "
            "solve_ms double, longest_recovery_s? double"
        ),
        "moves": _daily(
            "decision_id string, ts timestamp, topic string, partition int, prev_member_id? string, "
            "member_id string, cause string, cold boolean, standby_hit boolean"
        ),
        "owners": _daily(
            "decision_id string, member_id string, member string, rack? string, tasks long, "
            "active_partitions long, active string, standby_partitions long"
        ),
        "deploys": _daily(f"deploy string, policy string, first timestamp, {_MOVED}"),
        "slowest": _daily(
            "topic string, partition int, recoveries long, records long, max_s double, "
            "source string, decision_id string"
        ),
        "timeline": _daily(
            "hour timestamp, rebalances long, members? int, tasks_gone long, tasks_balance long, "
            "tasks_new long, tasks_cold long, recoveries long, standstill_s? double, "
            "lag_max? long, lag_sum? long"
        ),
        "standstills": _daily(
            "decision_id string, topic string, partition int, member_id string, member string, "
            "source string, started timestamp, seconds double, records long, trigger? string, "
            "cause? string"
        ),
        "quarantine": columns("file string, line long, reason string"),
    }
)

#: The columns that identify a row of each history table; rows are sorted by these columns.
HISTORY_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "movement": ("group_id", "dt", "policy"),
        "balance": ("group_id", "dt", "policy"),
        "recovery": ("group_id", "dt", "source"),
        "skew": ("group_id", "dt", "topic", "partition"),
        "rebalances": ("ts", "group_id", "decision_id"),
        "moves": ("ts", "group_id", "decision_id", "topic", "partition"),
        "owners": ("group_id", "dt", "member_id"),
        "deploys": ("group_id", "dt", "first", "deploy", "policy"),
        "slowest": ("group_id", "dt", "topic", "partition"),
        "timeline": ("hour", "group_id"),
        "standstills": ("started", "group_id", "topic", "partition", "member_id", "decision_id"),
        "quarantine": ("file", "line", "reason"),
    }
)
#: The tables with a folder per day.
DAILY: tuple[str, ...] = tuple(name for name in HISTORY if name != "quarantine")

_ARROW: Mapping[str, pa.DataType] = {
    STRING: pa.string(),
    INT: pa.int32(),
    LONG: pa.int64(),
    DOUBLE: pa.float64(),
    BOOLEAN: pa.bool_(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    DATE: pa.date32(),
    BINARY: pa.binary(),
    STRING_MAP: pa.map_(pa.string(), pa.string()),
}


def spark_schema(table: tuple[Column, ...]) -> StructType:
    """Spark's schema of ``table``; all columns are nullable, as after a read from files."""
    from pyspark.sql import types as T  # noqa: N812 - the name everyone knows it by

    return T.StructType([T.StructField(column.name, _spark_type(column)) for column in table])


def arrow_schema(table: tuple[Column, ...]) -> pa.Schema:
    """Arrow's schema of ``table``."""
    return pa.schema([pa.field(column.name, _arrow_type(column)) for column in table])


def _spark_type(column: Column) -> DataType:
    from pyspark.sql import types as T  # noqa: N812 - the name everyone knows it by

    plain = {
        STRING: T.StringType,
        INT: T.IntegerType,
        LONG: T.LongType,
        DOUBLE: T.DoubleType,
        BOOLEAN: T.BooleanType,
        TIMESTAMP: T.TimestampType,
        DATE: T.DateType,
        BINARY: T.BinaryType,
    }
    if column.type == STRUCTS:
        return T.ArrayType(spark_schema(column.fields))
    if column.type == STRING_MAP:
        return T.MapType(T.StringType(), T.StringType())
    return plain[column.type]()


def _arrow_type(column: Column) -> pa.DataType:
    if column.type == STRUCTS:
        return pa.list_(pa.struct(list(arrow_schema(column.fields))))
    return _ARROW[column.type]


#: The place of a line: its file (or topic-partition), the start of its chunk, the line's position (byte
#: or offset), and the line's number, counted from the chunk's first line.
PLACE = columns("file string, chunk long, pos long, line long")

#: A parsed line has the reason of its refusal, or the struct of its table. The closing row of a file's
#: chunk has neither: its ``pos`` is the chunk's end, its ``line`` the number of lines in the chunk.
PARSED_ARROW = pa.schema(
    [
        *arrow_schema(PLACE),
        pa.field("reason", pa.string()),
        *(pa.field(name, pa.struct(list(arrow_schema(table)))) for name, table in TABLES.items()),
    ]
)


def parsed_schema() -> StructType:
    """Spark's schema of PARSED_ARROW."""
    from pyspark.sql import types as T  # noqa: N812 - the name everyone knows it by

    return T.StructType(
        [
            *spark_schema(PLACE),
            T.StructField("reason", T.StringType()),
            *(T.StructField(name, spark_schema(table)) for name, table in TABLES.items()),
        ]
    )


def is_leader_topic(topic: str) -> bool:
    """Return whether ``topic`` is Faust's leader topic, which has no records and is not a task."""
    return topic.endswith(LEADER_TOPIC)
