"""Consumer groups with classic members and migrations keep B1-B10."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faust_assigner.coordinator.consumer import heartbeat
from tests.property.consumer_sim import Violation, run
from tests.property.consumer_sim.exhaustive import Search
from tests.property.lives import under_two_hash_seeds
from tests.support.examples import examples

CI_SEEDS = examples(300, 25)


def test_random_lives_keep_every_promise() -> None:
    """The seeds are fixed; `make sim-consumer SEEDS=n` runs more."""
    stables = sum(run(seed) for seed in range(CI_SEEDS))
    assert stables > 5 * CI_SEEDS, "the runs must actually reach stable groups"


@given(st.integers(min_value=10**6, max_value=10**12))
@settings(max_examples=examples(60, 10), deadline=None)
def test_seeds_nobody_chose_keep_every_promise(seed: int) -> None:
    """The seeds are new in every run; a failure prints its seed."""
    run(seed, steps=40)


@pytest.mark.slow
def test_every_life_of_two_members_keeps_every_promise() -> None:
    """The search covers all states of two members, two partitions and three epochs."""
    assert Search(members=2, partitions=2, epochs=3).run() > 1_000


@pytest.mark.slow
def test_every_life_of_three_members_keeps_every_promise() -> None:
    """The search covers all states of a partition; `make sim-consumer` covers two partitions."""
    assert Search(members=3, partitions=1, epochs=3).run() > 6_000


@pytest.mark.slow
def test_a_seed_is_the_same_life_under_any_hash_seed() -> None:
    """Otherwise a failure's seed would not reproduce the failure."""
    told = (
        "from tests.property.consumer_sim.world import World\n"
        "for seed in range(60):\n"
        "    world = World(seed)\n"
        "    for _ in range(60): world.step()\n"
        "    print(world.acts, sorted(world.trial.disk.items(), key=repr))\n"
    )
    lives = under_two_hash_seeds(told)
    assert len(lives[0]) > 100_000
    assert _without_sets(lives[0]) == _without_sets(lives[1])


def _without_sets(told: str) -> str:
    """Remove frozensets, which print in hash order; their content is in the rest of the life."""
    return re.sub(r"frozenset\(\{([^}]*)\}\)", lambda m: " ".join(sorted(m[1].split(", "))), told)


def test_a_broken_promise_is_told_with_its_seed_and_a_short_transcript(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group here never fences; the transcript is short and ends with the error."""
    monkeypatch.setattr(heartbeat, "check_epoch", lambda stood, received, owned: None)
    with pytest.raises(Violation) as broken:
        sum(run(seed) for seed in range(CI_SEEDS))
    head, acts, *transcript = str(broken.value).splitlines()
    kept, drawn = map(int, re.findall(r"\d+", acts))
    assert re.match(r"seed \d+: B3: the error", head)
    assert kept < max(drawn / 2, 4)
    assert transcript[-1].strip().startswith("!! B3: the error")
