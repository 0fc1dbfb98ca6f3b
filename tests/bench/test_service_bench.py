"""The service's benchmark runs and prints; never how fast."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.pages import ROOT


@pytest.mark.processes
@pytest.mark.slow
def test_it_prints_memory_and_latency() -> None:
    """With a handful of consumers."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.service", "--consumers", "8", "--partitions", "32",
         "--rounds", "3"],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"memory of the service: \d+ MiB empty, \d+ MiB with them", done.stdout)
    assert re.search(r"from acknowledgement to assignment p50 [\d.]+ ms, p99 [\d.]+ ms", done.stdout)
