"""Tests by their names: whether a test named in a list or on a page exists."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def defined(file: str) -> frozenset[str]:
    """The functions of a file, named from the root of the repository; none where there is no file."""
    path = ROOT / file
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(path.read_text() if path.is_file() else ""))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def is_test(node_id: str) -> bool:
    """Whether there is such a test (FILE::NAME, with or without a case)."""
    file, _, name = node_id.partition("::")
    return name.rpartition("::")[2].partition("[")[0] in defined(file)
