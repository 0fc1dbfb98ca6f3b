"""The pages docs/reference/status.md and deploy-check.md, from the JSON Schemas of the two reports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

STATUS = """\
# The status of a group as JSON

This page is generated from `faust_assigner/status/schema.json`: `python -m docs.generate`.
[How to read a group's status](../how-to/status.md).

`faust-assigner status --json` prints one object; with `--watch`, one object per line. The file
`faust_assigner/status/schema.json` is its JSON Schema (draft 2020-12) and is installed with the
package. Every key is always present; an unknown value is `null`. A later version only adds keys.
`faust-assigner status --from FILE` and [`ui --from FILE`](../how-to/page.md#a-saved-status) show a file of
such lines.

"""


DEPLOY_CHECK = """\
# The answer of deploy-check as JSON

This page is generated from `faust_assigner/deploy/schema.json`: `python -m docs.generate`.
[How to deploy without cold moves](../how-to/deploys.md).

`faust-assigner deploy-check --json` prints one object. The file `faust_assigner/deploy/schema.json` is
its JSON Schema (draft 2020-12) and is installed with the package. Every key is always present; an
unknown value is `null`. A later version only adds keys.

"""


def schema(package: str) -> dict[str, Any]:
    """Return the JSON Schema in a package of faust_assigner."""
    text = files(f"faust_assigner.{package}").joinpath("schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def status_page() -> str:
    """Return the text of the page about ``status --json``."""
    return STATUS + _tables(schema("status"))


def deploy_check_page() -> str:
    """Return the text of the page about ``deploy-check --json``."""
    return DEPLOY_CHECK + _tables(schema("deploy"))


def _tables(document: Mapping[str, Any]) -> str:
    """Return a section for a JSON Schema's top level, and one for each of its definitions."""
    parts = [*_definition_table("The report", document)]
    for name, definition in document["$defs"].items():
        if "properties" in definition:
            parts += [
                "\n",
                *_definition_table(f"A {name}" if name != "totals" else "Totals", definition),
            ]
    return "".join(parts)


def _definition_table(title: str, definition: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {title}\n\n{definition['description']}\n\n| key | type | meaning |\n| --- | --- | --- |\n"
    for key, kind in definition["properties"].items():
        yield f"| `{key}` | {_type(kind)} | {kind.get('description', '')} |\n"


def _type(kind: Mapping[str, Any]) -> str:
    if "anyOf" in kind:
        return " or ".join(_type(one) for one in kind["anyOf"])
    if "$ref" in kind:
        return str(kind["$ref"].rpartition("/")[2])
    if "enum" in kind:
        return ", ".join(f"`{word}`" for word in kind["enum"])
    if kind["type"] == "array":
        return f"list of {_type(kind['items'])}"
    if kind["type"] == "object":
        return f"object of {_type(kind['additionalProperties'])}"
    return " or ".join(kind["type"]) if isinstance(kind["type"], list) else str(kind["type"])
