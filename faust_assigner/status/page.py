"""Generates docs/reference/status.md from ``schema.json``: ``python -m faust_assigner.status.page FILE``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

SCHEMA: Final = Path(__file__).with_name("schema.json")

HEAD = """\
# The status of a group as JSON

This page is generated from `faust_assigner/status/schema.json`:
`python -m faust_assigner.status.page docs/reference/status.md`.
[How to read a group's status](../how-to/status.md).

`faust-assigner status --json` prints one object; with `--watch`, one object per line. The file
`faust_assigner/status/schema.json` is its JSON Schema (draft 2020-12) and is installed with the
package. Every key is always present; an unknown value is `null`. A later version only adds keys.
`faust-assigner status --from FILE` and [`ui --from FILE`](../how-to/page.md#a-saved-status) show a file of
such lines.

"""


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the report."""
    found: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return found


def page() -> str:
    """Return the text of the page."""
    return HEAD + tables(schema())


def tables(document: Mapping[str, Any]) -> str:
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


def main(arguments: Sequence[str]) -> None:
    """Write the page to the file in ``arguments``."""
    Path(arguments[0]).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
