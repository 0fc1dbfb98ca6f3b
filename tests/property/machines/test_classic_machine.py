"""The classic group under random interleavings keeps B1-B8 and B10."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faust_assigner.coordinator.members import Roster
from tests.property.classic_sim import Violation, run
from tests.property.lives import under_two_hash_seeds
from tests.support.examples import examples

CI_SEEDS = examples(300, 50)


def test_random_interleavings_keep_every_promise() -> None:
    """The seeds are fixed; `make sim-classic SEEDS=n` runs more."""
    stables = sum(run(seed) for seed in range(CI_SEEDS))
    assert stables > 10 * CI_SEEDS, "the runs must actually reach stable groups"


@given(st.integers(min_value=10**6, max_value=10**12))
@settings(max_examples=examples(60, 20), deadline=None)
def test_seeds_nobody_chose_keep_every_promise(seed: int) -> None:
    """The seeds are new in every run; a failure prints its seed."""
    run(seed, steps=40)


@pytest.mark.slow
def test_a_seed_is_the_same_life_under_any_hash_seed() -> None:
    """Otherwise a failure's seed would not reproduce the failure."""
    told = (
        "from tests.property.classic_sim.world import World\n"
        "for seed in range(250):\n"
        "    world = World(seed)\n"
        "    for _ in range(60): world.step()\n"
        "    print(world.acts)\n"
    )
    lives = under_two_hash_seeds(told)
    assert lives[0] == lives[1]


def test_a_broken_promise_is_told_with_its_seed_and_a_short_transcript(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group here elects no other leader; the transcript is short and ends with the error."""
    monkeypatch.setattr(
        Roster, "elect_joined_leader", lambda roster: any(m.join_tokens for m in roster)
    )
    with pytest.raises(Violation) as broken:
        sum(run(seed) for seed in range(CI_SEEDS))
    head, acts, *transcript = str(broken.value).splitlines()
    kept, drawn = map(int, re.findall(r"\d+", acts))
    assert re.match(r"seed \d+: the wrong leader", head)
    assert kept < drawn / 2
    assert transcript[-1].strip().startswith("!! the wrong leader")
    assert sum("->" not in line for line in transcript) == kept + 2, (
        "the setting, each act, and the end"
    )
