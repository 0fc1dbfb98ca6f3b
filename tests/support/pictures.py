"""Histories without plots."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no plots, for tests of rows: drawing takes a second of each run."""
    monkeypatch.setattr("faust_assigner.pipeline.history.plots.draw", lambda report: {})
