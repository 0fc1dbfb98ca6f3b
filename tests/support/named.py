"""Tests by their names: whether a test named in a list or on a page exists."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def defined(file: str) -> frozenset[str]:
    """Return the functions of a file (path from the root); none if the file does not exist."""
    path = ROOT / file
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(path.read_text() if path.is_file() else ""))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def is_test(node_id: str) -> bool:
    """Return whether such a test exists (FILE::NAME, with or without a case)."""
    file, _, name = node_id.partition("::")
    return name.rpartition("::")[2].partition("[")[0] in defined(file)
