"""The embedded broker as a process: a start without an end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from faust_assigner.testing import broker
from faust_assigner.testing.broker import BrokerProcess, BrokerUnavailable


def test_a_broker_that_never_listens_is_ended_at_its_deadline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A test waits at most START_S for the start."""
    stuck = tmp_path / "python"
    stuck.write_text("#!/bin/sh\nexec sleep 300\n")
    stuck.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stuck))
    monkeypatch.setattr(broker, "START_S", 0.2)
    with pytest.raises(BrokerUnavailable, match="printed ''"):
        BrokerProcess()
