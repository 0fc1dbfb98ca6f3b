"""Decoding of many records in a single call: the same result as one by one."""

from __future__ import annotations

import json
import tempfile
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.serializers import codecs
from faust.serializers.codecs import Codec
from faust.serializers.registry import Registry
from hypothesis import given, settings
from hypothesis import strategies as st

from faust_assigner.app.recovery import decoding
from faust_assigner.app.recovery.decoding import decoding_of, refusal_of_rows
from faust_assigner.snapshots.sst import OFFSET_KEY, write_files


class Order(faust.Record):
    """A row of a table of models."""

    name: str
    pieces: int


class Backwards(Codec):
    """An app's own serializer."""

    def _loads(self, s: bytes) -> Any:
        return json.loads(s[::-1])

    def _dumps(self, s: Any) -> bytes:
        return json.dumps(s).encode()[::-1]


def table_of(value_serializer: Any = None, **options: Any) -> Any:
    """A table of an app that is not started."""
    app = faust.App("shop", broker="kafka://127.0.0.1:1", store="memory://", web_enabled=False)
    table = app.Table("totals", **options)
    if value_serializer is not None:
        table.changelog_topic.schema.value_serializer = value_serializer
    return table


TABLES: dict[str, dict[str, Any]] = {
    "numbers": {"key_type": str, "value_type": int},
    "texts": {"key_type": str, "value_type": str},
    "bytes": {"key_type": bytes, "value_type": bytes},
    "anything": {},
    "decimals": {"key_type": int, "value_type": Decimal},
    "models": {"key_type": str, "value_type": Order},
    "raw": {"key_type": str, "value_type": str, "value_serializer": "raw"},
}
#: Possible contents of a changelog: good records, and each kind of bad record.
PAYLOADS = [
    b"1",
    b'"a"',
    b"1.5",
    b"null",
    b"[1]",
    b"{}",
    b'{"name": "a", "pieces": 2}',
    b"NaN",
    b"",
    b" ",
    b"{no json",
    b"1,2",
    b"[1",
    b"2]",
    b"]",
    b"[",
    b'"',
    b'\\"',
    b"\xff",
    b'"\xc3',
    b'\xa9"',
    b'{"__faust": {"ns": "nothing.known"}}',
    b'"\\ud800"',
    b"9" * 5000,
    b'"no number"',
]


def one_by_one(table: Any, keys: list[bytes], values: list[bytes]) -> bool:
    """Faust's own result, pair by pair."""
    reason = decoding_of(table).reason
    return all(
        reason(SimpleNamespace(key=key, value=value, headers=(), offset=0)) is None
        for key, value in zip(keys, values, strict=True)
    )


@pytest.mark.parametrize("kind", sorted(TABLES))
@settings(deadline=None)  # a busy machine is no defect
@given(st.lists(st.tuples(st.sampled_from(PAYLOADS), st.sampled_from(PAYLOADS)), max_size=4))
def test_together_they_decode_as_one_by_one(kind: str, pairs: list[tuple[bytes, bytes]]) -> None:
    """Two halves of a text never count as whole, whatever stands between them."""
    table = table_of(**TABLES[kind])
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    assert decoding_of(table).all_decode(keys, values) == one_by_one(table, keys, values)


def test_plain_texts_are_parsed_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single call for all records is the purpose of the function."""
    calls, loads = [], decoding.faust_json.loads

    def counted(text: str) -> Any:
        calls.append(text)
        return loads(text)

    monkeypatch.setattr(decoding.faust_json, "loads", counted)
    all_decode = decoding_of(table_of(key_type=str, value_type=int)).all_decode
    assert all_decode([b'"a"'] * 1000, [b"7"] * 1000)
    assert len(calls) == 2


@pytest.mark.parametrize("serializer", [Backwards(), "binary", "json|binary", "unknown"], ids=str)
def test_other_serializers_are_asked_for_each_record(serializer: Any) -> None:
    """Their behaviour is unknown."""
    table = table_of(key_type=str, value_serializer=serializer)
    assert not decoding_of(table).all_decode([b'"a"'], [b"1"])


def test_a_schema_of_someones_own_is_asked_for_each_record() -> None:
    """It may use headers, the topic or any other part of the record."""

    class Own(faust.Schema):
        """Accepts every record."""

    table = table_of(schema=Own(key_type=str, value_type=int))
    assert not decoding_of(table).all_decode([b'"a"'], [b"1"])


def test_tables_of_plain_faust_are_not_asked_for_each_record() -> None:
    """Otherwise the single call would never apply."""
    for options in TABLES.values():
        table = table_of(**options)
        value = b'{"name": "1", "pieces": 1}' if table.value_type is Order else b"1"
        assert decoding_of(table).all_decode([b"1"], [value])


# -- the rows of a snapshot


ROWS = [(b'"a"', b"1"), (b'"b"', b"2"), (OFFSET_KEY, b"41"), (b'"c"', b"3")]


def refusal(
    monkeypatch: pytest.MonkeyPatch,
    table: Any,
    rows: list[tuple[bytes, bytes]],
    keys: list[str] | None = None,
    values: list[str] | None = None,
) -> tuple[str | None, bool]:
    """Return the reason for refusing such a snapshot, and whether its rows were read."""
    read: list[Any] = []
    monkeypatch.setattr(decoding, "_ROWS", 2)
    monkeypatch.setattr(
        decoding, "read_items", lambda paths, folder: read.append(paths) or iter(rows)
    )
    manifest: Any = SimpleNamespace(key_types=keys, value_types=values)
    return refusal_of_rows(decoding_of(table), manifest, [], Path("scratch")), bool(read)


def test_rows_that_decode_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faust's offset key does not count as a row."""
    table = table_of(key_type=str, value_type=int)
    assert refusal(monkeypatch, table, ROWS) == (None, True)


