"""Parsing a ledger line: any bytes yield a row, a reason, or None for a blank line."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faust_assigner.ledger import (
    MAX_LINE_BYTES,
    TABLES,
    Refusal,
    Row,
    decision_id,
    encode,
    parse,
    stamp,
)

ROWS = {
    "decision": {
        "group_id": "shop",
        "decision_id": "7-ab",
        "ts": 1795232422.123,
        "generation": 7,
        "trigger": "join",
        "policy": "faust-assigner",
        "config": {"replicas": "1"},
        "members": [
            {"member_id": "m", "rack": "r1", "capacity": 2.0, "epoch": 6, "instance_id": "w1"}
        ],
        "solve_ms": 0.5,
        "session_timeout_s": 60.0,
    },
    "assignment": {
        "group_id": "shop",
        "decision_id": "7-ab",
        "topic": "orders",
        "partition": 3,
        "role": "standby",
        "member_id": "m",
        "prev_member_id": "n",
        "moved": True,
        "standby_hit": False,
        "cold": True,
    },
    "recovery": {
        "group_id": "shop",
        "decision_id": "7-ab",
        "topic": "log",
        "partition": 3,
        "member_id": "m",
        "source": "snapshot",
        "started": 1795232422.0,
        "ended": 1795232423.5,
        "start_offset": -1,
        "end_offset": 9,
        "records": 10,
        "bytes": 1000,
    },
    "partition_sample": {
        "group_id": "shop",
        "ts": 1795232422.123,
        "topic": "orders",
        "partition": 3,
        "end_offset": 10,
        "committed_offset": 9,
        "bytes_in": 100,
        "records_in": 10,
        "cpu_ms": 1.5,
        "state_bytes": 0,
    },
}


@pytest.mark.parametrize("table", TABLES)
def test_what_is_encoded_is_parsed_again(table: str) -> None:
    """Rows of every table survive a round trip; seconds return as aware times."""
    line = encode(table, ROWS[table])
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    row = parse(line)
    assert isinstance(row, Row)
    assert row.table == table
    for name, value in ROWS[table].items():
        found = row.values[name]
        assert (found.timestamp() if isinstance(found, datetime) else found) == value


def test_times_are_utc_with_milliseconds() -> None:
    """The format is that of the reference; fractions are cut, not rounded."""
    assert stamp(1795232422.1239999) == "2026-11-21T03:40:22.123Z"
    assert stamp(1795232422.123) == "2026-11-21T03:40:22.123Z"
    row = parse(encode("partition_sample", ROWS["partition_sample"]))
    assert isinstance(row, Row)
    assert row.values["ts"] == datetime(2026, 11, 21, 3, 40, 22, 123000, UTC)


@pytest.mark.parametrize(("seconds", "is_taken"), [(0.0, True), (-0.001, False)])
def test_a_recovery_may_end_in_the_millisecond_in_which_it_began(
    seconds: float, is_taken: bool
) -> None:
    """Such a recovery had no records to restore; an end before the start is refused."""
    row = ROWS["recovery"]
    line = encode("recovery", {**row, "ended": row["started"] + seconds})
    assert isinstance(parse(line), Row) is is_taken


def test_unknown_columns_are_left_out() -> None:
    """A newer writer may add columns."""
    row = parse(encode("recovery", {**ROWS["recovery"], "lag": [1, {"x": None}], "dt": 5}))
    assert isinstance(row, Row)
    assert set(row.values) == {column.name for column in TABLES["recovery"]}


@pytest.mark.parametrize(
    ("table", "column"),
    [
        (table, column.name)
        for table, columns in TABLES.items()
        for column in columns
        if not column.optional
    ],
)
def test_each_needed_column_that_is_missing_is_named(table: str, column: str) -> None:
    """A missing, null or wrongly typed column is refused; the reason names table and column."""
    line = json.loads(encode(table, ROWS[table]))
    for broken, word in (
        ({k: v for k, v in line.items() if k != column}, "missing"),
        ({**line, column: None}, "null"),
        ({**line, column: {"no": 1}}, "type"),
    ):
        refusal = parse(json.dumps(broken).encode())
        assert isinstance(refusal, Refusal), column
        assert f"{table}: column '{column}'" in refusal.reason
        assert word in refusal.reason


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("decision", "generation", True),
        ("decision", "session_timeout_s", -5.0),
        ("decision", "generation", 7.0),
        ("decision", "solve_ms", False),
        ("decision", "generation", 2**31),
        ("decision", "generation", -(2**31) - 1),
        pytest.param("decision", "solve_ms", 10**400, id="beyond a double"),
        pytest.param("decision", "solve_ms", 1 << 1022, id="near the end of doubles"),
        ("partition_sample", "cpu_ms", 1.7e308),
        ("partition_sample", "cpu_ms", -1.1e100),
        pytest.param("decision", "solve_ms", -(10**400), id="below a double"),
        ("recovery", "start_offset", -(2**63) - 1),
        ("recovery", "records", 2**63),
        ("recovery", "records", "5"),
        ("assignment", "moved", 0),
        ("assignment", "moved", "true"),
        ("assignment", "role", "leader"),
        ("assignment", "partition", True),
        ("assignment", "prev_member_id", 1),
        ("recovery", "source", "disk"),
        ("decision", "ts", "2026-11-21 03:40:22.123Z"),
        ("decision", "ts", "2026-11-21T03:40:22.123456Z"),
        ("decision", "ts", "2026-13-21T03:40:22.123Z"),
        ("decision", "ts", "2026-11-21T24:00:00.000Z"),
        ("decision", "config", {"a": 1}),
        ("decision", "config", {"\ud800": "a"}),
        ("decision", "config", {"a": "\ud800"}),
        ("decision", "members", [{"member_id": "m", "capacity": 1.0}]),
        ("decision", "members", [{"member_id": "m", "capacity": 1.0, "epoch": None}]),
        ("decision", "members", [{"member_id": "m", "capacity": 1.0, "epoch": 6}, None]),
        ("decision", "members", {"member_id": "m", "capacity": 1.0, "epoch": 6}),
    ],
)
def test_values_are_taken_strictly(table: str, column: str, value: object) -> None:
    """Booleans and floats are not ints; words are from the vocabulary; times have one format."""
    line = json.loads(encode(table, ROWS[table]))
    refusal = parse(json.dumps({**line, column: value}).encode())
    assert isinstance(refusal, Refusal)
    assert repr(column) in refusal.reason


def test_each_member_of_a_decision_has_every_optional_field() -> None:
    """A missing field and a null field are None; a field of a newer writer is left out."""
    needed = {"member_id": "m", "capacity": 2, "epoch": 6}
    members = [needed, {**needed, "rack": None, "instance_id": "w1", "newer": 3}]
    row = parse(encode("decision", {**ROWS["decision"], "members": members}))
    assert isinstance(row, Row)
    assert row.values["members"] == [
        {"member_id": "m", "rack": None, "capacity": 2.0, "epoch": 6, "instance_id": None},
        {"member_id": "m", "rack": None, "capacity": 2.0, "epoch": 6, "instance_id": "w1"},
    ]


def test_whole_numbers_are_doubles_too() -> None:
    """JSON has a single number type: ``1`` is a valid capacity."""
    row = parse(encode("decision", {**ROWS["decision"], "solve_ms": 3}))
    assert isinstance(row, Row)
    assert row.values["solve_ms"] == 3.0
    assert type(row.values["solve_ms"]) is float


@pytest.mark.parametrize("line", [b"", b"\n", b"  \t\r\n"])
def test_blank_lines_say_nothing(line: bytes) -> None:
    """A blank line yields neither a row nor a refusal."""
    assert parse(line) is None


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"1",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 10_000,
        b"NaN",
        b'{"table":null}',
        b'{"table":{}}',
        b'{"table":"x"}',
        b"{" + b" " * MAX_LINE_BYTES + b"}",
    ],
)
def test_hostile_lines_are_refused_with_a_reason(line: bytes) -> None:
    """The cases cover deep nesting, size, huge numbers and invalid UTF-8."""
    refusal = parse(line)
    assert isinstance(refusal, Refusal)
    assert 5 < len(refusal.reason) < 400


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_one_of_the_three(line: bytes) -> None:
    """The parser raises no exception."""
    assert isinstance(parse(line), Row | Refusal | None)


@settings(deadline=None)
@given(st.sampled_from(sorted(TABLES)), st.data())
def test_any_json_in_any_column_is_a_row_or_a_reason(table: str, data: st.DataObject) -> None:
    """An accepted row has the table's types, so Arrow accepts the row as well."""
    pa = pytest.importorskip("pyarrow")
    from faust_assigner.pipeline.schema import arrow_schema

    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
        ),
        max_leaves=4,
    )
    line = json.loads(encode(table, ROWS[table]))
    column = data.draw(st.sampled_from(sorted(line)))
    parsed = parse(json.dumps({**line, column: data.draw(values)}).encode())
    assert isinstance(parsed, Row | Refusal)
    if isinstance(parsed, Row):
        pa.RecordBatch.from_pylist([parsed.values], schema=arrow_schema(TABLES[parsed.table]))


