"""Planted bugs of consumer groups that a story or a test of one fact sees; see consumer.py for the others."""

from __future__ import annotations

from tests.mutants import Mutant

_PLAYED = "tests/scenarios/test_consumer_groups.py::test_a_scenario_plays_as_written"
_AWAY = "static: a static member that is away misses no revocation, not after a restart either"
_TARGETS = "tests/unit/coordinator/test_consumer_targets.py::test_"

MUTANTS = (
    Mutant(
        story="a static member that is away is put out by its rebalance timeout after a restart",
        file="faust_assigner/coordinator/consumer/machine.py",
        old="stood.state is MemberState.UNREVOKED and stood.epoch != AWAY",
        new="stood.state is MemberState.UNREVOKED",
        red=(f"{_PLAYED}[{_AWAY}]",),
    ),
    Mutant(
        story="a few members that read much hold the loop while their target is computed",
        file="faust_assigner/coordinator/assignors/spec.py",
        old="max(1, len(member.topics))",
        new="1",
        red=(f"{_TARGETS}a_few_members_that_read_much_are_computed_elsewhere",),
    ),
    Mutant(
        story="a thousand expressions that mean the same are a thousand sets",
        file="faust_assigner/coordinator/consumer/subscriptions.py",
        old="            if found not in self._distinct:\n",
        new="            if True:\n",
        red=(f"{_TARGETS}expressions_that_mean_the_same_are_kept_as_one",),
    ),
)