@pytest.mark.parametrize("at", [0, 1, 3])
@pytest.mark.parametrize("bad", [(b'"x"', b'"no number"'), (b"{no json", b"1")])
def test_one_row_that_does_not_decode_refuses_the_snapshot(
    monkeypatch: pytest.MonkeyPatch, at: int, bad: tuple[bytes, bytes]
) -> None:
    """The position does not matter; the reason names the row's key."""
    rows = [*ROWS[:at], bad, *ROWS[at:]]
    reason, _ = refusal(monkeypatch, table_of(key_type=str, value_type=int), rows)
    assert reason is not None
    assert f"the row of key {bad[0]!r} does not decode" in reason


@pytest.mark.parametrize(
    ("kind", "keys", "values", "is_read"),
    [
        ("texts", ["str"], ["str"], False),
        ("texts", ["str"], ["str", "int"], True),
        ("texts", ["int"], ["str"], True),
        ("texts", None, ["str"], True),
        ("numbers", ["str"], ["int"], False),
        ("numbers", ["str"], ["float"], True),
        ("anything", ["str"], ["bool", "NoneType"], False),
        ("anything", ["str"], ["dict"], True),
        ("models", ["str"], ["dict"], True),
    ],
)
def test_rows_are_read_unless_their_types_prove_that_they_decode(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    keys: list[str] | None,
    values: list[str] | None,
    is_read: bool,
) -> None:
    """Keys and values both need proof; a snapshot has millions of rows."""
    table = table_of(**TABLES[kind])
    assert refusal(monkeypatch, table, [], keys, values)[1] == is_read


@pytest.mark.parametrize(
    ("types", "part"), [((["string"], None), "key"), ((None, ["string"]), "value")]
)
def test_a_snapshot_of_json_is_refused_for_a_table_of_bytes(
    monkeypatch: pytest.MonkeyPatch, types: Any, part: str
) -> None:
    """The JSON parser changed its rows."""
    table = table_of(**TABLES["raw"])
    table.changelog_topic.schema.key_serializer = "raw"
    reason, is_read = refusal(monkeypatch, table, ROWS, *types)
    assert reason is not None
    assert f"take it with --{part}-codec raw" in reason
    assert not is_read


@pytest.mark.parametrize("app_keys", ["json", "raw"])
@pytest.mark.parametrize("own_keys", [None, "json", "raw"])
@pytest.mark.parametrize("values", ["json", "raw"])
def test_a_decoding_names_the_codecs_and_types_of_its_table(
    app_keys: str, own_keys: str | None, values: str
) -> None:
    """The topic's serializer decodes keys, else the app's; values have their own serializer."""
    table = table_of(key_type=bytes, value_type=str)
    table.app.serializers.key_serializer = app_keys
    schema = table.changelog_topic.schema
    schema.key_serializer, schema.value_serializer = own_keys, values
    found = decoding_of(table)
    names = {"json": decoding.JSON, "raw": decoding.RAW}
    assert found.codecs == (names[own_keys or app_keys], names[values])
    assert found.types == (bytes, str)


def test_a_bad_key_is_found_beside_good_values_and_a_bad_value_beside_good_keys() -> None:
    """The last pair counts as well as the first."""
    all_decode = decoding_of(table_of(key_type=int, value_type=str)).all_decode
    keys, values = [b"1", b"2", b"3"], [b'"a"', b'"b"', b'"c"']
    assert all_decode(keys, values)
    for at in range(3):
        assert not all_decode([*keys[:at], b'"x"', *keys[at + 1 :]], values)
        assert not all_decode(keys, [*values[:at], b"{no json", *values[at + 1 :]])


