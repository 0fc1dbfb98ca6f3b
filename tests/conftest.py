"""The plugins of every run: real brokers and workers as fixtures, their use by tests, and leaks."""

from __future__ import annotations

from collections.abc import Generator
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
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report
