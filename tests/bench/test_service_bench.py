"""The service's benchmark runs and prints; never how fast."""

from __future__ import annotations

import re

import pytest

from tests.bench.printed import printed


@pytest.mark.processes
@pytest.mark.slow
def test_it_prints_memory_and_latency() -> None:
    """With a handful of consumers."""
    said = printed("benchmarks.service", "--consumers", "8", "--partitions", "32", "--rounds", "3")
    assert re.search(r"memory of the service: \d+ MiB empty, \d+ MiB with them", said)
    assert re.search(r"from acknowledgement to assignment p50 [\d.]+ ms, p99 [\d.]+ ms", said)