def test_a_time_in_whole_milliseconds_is_written_as_that_millisecond() -> None:
    """The float may lie slightly below the millisecond."""
    assert stamp(1001 / 1000).endswith(".001Z")


@pytest.mark.parametrize(("records", "is_taken"), [(0, True), (1, True), (-1, False)])
def test_an_amount_may_be_nothing_and_not_less(records: int, is_taken: bool) -> None:
    """A restore reads 0 records if its disk has all rows."""
    line = encode("recovery", {**ROWS["recovery"], "records": records})
    assert isinstance(parse(line), Row) is is_taken


def test_a_line_of_the_most_bytes_is_read() -> None:
    """A longer line is refused without parsing."""
    assert parse(b" " * MAX_LINE_BYTES) is None
    assert isinstance(parse(b" " * (MAX_LINE_BYTES + 1)), Refusal)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("NaN", "NaN is not a JSON value"), ("1e999", "the number is beyond 1e+100")],
)
def test_a_number_that_json_does_not_have_refuses_the_line(text: str, reason: str) -> None:
    """Python's parser would accept the number."""
    line = encode("decision", {**ROWS["decision"], "solve_ms": 0.125})
    found = parse(line.replace(b"0.125", text.encode()))
    assert isinstance(found, Refusal)
    assert reason in found.reason


