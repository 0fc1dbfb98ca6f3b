"""A pytest plugin: which functions of the package each test calls, written to the file in FUNCTIONS_CALLED.

What is called between tests, by the import of a module or for several tests, belongs to all of them: "".
Processes that a test starts are not seen.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from types import CodeType, FrameType

import pytest

FILE = "FUNCTIONS_CALLED"
PACKAGE = "faust_assigner"

_called: dict[str, set[str]] = defaultdict(set)
_seen: set[CodeType] = set()


def _trace(frame: FrameType, event: str, arg: object) -> None:
    _seen.add(frame.f_code)


def _take(test: str, root: Path) -> None:
    """What was called since the last time counts for ``test``; a function within a function is its part."""
    package = f"{root / PACKAGE}{os.sep}"
    called = _called[test]
    for code in tuple(_seen):
        if code.co_filename.startswith(package):
            file = Path(code.co_filename).relative_to(root).as_posix()
            called.add(f"{file}::{code.co_qualname.partition('.<locals>')[0]}")
    _seen.clear()


def pytest_configure() -> None:
    """From here on, in all threads."""
    threading.settrace(_trace)  # type: ignore[arg-type]
    sys.settrace(_trace)  # type: ignore[arg-type]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test with its fixtures."""
    _take("", item.config.rootpath)
    try:
        return (yield)
    finally:
        _take(item.nodeid, item.config.rootpath)


def pytest_unconfigure() -> None:
    """Write it."""
    sys.settrace(None)
    called = {test: sorted(functions) for test, functions in _called.items()}
    Path(os.environ[FILE]).write_text(json.dumps(called), encoding="utf-8")
