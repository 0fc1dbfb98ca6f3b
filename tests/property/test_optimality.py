"""The certificate of optimality agrees with brute force."""

from __future__ import annotations

from random import Random

import numpy as np

from faust_assigner.actives.counts import rates
from faust_assigner.checks.optimality import improving_cycle
from tests.property.oracle import brute_force, score

TERMS = ("total balance", "group balance", "stickiness")


def test_the_certificate_says_what_brute_force_says() -> None:
    """For random counts, both name the same first term that other counts would improve, or none."""
    said = set()
    for seed in range(700):
        rng = Random(f"counts {seed}")
        members, groups = rng.randint(2, 4), rng.randint(1, 3)
        who = [sorted(rng.sample(range(members), rng.randint(1, members))) for _ in range(groups)]
        n = [rng.randint(1, 4) for _ in range(groups)]
        capacity = [rng.choice([1, 1, 2, 3]) for _ in range(members)]
        counts, had = (np.zeros((groups, members), dtype=np.int64) for _ in range(2))
        for g in range(groups):
            for _ in range(n[g]):
                counts[g, rng.choice(who[g])] += 1
                had[g, rng.choice(who[g])] += rng.random() < 0.7
        allowed = np.zeros(counts.shape, dtype=np.bool_)
        for g, row in enumerate(who):
            allowed[g, row] = True
        ours = score(counts.tolist(), had.tolist(), capacity)
        best = brute_force(n, who, had.tolist(), capacity)
        worse = next(
            (t for t, mine, right in zip(TERMS, ours, best, strict=True) if mine != right), None
        )
        rate = rates(np.array(capacity, dtype=np.float64))
        assert improving_cycle(counts, allowed, had, rate) == worse, seed
        said.add(worse)
    assert said == {*TERMS, None}
