"""A whole broker keeps its acknowledged state in storms with refused writes and restarts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.broker_sim import run, run_crowds
from tests.support.examples import examples

SEEDS = examples(12, 2)


def test_random_storms_leave_the_acknowledged_state() -> None:
    """The seeds are fixed; `make sim-broker STORMS=n` runs more."""
    compared = sum(run(seed, steps=100) for seed in range(SEEDS))
    assert compared > 50 * SEEDS, "the runs must actually compare logs"


@given(st.integers(min_value=10**6, max_value=10**12))
@settings(max_examples=examples(6, 1), deadline=None)
def test_seeds_nobody_chose_leave_the_acknowledged_state(seed: int) -> None:
    """The seeds are new in every run; a failure prints its seed."""
    run(seed, steps=60)


def test_a_restart_changes_nothing_after_requests_that_were_served_at_once() -> None:
    """Handlers give way at each element; the order of their effects is free."""
    assert sum(run_crowds(seed) for seed in range(examples(20, 3))) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_on_a_disk_the_same_holds(tmp_path: Path, seed: int) -> None:
    """The store is RocksDB, which each restart opens again."""
    run(seed, steps=100, folder=tmp_path)
