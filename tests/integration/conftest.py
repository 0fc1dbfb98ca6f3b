"""Tests with real processes get a second try, and say so: a busy machine is no defect of ours.

A test that needed it is listed as RERUN at the end of the run; one that fails twice fails.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what stands in this folder; the hook is given every test of the run."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.flaky(reruns=1))
