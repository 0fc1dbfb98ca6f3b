"""The types of the columns for Spark and Arrow."""

from __future__ import annotations

import pytest

from faust_assigner.pipeline import schema
from faust_assigner.pipeline.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    STRING_MAP,
    STRUCTS,
    TIMESTAMP,
    Column,
)

#: A column type -> Spark's and Arrow's names of it.
NAMES = {
    STRING: ("string", "string"),
    INT: ("int", "int32"),
    LONG: ("bigint", "int64"),
    DOUBLE: ("double", "double"),
    BOOLEAN: ("boolean", "bool"),
    TIMESTAMP: ("timestamp", "timestamp[us, tz=UTC]"),
    DATE: ("date", "date32[day]"),
    BINARY: ("binary", "binary"),
    STRING_MAP: ("map<string,string>", "map<string, string>"),
}


@pytest.mark.parametrize("kind", NAMES)
def test_a_column_has_the_same_type_in_spark_and_arrow(kind: str) -> None:
    """A timestamp is a moment, not a time of day without a zone."""
    table = (Column("c", kind),)
    (spark,), arrow = schema.spark_schema(table).fields, schema.arrow_schema(table).field("c")
    found = (spark.dataType.simpleString(), str(arrow.type))
    assert (spark.name, spark.nullable, *found) == ("c", True, *NAMES[kind])


def test_the_columns_of_a_list_of_rows_keep_their_order() -> None:
    """Both schemas contain the columns of the inner rows."""
    table = (Column("c", STRUCTS, fields=(Column("z", LONG), Column("a", STRING))),)
    assert schema.spark_schema(table).simpleString() == (
        "struct<c:array<struct<z:bigint,a:string>>>"
    )
    assert str(schema.arrow_schema(table).field("c").type) == (
        "list<item: struct<z: int64, a: string>>"
    )
