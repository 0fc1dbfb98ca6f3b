"""The assigner service keeps C1-C10 under random faults."""

from __future__ import annotations

import re
from dataclasses import astuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faust_assigner.service.leading import moves
from faust_assigner.service.store.base import Compare
from faust_assigner.service.view import View
from tests.property.service_sim import Violation, run
from tests.property.service_sim.acts import draw
from tests.property.service_sim.run import play
from tests.support.examples import examples

SEEDS = examples(40, 6)


def test_random_lives_keep_every_promise() -> None:
    """The seeds are fixed; `make sim-service SEEDS=n` runs more."""
    completed, aborted, commits, fenced, answers = map(
        sum, zip(*(astuple(run(seed)) for seed in range(SEEDS)), strict=True)
    )
    assert min(completed, aborted, answers) > SEEDS, (
        "hand-offs are completed, aborted and answered for"
    )
    assert commits > 100 * SEEDS
    assert fenced > 0, "somebody commits late"


@pytest.mark.slow
@given(st.integers(min_value=10**6, max_value=10**12))
@settings(max_examples=examples(20, 5), deadline=None)
def test_seeds_nobody_chose_keep_every_promise(seed: int) -> None:
    """Each run draws fresh seeds; a failure prints its seed."""
    run(seed, steps=40)


@pytest.mark.parametrize("seed", [3, 17])
def test_a_seed_is_the_same_life_each_time(seed: int) -> None:
    """Otherwise a failure's seed would not reproduce the failure."""
    assert play(*draw(seed, 25)) == play(*draw(seed, 25))


@pytest.mark.slow
def test_a_broken_promise_is_told_with_its_seed_and_the_acts_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader here does not check whether an absent owner has returned."""

    def forgets(view: View, at: object) -> list[Compare]:
        return []

    monkeypatch.setattr(moves, "_of_owner", forgets)
    monkeypatch.setattr(moves, "living_owners", lambda view: {})
    monkeypatch.setattr(moves, "_is_fenced", lambda view, at: False)
    with pytest.raises(Violation) as broken:
        sum(run(seed).answers for seed in range(SEEDS))
    head, _, acts, *told = str(broken.value).splitlines()
    kept, drawn = map(int, re.findall(r"\d+", acts))
    assert re.match(r"seed \d+: C2 ", head)
    assert len(told) == kept < drawn
