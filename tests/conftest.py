"""The plugins of every run: real brokers and workers as fixtures, their use by tests, and leaks."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points

import pytest

KIT = "faust_assigner.testing.plugin"
#: Whether pytest loads the kit by its entry point; an older installation has no entry point.
IS_INSTALLED = any(point.value == KIT for point in entry_points(group="pytest11"))

pytest_plugins = [
    *([] if IS_INSTALLED else [KIT]),
    "tests.support.parts",
    "tests.support.groups",
    "tests.support.leaks",
    "tests.support.costs",
]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape lone surrogates of captured output: pytest-xdist sends reports as UTF-8."""
    with without_collector():
        report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@contextmanager
def without_collector() -> Iterator[None]:
    """Let the garbage collector not run: pytest parses the files of a failure's traceback.

    A collection within ``ast.parse`` may let another thread parse, too. Python 3.11.7 then raises
    SystemError (python/cpython#106905), which would end the whole run.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
