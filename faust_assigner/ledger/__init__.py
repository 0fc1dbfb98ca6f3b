"""The ledger's tables: rows with the reasons of each placement, as lines of JSON.

Each line is a JSON object; ``table`` names an entry of :data:`TABLES` and the other keys are its columns.
Readers ignore unknown keys, so a writer may add keys. The pipeline derives its Spark schemas from these
definitions, so there is a single schema.

>>> line = encode("recovery", {"group_id": "shop", "decision_id": "d1", "topic": "t", "partition": 0,
...     "member_id": "m", "source": "standby", "started": 1.0, "ended": 1.5,
...     "start_offset": 7, "end_offset": 9, "records": 2, "bytes": 64})
>>> parse(line).values["started"].isoformat()
'1970-01-01T00:00:01+00:00'
>>> parse(b'{"table": "recovery", "group_id": "shop"}').reason
"recovery: column 'decision_id' is missing"
"""

from faust_assigner.ledger.encoding import SAMPLE, decision_id, encode, group_marker, stamp
from faust_assigner.ledger.parsing import MAX_LINE_BYTES, Refusal, Row, parse
from faust_assigner.ledger.tables import (
    ASSIGNMENT,
    BOOLEAN,
    DECISION,
    DOUBLE,
    GROUP,
    INT,
    LONG,
    PARTITION_SAMPLE,
    RECOVERY,
    STRING,
    STRING_MAP,
    STRUCTS,
    TABLES,
    TIMESTAMP,
    WEIGHTLESS,
    Column,
    columns,
)

__all__ = [
    "ASSIGNMENT",
    "BOOLEAN",
    "DECISION",
    "DOUBLE",
    "GROUP",
    "INT",
    "LONG",
    "MAX_LINE_BYTES",
    "PARTITION_SAMPLE",
    "RECOVERY",
    "SAMPLE",
    "STRING",
    "STRING_MAP",
    "STRUCTS",
    "TABLES",
    "TIMESTAMP",
    "WEIGHTLESS",
    "Column",
    "Refusal",
    "Row",
    "columns",
    "decision_id",
    "encode",
    "group_marker",
    "parse",
    "stamp",
]
