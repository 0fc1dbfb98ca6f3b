"""The start of the flow affects its duration, never its result."""

from __future__ import annotations

import numpy as np
import pytest

from faust_assigner.actives import counts, potentials
from faust_assigner.actives.counts import optimal_counts
from faust_assigner.checks.optimality import improving_cycle
from faust_assigner.model import Bools, Ints

GROUPS, MEMBERS = 20, 50


def churned(seed: int) -> tuple[Ints, Bools, Ints]:
    """Return (sizes, allowed, held): mixed subscriptions with a third of an optimum removed."""
    rng = np.random.default_rng(seed)
    sizes, allowed = rng.integers(20, 90, GROUPS), rng.random((GROUPS, MEMBERS)) < 0.4
    allowed[np.arange(GROUPS), rng.integers(0, MEMBERS, GROUPS)] = True
    none = np.zeros(allowed.shape, dtype=np.int64)
    held = optimal_counts(sizes, allowed, none, none, np.ones(MEMBERS))
    return sizes, allowed, np.where(rng.random(held.shape) < 0.3, 0, held)


def terms(got: Ints, held: Ints) -> tuple[int, int, int]:
    """Return the total balance, the group balance and the stickiness."""
    return (
        int((got.sum(axis=0) ** 2).sum()),
        int((got**2).sum()),
        int(np.minimum(got, held).sum()),
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("rounds", "share", "most"),
    [(1, 0.02, 500), (4, 0.02, 500), (200, 0.02, 500), (48, 0.0, 0), (48, 1.0, 10**9)],
)
def test_rounds_and_thresholds_do_not_change_the_optimum(
    monkeypatch: pytest.MonkeyPatch, seed: int, rounds: int, share: float, most: int
) -> None:
    """Any number of rounds and any warm start give the same sums and a certificate."""
    sizes, allowed, held = churned(seed)
    none, ones = np.zeros_like(held), np.ones(MEMBERS)
    usual = optimal_counts(sizes, allowed, held, none, ones)
    monkeypatch.setattr(potentials, "_ROUNDS", rounds)
    monkeypatch.setattr(counts, "_WARM_SHARE", share)
    monkeypatch.setattr(counts, "_WARM", most)
    other = optimal_counts(sizes, allowed, held, none, ones)
    assert terms(other, held) == terms(usual, held)
    assert improving_cycle(other, allowed, held, np.ones(MEMBERS, dtype=np.int64)) is None


@pytest.mark.parametrize("seed", range(20))
def test_poured_fluid_is_all_there_and_lifts_only_the_lowest_members(seed: int) -> None:
    """Members above the common level get no fluid; the other members end at the level."""
    rng = np.random.default_rng(seed)
    rest, rate = rng.integers(0, 20, 9).astype(float), 1 / rng.choice([0.5, 1.0, 4.0], 9)
    amount = float(rng.integers(1, 60))
    filled = potentials._divide_group(amount, rest, rate)
    assert filled.min() >= 0
    assert filled.sum() == pytest.approx(amount)
    level = ((rest + filled) * rate)[filled > 0]
    assert level == pytest.approx(level[0])
    assert (rest[filled == 0] * rate[filled == 0] >= level[0] - 1e-9).all()
