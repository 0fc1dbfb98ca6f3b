"""deploy-check's JSON follows its schema, the page shows the schema, and the text is readable."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from docs.generate.schemas import schema
from faust_assigner.deploy import report
from faust_assigner.deploy.play import Question
from faust_assigner.deploy.render import render
from faust_assigner.wire.documents import dumps
from tests.unit.deploy.looks import SETTINGS, asked, at_rest, look

CLASSES: dict[str, Any] = {
    "": report.Report,
    "check": report.Check,
    "step": report.Step,
    "move": report.Move,
}


@pytest.mark.parametrize(
    "question",
    [
        Question(kind="stop", workers=("w1",)),
        Question(kind="rolling"),
        Question(kind="scale", size=5),
    ],
    ids=str,
)
@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance"])
def test_every_answer_is_valid(question: Question, state: str) -> None:
    """Safe and unsafe answers are valid, and answers without a plan as well."""
    made = at_rest()
    made.state = state
    jsonschema.validate(json.loads(dumps(asked(look(made), question))), schema("deploy"))


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_the_schema_names_every_field_and_no_other(name: str) -> None:
    """The schema requires all fields."""
    whole = schema("deploy")
    definition = whole["$defs"][name] if name else whole
    fields = {field.name for field in dataclasses.fields(CLASSES[name])}
    assert set(definition["properties"]) == set(definition["required"]) == fields


def shown(found: report.Report) -> str:
    """Return the text that a pipe gets."""
    console = Console(width=140, file=io.StringIO())
    console.print(render(found))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_the_verdict_comes_first_then_what_failed() -> None:
    """The first lines give the reason."""
    made = at_rest(replicas=0)
    lines = shown(asked(look(made, settings={**SETTINGS, "table_standby_replicas": "0"})))
    first, second, *_ = lines.splitlines()
    assert first == "NOT SAFE: stop w1 (group shop)"
    assert second.split()[0] == "failed"
    assert "  cold, 1,000 records to read" in lines
    assert "--wait 600" in lines


def test_a_safe_stop_shows_its_moves_and_what_is_not_known() -> None:
    """Each move has its source topic; an unknown pause has a reason."""
    lines = shown(asked(look(at_rest())))
    assert lines.startswith("SAFE: stop w1")
    assert "2 tasks at once, 0 cold" in lines
    assert "w1 -> " in lines
    assert "not known: the restore time is unknown: no worker serves a ledger" in lines
