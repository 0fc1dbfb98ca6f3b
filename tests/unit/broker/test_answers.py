"""Answers built from values: a given value counts, whatever the field's default is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

from kio.index import load_response_schema
from kio.serial._introspect import EntityField, EntityTupleField, classify_field

from faust_assigner.broker import answers
from faust_assigner.broker.api import APIS


def entities(entity: type[Any]) -> Iterator[type[Any]]:
    """Yield a response's entity and its nested entities."""
    yield entity
    for item in fields(entity):
        if isinstance(kind := classify_field(item), EntityField | EntityTupleField):
            yield from entities(kind.type_)


def test_a_zero_or_an_empty_text_is_no_missing_value() -> None:
    """Offset 0 and epoch 0 must not become -1 in any API or version."""
    tried = set()
    for api in APIS.values():
        for version in range(api.low, api.high + 1):
            for entity in entities(load_response_schema(api.key, version)):
                for item in fields(entity):
                    if item.default is MISSING or type(item.default) not in (int, bool, str):
                        continue
                    nothing = type(item.default)()
                    built = answers._response_builder(entity)({item.name: nothing})
                    assert getattr(built, item.name) == nothing, (entity, item.name)
                    if item.default != nothing:
                        tried.add(item.name)
    assert {"log_start_offset", "leader_epoch"} <= tried
