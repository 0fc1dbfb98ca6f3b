"""The plugins of every run: real parts as fixtures, what a test uses of them, and what it leaves running."""

from __future__ import annotations

pytest_plugins = [
    "faust_assigner.testing.plugin",
    "tests.support.parts",
    "tests.support.groups",
    "tests.support.leaks",
    "tests.support.costs",
]
