"""Reports, explanations and weights over random lives: they never raise and are correct."""

from __future__ import annotations

from random import Random

import pytest

from faust_assigner import plan
from faust_assigner.checks.invariants import check
from faust_assigner.views.placed import RULES
from tests.property.world import CHANGELOGS, EVENTS, World
from tests.support.examples import examples


@pytest.mark.parametrize("seed", range(examples(6, 2)))
def test_every_placement_can_be_explained_and_counted(seed: int) -> None:
    """Each explanation names the owner, its rule, and only subscribers as alternatives."""
    rng, world = Random(seed), World()
    events, chances = zip(*EVENTS, strict=True)
    for _ in range(5):
        world.join(rng)
    for _ in range(15):
        for event in rng.choices(events, chances, k=2):
            event(world, rng)
        answer = world.answer()
        report = answer.report()
        assert str(report)
        assert report["moves"] == report["moves_minimum"]
        assert report["cold_moves"] <= report["tasks"] + sum(g.partitions for g in answer.groups)
        for g, group in enumerate(answer.groups):
            names = {answer.member_ids[m] for m in group.members.tolist()}
            for p in range(group.partitions):
                found = answer.explain(group.topics[0], p)
                assert found.member_id == answer.member_ids[answer.owner[g][p]]
                assert found.rule == RULES[answer.rule[g][p]]
                assert (found.previous == found.member_id) == (found.rule == "kept")
                beaten = [place.member_id for place in found.beaten]
                assert set(beaten) <= names - {found.member_id}
                assert len(set(beaten)) == len(beaten)
                assert all(place.by >= 0 for place in found.beaten)
                assert str(found)
        world.rebalance(thorough=False)


@pytest.mark.parametrize("seed", range(examples(6, 2)))
def test_weighted_plans_keep_all_promises_but_the_counted_ones(seed: int) -> None:
    """A1-A3 hold under any weights; the order of members and weights has no effect."""
    rng, world = Random(seed), World()
    events, chances = zip(*EVENTS, strict=True)
    for _ in range(5):
        world.join(rng)
    weights = {(t, p): rng.paretovariate(1.1) for t in sorted(world.partitions) for p in range(12)}
    shuffled = dict(rng.sample(sorted(weights.items()), len(weights)))
    for _ in range(15):
        for event in rng.choices(events, chances, k=2):
            event(world, rng)
        members = list(world.members.values())
        answer = plan(
            members,
            world.partitions,
            replicas=world.replicas,
            changelogs=CHANGELOGS,
            weights=weights,
        )
        again = plan(
            members[::-1],
            world.partitions,
            replicas=world.replicas,
            changelogs=CHANGELOGS,
            weights=shuffled,
        )
        assert [answer.actives(i) for i in answer.member_ids] == [
            again.actives(i) for i in again.member_ids
        ]
        broken = {
            v.promise
            for v in check(
                members, world.partitions, answer, replicas=world.replicas, changelogs=CHANGELOGS
            )
        }
        assert broken <= {"A4", "A5"}
        report = answer.report()
        if report["weight_max"] is not None and report["weight_bound"]:
            assert report["weight_max"] >= report["weight_bound"] * (1 - 1e-9)
        world.rebalance(thorough=False)
