"""The service's benchmark runs and prints; the tests judge no speed."""

from __future__ import annotations

import re

import pytest

from tests.bench.printed import printed


@pytest.mark.processes
@pytest.mark.slow
def test_it_prints_memory_and_latency() -> None:
    """Eight consumers and 32 partitions."""
    said = printed("benchmarks.service", "--consumers", "8", "--partitions", "32", "--rounds", "3")
    assert re.search(r"memory of the service: \d+ MiB empty, \d+ MiB with them", said)
    assert re.search(r"from acknowledgement to assignment p50 [\d.]+ ms, p99 [\d.]+ ms", said)


@pytest.mark.processes
@pytest.mark.slow
def test_it_prints_what_the_end_of_an_instance_did() -> None:
    """A few consumers: no session is lost, and every partition has an owner again."""
    said = printed("benchmarks.service_scale", "--sizes", "100x6", "--planning", "1000")
    assert re.search(r"sessions lost 0; registrations \d+; terms of a leader begun 1", said)
    assert re.search(r"1000 partitions, 1000 consumers, in one process", said)


@pytest.mark.slow
def test_it_prints_the_longest_turn_of_each_part_of_a_life() -> None:
    """100 partitions and six consumers."""
    said = printed("benchmarks.service_turns", "--sizes", "100x6", "--part", "1.5")
    parts = "all join", "rest", "all register again", "one dies", "one joins"
    assert re.search(", ".join(rf"{part} \d+ ms" for part in parts), said)
