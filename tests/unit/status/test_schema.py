"""The report as JSON conforms to its schema, and the reference page matches the schema."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jsonschema
import pytest

from docs.generate.schemas import schema
from faust_assigner.status import report
from faust_assigner.status.build import build
from faust_assigner.status.evidence import Evidence
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.documents import dumps
from faust_assigner.wire.worker_status import Standstill, WaitUnderWay
from tests.support.status import LOG, group
from tests.unit.status.test_build import heard, rebalancing

CLASSES = {
    "": report.Report,
    "decision": report.Decision,
    "totals": report.Totals,
    "member": report.MemberReport,
    "copy": report.Copy,
    "standstill": report.Standstill,
    "partition": report.Partition,
    "wait": report.WaitReport,
    "difference": report.Difference,
}


def as_json(evidence: Evidence) -> Any:
    """The JSON that the command prints."""
    return json.loads(dumps(build(evidence)))


def busy() -> Evidence:
    """A look with content in every part of the report."""
    made = group(2)
    made.end = 100_000
    made.round()
    made.join("m2").round(warmups=WarmupPolicy())
    (number, *_) = made.answer_of("m0").actives["orders"]
    return made.evidence(
        silent=["m1"],
        heard=heard(
            made,
            "m0",
            standing=(Standstill(topic="orders", partition=number, reason="round", seconds=3),),
            waits=(WaitUnderWay(what="The commit", step="an answer", seconds=2),),
            settings={"FAUST_ASSIGNER_STALE_READS_S": "9"},
        ),
    )


@pytest.mark.parametrize("look", ["busy", "rebalancing", "nobody answers"])
def test_the_report_is_valid(look: str) -> None:
    """The cases: a settled group, a rebalance, and a group without any answer."""
    evidence = busy()
    if look == "rebalancing":
        evidence = rebalancing(group(2))
    if look == "nobody answers":
        evidence = Evidence(group=rebalancing(group(2)).group)
    jsonschema.validate(as_json(evidence), schema("status"))


def test_the_busy_report_has_every_part() -> None:
    """Otherwise the test above would not validate every part."""
    found = as_json(busy())
    for part in ("decision", "members", "partitions", "waits", "differences"):
        assert found[part], part
    assert any(one["copies"] for one in found["partitions"])
    assert any(one["standing"] for one in found["partitions"])
    assert any(member["warmups"].get(LOG) for member in found["members"])


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_the_schema_names_every_field_and_no_other(name: str) -> None:
    """Every field is required."""
    whole = schema("status")
    definition = whole["$defs"][name] if name else whole
    fields = {field.name for field in dataclasses.fields(CLASSES[name])}
    assert set(definition["properties"]) == set(definition["required"]) == fields


def test_a_report_of_another_shape_is_not_valid() -> None:
    """The schema refuses missing and wrong fields."""
    wrong = as_json(busy())
    wrong["members"][0]["actives"]["orders"] = ["0"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema("status"))
