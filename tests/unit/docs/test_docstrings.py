"""Examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROMPT = re.compile(r"^\s*>>> ", re.MULTILINE)
WITH_EXAMPLES = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for file in (ROOT / "faust_assigner").rglob("*.py")
    if PROMPT.search(file.read_text(encoding="utf-8"))
)


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_in_docstrings_are_true(module: str) -> None:
    """Each session of ``>>>`` prints what it shows; ``...`` stands for anything."""
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_examples_are_found() -> None:
    """Modules and packages alike."""
    assert {"faust_assigner", "faust_assigner.clients.group_views"} <= set(WITH_EXAMPLES)
