"""Many records asked about together: the same answer as one by one, in one call."""

from __future__ import annotations

import json
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.serializers.codecs import Codec
from hypothesis import given, settings
from hypothesis import strategies as st

from faust_assigner.app.restore import decoding
from faust_assigner.app.restore.decoding import decoding_of


class Order(faust.Record):
    """A row of a table of models."""

    name: str
    pieces: int


class Backwards(Codec):
    """Someone's own serializer."""

    def _loads(self, s: bytes) -> Any:
        return json.loads(s[::-1])

    def _dumps(self, s: Any) -> bytes:
        return json.dumps(s).encode()[::-1]


def table_of(value_serializer: Any = None, **options: Any) -> Any:
    """A table of an app that nobody starts."""
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
#: What may be in a changelog: good ones, and each kind of bad one.
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
    """Faust's own answer for each pair."""
    reason = decoding_of(table).reason
    return all(
        reason(SimpleNamespace(key=key, value=value, headers=(), offset=0)) is None
        for key, value in zip(keys, values, strict=True)
    )


@pytest.mark.parametrize("kind", sorted(TABLES))
@settings(deadline=None)  # a busy machine is no defect of ours
@given(st.lists(st.tuples(st.sampled_from(PAYLOADS), st.sampled_from(PAYLOADS)), max_size=4))
def test_together_they_decode_as_one_by_one(kind: str, pairs: list[tuple[bytes, bytes]]) -> None:
    """Two halves of a text never make up for each other, whatever stands between them."""
    table = table_of(**TABLES[kind])
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    assert decoding_of(table).all_decode(keys, values) == one_by_one(table, keys, values)


def test_plain_texts_are_parsed_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what it is for: no call for each record."""
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
    """What they do is theirs."""
    table = table_of(key_type=str, value_serializer=serializer)
    assert not decoding_of(table).all_decode([b'"a"'], [b"1"])


def test_a_schema_of_someones_own_is_asked_for_each_record() -> None:
    """It may look at headers, at the topic, at anything."""

    class Own(faust.Schema):
        """Takes everything."""

    table = table_of(schema=Own(key_type=str, value_type=int))
    assert not decoding_of(table).all_decode([b'"a"'], [b"1"])


def test_tables_of_plain_faust_are_not_asked_for_each_record() -> None:
    """Or all of this were for nothing."""
    for options in TABLES.values():
        table = table_of(**options)
        value = b'{"name": "1", "pieces": 1}' if table.value_type is Order else b"1"
        assert decoding_of(table).all_decode([b"1"], [value])
