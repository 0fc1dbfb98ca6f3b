"""The classic group under random interleavings keeps B1-B8 and B10; planted bugs are found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.classic import ClassicGroup, GroupLimits, State
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import CommitOffsets, JoinGroup, SyncGroup
from faust_assigner.coordinator.members import Member
from tests.property.classic_sim import Violation, run
from tests.support.examples import examples

CI_SEEDS = examples(600, 200)


def test_random_interleavings_keep_every_promise() -> None:
    """A fixed slice of seeds; `make sim-classic SEEDS=n` runs more."""
    stables = sum(run(seed).stables for seed in range(CI_SEEDS))
    assert stables > 10 * CI_SEEDS, "the runs must actually reach stable groups"


@given(st.integers(min_value=10**6, max_value=10**12))
@settings(max_examples=examples(60, 20), deadline=None)
def test_seeds_nobody_chose_keep_every_promise(seed: int) -> None:
    """Fresh seeds in every run; a failure prints its own."""
    run(seed, steps=40)


class ReusesGenerations(ClassicGroup):
    """Begins a generation under the number of the last one."""

    def _begin_generation(self) -> None:
        self.generation -= 1 if self.generation > 0 else 0
        super()._begin_generation()


class ForgetsParkedSyncs(ClassicGroup):
    """Drops parked syncs without an answer."""

    def _fail_parked_syncs(self, error: Code) -> None:
        for member in self.roster:
            member.sync_tokens = ()


class NeverFences(ClassicGroup):
    """Does not look at instance ids."""

    def _check_member(self, member_id: str, instance_id: str | None) -> Code:
        return super()._check_member(member_id, None)


class TakesStaleSyncs(ClassicGroup):
    """Takes a sync of any generation."""

    def _check_sync(self, event: SyncGroup) -> Code:
        return self._check_member(event.member_id, event.instance_id)


class TakesStaleCommits(ClassicGroup):
    """Takes a commit of any generation."""

    def _check_commit(self, event: CommitOffsets) -> Code:
        return self._check_member(event.member_id, event.instance_id)


class AnswersTwice(ClassicGroup):
    """Keeps the tokens it has answered."""

    def _assignment_saved(self, given: Mapping[str, bytes], generation: int, error: Code) -> None:
        tokens = {m.member_id: m.sync_tokens for m in self.roster}
        super()._assignment_saved(given, generation, error)
        for member in self.roster:
            member.sync_tokens = tokens.get(member.member_id, ())


class DoesNotWait(ClassicGroup):
    """Ends the join phase as soon as one member has joined."""

    def _maybe_complete_join(self) -> None:
        if self.state is State.PREPARING and self._initial_wait_ms is None and self.roster.joined():
            for member in [m for m in self.roster if not m.join_tokens]:
                self.roster.remove(member.member_id)
            self._complete_join()


class IgnoresFailedSaves(ClassicGroup):
    """Goes on although the assignment is not on disk."""

    def _assignment_saved(self, given: Mapping[str, bytes], generation: int, error: Code) -> None:
        super()._assignment_saved(given, generation, Code.NONE)


class KeepsBothIncarnations(ClassicGroup):
    """Lets a static newcomer in beside the old one."""

    def _replace_static(self, event: JoinGroup, old_id: str) -> None:
        self._admit(event, event.new_member_id)


class ForgetsItsGeneration(ClassicGroup):
    """Starts at zero after a restart."""

    @classmethod
    def restore(cls, record: fx.GroupRecord, limits: GroupLimits, now_ms: int) -> Self:
        """Wrong."""
        group = super().restore(record, limits, now_ms)
        group.generation = 0
        return group


class SavesOnlySettledGenerations(ClassicGroup):
    """Does not note that a generation has begun."""

    def record(self, *arguments: Any, settled: bool = True, **more: Any) -> fx.GroupRecord:
        """Wrong."""
        if settled:
            return super().record(*arguments, **more)
        return fx.GroupRecord(self.group_id, self.generation - 1, None, None, None, 0, ())


class GivesAllToAll(ClassicGroup):
    """Hands the first assignment to every member."""

    def _assignment_saved(self, given: Mapping[str, bytes], generation: int, error: Code) -> None:
        first = next(iter(given.values()), b"")
        super()._assignment_saved(dict.fromkeys(given, first), generation, error)


class NobodyEverDies(ClassicGroup):
    """Ignores sessions that end."""

    def _session_due(self, member: Member) -> None:
        member.session_deadline_ms = None


class RingsForEver(ClassicGroup):
    """Does not stop the timer that has rung."""

    def _session_due(self, member: Member) -> None:
        if member.is_new:
            super()._session_due(member)


PLANTED = [
    ReusesGenerations,
    ForgetsParkedSyncs,
    NeverFences,
    TakesStaleSyncs,
    TakesStaleCommits,
    AnswersTwice,
    DoesNotWait,
    IgnoresFailedSaves,
    KeepsBothIncarnations,
    ForgetsItsGeneration,
    SavesOnlySettledGenerations,
    GivesAllToAll,
    NobodyEverDies,
    RingsForEver,
]


@pytest.mark.parametrize("broken", PLANTED, ids=lambda c: c.__name__)
def test_the_simulator_finds_a_planted_bug(broken: type[ClassicGroup]) -> None:
    """Within 300 seeds; otherwise the simulator, not the group, is at fault."""
    for seed in range(300):
        try:
            run(seed, make=broken)
        except (Violation, AssertionError, KeyError):
            return
    pytest.fail(f"{broken.__name__} went unnoticed: {broken.__doc__}")
