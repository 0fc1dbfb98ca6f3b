"""Histories without plots."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Histories without plots, where a test is about rows: drawing takes a second of each run."""
    monkeypatch.setattr("faust_assigner.pipeline.history.plots.draw", lambda report: {})
