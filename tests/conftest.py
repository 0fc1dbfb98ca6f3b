"""The plugins of every run: real brokers and workers as fixtures, their use by tests, and leaks."""

from __future__ import annotations

from importlib.metadata import entry_points

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
