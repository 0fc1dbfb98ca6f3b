"""The calls of an app's handlers and sensors in cooperative rounds, on real workers and our broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.app.membership.test_leave import two_workers

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.timeout(300)]


def changes(told: list[Mapping[str, Any]]) -> Iterator[tuple[set[int], set[int]]]:
    """Yield the partitions announced as revoked and the partitions no longer owned, per round."""
    had: set[int] = set()
    announced: set[int] = set()
    for row in told:
        if row["kind"] == "revoked":
            announced |= set(row["orders"])
        elif row["kind"] == "assigned":
            yield announced, had - set(row["actives"])
            had, announced = set(row["actives"]), set()


def test_handlers_hear_of_what_goes_and_sensors_of_each_round(tmp_path: Path) -> None:
    """A join and a leave: handlers get each revoked partition of their worker, and no other."""
    with two_workers(tmp_path) as (fleet, _):
        already = {worker.name: len(worker.told) for worker in fleet.living()}
        generation = fleet.generation()
        fleet.start("w3")
        # No partition moves while the standbys of w3 are behind.
        fleet.settle(workers=3, after=generation, quiet_s=0.3, uneven_s=30.0)
        generation = fleet.generation()
        fleet.terminate("w3")
        fleet.settle(workers=2, after=generation, quiet_s=0.3)
        lost = set[int]()
        for worker in fleet.living():
            for announced, gone in changes(worker.told):
                assert announced == gone
                lost |= gone
            since = worker.told[already[worker.name] :]
            calls = [row["what"] for row in since if row["kind"] == "rebalance"]
            assert len(calls) >= 6, "a join and a leave are two rounds at least"
            assert calls == ["start", "return", "end"] * (len(calls) // 3)
            assert all(row["rebalancing"] for row in since if row["kind"] == "revoked")
            ends = [row for row in since if row["kind"] == "rebalance" and row["what"] == "end"]
            assert not any(row["rebalancing"] for row in ends), "it is over when sensors hear so"
        assert lost, "something has moved"