def test_a_value_that_is_no_json_is_refused_in_an_unknown_column_too() -> None:
    """Readers in other languages would refuse the file."""
    found = parse(encode("assignment", ROWS["assignment"]).replace(b"{", b'{"more":NaN,', 1))
    assert isinstance(found, Refusal)


@pytest.mark.parametrize(
    ("name", "shown"), [("x" * 58, f'"{"x" * 58}"'), ("x" * 59, f'"{"x" * 56}...')]
)
def test_a_long_value_is_shown_in_part(name: str, shown: str) -> None:
    """A reason fits on a terminal line."""
    found = parse(json.dumps({"table": name}).encode())
    assert isinstance(found, Refusal)
    assert f": {shown} is none of" in found.reason


def test_half_a_character_is_written_as_a_question_mark() -> None:
    """A line with an encoding error would stop the ledger."""
    row = {**ROWS["assignment"], "member_id": "m\ud800"}
    found = parse(encode("assignment", row))
    assert isinstance(found, Row)
    assert found.values["member_id"] == "m?"


def test_half_a_character_in_an_id_still_gives_a_round_an_id() -> None:
    """Kafka's names may contain any bytes; the id of their round is plain text."""
    ids = [decision_id(group, 7, [member]) for group, member in (("\ud800", "m"), ("g", "\udfff"))]
    assert [found[:2] for found in ids] == ["7-", "7-"]
    assert ids[0] != ids[1]