def test_rows_are_checked_in_pieces_up_to_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is checked once; a first row without its own reason does not end the check."""
    asked: list[Any] = []

    def all_decode(keys: Any, values: Any) -> bool:
        asked.append((list(keys), list(values)))
        return b"d" not in keys and b"e" not in keys

    def reason(record: Any) -> Any:
        assert record.headers == ()
        return ValueError("bad") if (record.key, record.value) == (b"e", b"5") else None

    rows = [(key.encode(), str(at).encode()) for at, key in enumerate("abcdef", start=1)]
    monkeypatch.setattr(decoding, "_ROWS", 2)
    monkeypatch.setattr(
        decoding,
        "read_items",
        lambda paths, folder: iter([*rows[:1], (OFFSET_KEY, b"9"), *rows[1:]]),
    )
    manifest: Any = SimpleNamespace(key_types=None, value_types=None)
    found = refusal_of_rows(decoding.Decoding(reason, all_decode), manifest, [], Path("scratch"))
    assert found == "the row of key b'e' does not decode as the table's: ValueError('bad')"
    assert asked == [
        ([b"a", b"b"], [b"1", b"2"]),
        ([b"c", b"d"], [b"3", b"4"]),
        ([b"e", b"f"], [b"5", b"6"]),
    ]


@pytest.mark.parametrize(
    ("codec", "kind", "types", "proven"),
    [
        (decoding.RAW, bytes, None, True),
        (decoding.RAW, None, None, True),
        (decoding.RAW, str, None, False),
        (decoding.JSON, bytes, None, False),
        (None, None, None, False),
        (decoding.JSON, float, [], True),
        (decoding.JSON, float, ["float"], True),
        (decoding.JSON, float, ["int"], False),
        (decoding.JSON, int, ["int", "bool"], False),
        (decoding.JSON, None, ["str", "int", "float", "bool", "NoneType"], True),
        (decoding.JSON, None, ["str", "list"], False),
        (decoding.JSON, Order, ["dict"], False),
    ],
)
def test_types_prove_rows_of_plain_tables_alone(
    monkeypatch: pytest.MonkeyPatch, codec: Any, kind: Any, types: Any, proven: bool
) -> None:
    """Any bytes decode; texts and numbers need their own types."""
    monkeypatch.setattr(decoding.faust_json, "orjson", None, raising=False)
    good: list[str] = ["str"]
    for codecs_of, kinds, of in (
        ((codec, decoding.JSON), (kind, str), (types, good)),
        ((decoding.JSON, codec), (str, kind), (good, types)),
    ):
        read: list[Any] = []
        monkeypatch.setattr(
            decoding, "read_items", lambda paths, folder, read=read: read.append(paths) or iter([])
        )
        manifest: Any = SimpleNamespace(key_types=of[0], value_types=of[1])
        one = decoding.Decoding(lambda record: None, codecs=codecs_of, types=kinds)
        assert refusal_of_rows(one, manifest, ["paths"], Path("scratch")) is None  # type: ignore[list-item]
        assert read == ([] if proven else [["paths"]])


def test_rows_are_read_beside_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's temporary folder may be small, or in memory; a snapshot may be large."""
    rows = [(b'"a"', b'{"name": "x", "pieces": 1}'), (OFFSET_KEY, b"9")]
    paths = [file.path for file in write_files(sorted(rows), tmp_path / "files")]
    manifest: Any = SimpleNamespace(key_types=["str"], value_types=["dict"])
    table = table_of(key_type=str, value_type=Order)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no such folder"))
    assert refusal_of_rows(decoding_of(table), manifest, paths, tmp_path) is None


def test_a_stricter_parser_of_json_is_never_taken_for_the_snapshot_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It refuses some texts that the snapshot's parser accepts."""
    monkeypatch.setattr(decoding.faust_json, "orjson", object(), raising=False)
    assert not decoding._always_decodes(decoding.JSON, str, ["str"])


@pytest.mark.parametrize("codec", [decoding.RAW, None])
@pytest.mark.parametrize("part", [0, 1])
def test_types_of_a_snapshot_need_a_table_of_json(codec: str | None, part: int) -> None:
    """The parser changed the rows of any other serializer."""
    codecs: list[Any] = [decoding.JSON, decoding.JSON]
    codecs[part] = codec
    types: list[Any] = [None, None]
    types[part] = ["str"]
    manifest: Any = SimpleNamespace(key_types=types[0], value_types=types[1])
    one = decoding.Decoding(lambda record: None, codecs=(codecs[0], codecs[1]))
    reason = refusal_of_rows(one, manifest, [], Path("scratch"))
    assert reason is not None
    assert reason.startswith(f"it was taken with --{('key', 'value')[part]}-codec json")


@pytest.mark.parametrize("part", ["key_serializer", "value_serializer"])
@pytest.mark.parametrize("base", [codecs.json, codecs.raw])
def test_a_codec_of_someones_own_is_asked_for_each_record(
    monkeypatch: pytest.MonkeyPatch, base: type[Codec], part: str
) -> None:
    """A subclass of Faust's codec may decode any payload in its own way."""

    class Own(base):  # type: ignore[valid-type, misc]
        """Accepts what Faust's codec accepts."""

    monkeypatch.setitem(codecs.codecs, "own", Own())
    table = table_of(key_type=str, value_type=int)
    setattr(table.changelog_topic.schema, part, "own")
    found = decoding_of(table)
    assert not found.all_decode([b'"a"'], [b"1"])
    assert found.codecs == found.types == (None, None)


def test_a_registry_of_someones_own_is_asked_for_each_record() -> None:
    """It may decode any record in its own way."""

    class Own(Registry):
        """Accepts Faust's serializers."""

    table = table_of(key_type=str, value_type=int)
    table.app.serializers = Own()
    found = decoding_of(table)
    assert not found.all_decode([b'"a"'], [b"1"])
    assert found.codecs == found.types == (None, None)
