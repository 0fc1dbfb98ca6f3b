"""Generates docs/reference/deploy-check.md: ``python -m faust_assigner.deploy.page FILE``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from faust_assigner.status.page import tables

SCHEMA: Final = Path(__file__).with_name("schema.json")

HEAD = """\
# The answer of deploy-check as JSON

This page is generated from `faust_assigner/deploy/schema.json`:
`python -m faust_assigner.deploy.page docs/reference/deploy-check.md`.
[How to deploy without cold moves](../how-to/deploys.md).

`faust-assigner deploy-check --json` prints one object. The file `faust_assigner/deploy/schema.json` is
its JSON Schema (draft 2020-12) and is installed with the package. Every key is always present; an
unknown value is `null`. A later version only adds keys.

"""


def schema() -> dict[str, object]:
    """Return the JSON Schema of the answer."""
    found: dict[str, object] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return found


def main(arguments: Sequence[str]) -> None:
    """Write the page."""
    Path(arguments[0]).write_text(HEAD + tables(schema()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