def test_half_a_character_in_a_key_of_a_map_is_refused() -> None:
    """Spark and Parquet could not store the key."""
    line = json.loads(encode("decision", ROWS["decision"]))
    found = parse(json.dumps({**line, "config": {"\ud800": "1"}}).encode())
    assert found == Refusal(
        "decision: column 'config' is not valid Unicode: the string has a lone surrogate"
    )


@pytest.mark.parametrize("table", ["assignment", "recovery", "partition_sample"])
def test_a_partition_that_no_topic_has_is_refused(table: str) -> None:
    """The rows of two billion partitions would take all memory; a document of weights has no partition -1."""
    line = json.loads(encode(table, ROWS[table]))
    found = [parse(json.dumps({**line, "partition": n}).encode()) for n in (-1, 1_000_000)]
    assert found == [
        Refusal(f"{table}: column 'partition' is below zero: -1"),
        Refusal(f"{table}: column 'partition' is 1000000: a topic has at most 1000000 partitions"),
    ]


def test_a_zero_in_a_member_is_kept() -> None:
    """A member without capacity in epoch 0 is no member without these fields."""
    line = json.loads(encode("decision", ROWS["decision"]))
    member = {"member_id": "m", "rack": "", "capacity": 0, "epoch": 0, "instance_id": None}
    found = parse(json.dumps({**line, "members": [member]}).encode())
    assert isinstance(found, Row)
    assert found.values["members"] == [{**member, "capacity": 0.0}]


def test_groups_whose_members_ids_join_to_the_same_text_have_other_rounds() -> None:
    """The ids are separated, and so are group and generation."""
    rounds = [("g", 1, ["ab", "c"]), ("g", 1, ["a", "bc"]), ("g", 1, ["abc"]), ("g1", 1, ["abc"])]
    assert len({decision_id(*one) for one in rounds}) == 4


def test_two_leaders_of_a_round_give_the_round_the_same_id() -> None:
    """The order of the members has no effect; the id begins with the generation."""
    ids = {decision_id("g", 12, order) for order in (["a", "b", "c"], ["c", "a", "b"])}
    assert [one.partition("-")[0] for one in ids] == ["12"]


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("decision", "generation", -(2**31)),
        ("decision", "generation", 2**31 - 1),
        ("recovery", "start_offset", -(2**63)),
        ("recovery", "end_offset", 2**63 - 1),
        pytest.param("decision", "solve_ms", 1 << 300, id="a large number"),
        ("assignment", "partition", 0),
        ("assignment", "partition", 999_999),
        ("decision", "solve_ms", 0),
        ("decision", "session_timeout_s", 0),
        ("recovery", "records", 0),
        ("recovery", "bytes", 0),
        ("partition_sample", "bytes_in", -5),
    ],
)
def test_the_least_and_the_greatest_value_of_a_column_are_taken(
    table: str, column: str, value: int
) -> None:
    """Amounts begin at zero; a sample may be negative after a counter reset."""
    line = json.loads(encode(table, ROWS[table]))
    row = parse(json.dumps({**line, column: value}).encode())
    assert isinstance(row, Row)
    assert row.values[column] == value


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"a": 1}', "names no table: column 'table' is missing"),
        (b'{"table": ""}', 'names no known table: "" is none of '),
        (b'{"table": null}', "names no known table: null is none of "),
        (b'{"table": ["decision"]}', 'names no known table: ["decision"] is none of '),
    ],
)
def test_a_line_of_no_table_is_told_from_one_of_an_unknown_table(line: bytes, said: str) -> None:
    """The refusal shows the table's name as it was written."""
    found = parse(line)
    known = ", ".join(TABLES) if said.endswith("none of ") else ""
    assert isinstance(found, Refusal)
    assert found.reason == said + known
