"""A group's life as a Hypothesis state machine: a broken promise yields a short example."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from faust_assigner.checks.invariants import check
from tests.property.world import CHANGELOGS, WEIGHTLESS, World
from tests.support.examples import examples

CHANCE = st.integers(0, 2**16).map(Random)


class GroupLife(RuleBasedStateMachine):
    """Events between rebalances in any order; each rebalance keeps every promise."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @initialize(members=st.integers(1, 5), chance=CHANCE)
    def begin(self, members: int, chance: Random) -> None:
        """Start with a few members without a past."""
        for _ in range(members):
            self.world.join(chance)

    @rule(chance=CHANCE)
    def join(self, chance: Random) -> None:
        """Add a new member."""
        self.world.join(chance)

    @rule(chance=CHANCE)
    def leave(self, chance: Random) -> None:
        """Let a member leave in order."""
        self.world.leave(chance)

    @rule(chance=CHANCE)
    def crash(self, chance: Random) -> None:
        """Remove several members at once."""
        self.world.crash_many(chance)

    @rule(chance=CHANCE)
    def return_with_old_data(self, chance: Random) -> None:
        """Bring back a restarted member with its files."""
        self.world.return_with_files(chance)

    @rule(chance=CHANCE)
    def return_as_zombie(self, chance: Random) -> None:
        """Bring back a paused member with its old claims."""
        self.world.return_as_zombie(chance)

    @rule(chance=CHANCE)
    def lie(self, chance: Random) -> None:
        """Let a member claim other members' partitions."""
        self.world.same_generation_liar(chance)

    @rule(chance=CHANCE)
    def corrupt_user_data(self, chance: Random) -> None:
        """Give a member malformed claims."""
        self.world.corrupt(chance)

    @rule(chance=CHANCE)
    def grow_shrink_add_or_recreate_a_topic(self, chance: Random) -> None:
        """Change partition counts, down to zero and back."""
        self.world.resize_topic(chance)

    @rule(chance=CHANCE)
    def subscribe_or_unsubscribe(self, chance: Random) -> None:
        """Change a member's topics."""
        self.world.resubscribe(chance)

    @rule(chance=CHANCE)
    def finish_the_deploy(self, chance: Random) -> None:
        """Subscribe all members to all topics."""
        self.world.all_resubscribe(chance)

    @rule(chance=CHANCE)
    def set_replicas(self, chance: Random) -> None:
        """Change the number of standbys."""
        self.world.set_replicas(chance)

    @rule(chance=CHANCE)
    def set_rack(self, chance: Random) -> None:
        """Change a member's rack, or all racks."""
        (self.world.set_rack if chance.random() < 0.5 else self.world.all_racks)(chance)

    @rule(chance=CHANCE)
    def set_capacity(self, chance: Random) -> None:
        """Change a member's capacity."""
        self.world.set_capacity(chance)

    @rule(chance=CHANCE)
    def forget(self, chance: Random) -> None:
        """Let a member lose its former partitions and files."""
        self.world.forget(chance)

    @rule(chance=CHANCE)
    def permute(self, chance: Random) -> None:
        """Reorder the members."""
        self.world.permute(chance)

    @precondition(lambda self: bool(self.world.members))
    @rule()
    def rebalance_once(self) -> None:
        """Rebalance once."""
        assert self.world.rebalance(thorough=True) == []

    @precondition(lambda self: bool(self.world.members))
    @rule()
    def rebalance_twice(self) -> None:
        """Rebalance twice; a third plan repeats the second (A6 of the thorough check)."""
        assert self.world.rebalance(thorough=False) == []
        assert self.world.rebalance(thorough=True) == []

    @invariant()
    def the_pending_plan_is_sound(self) -> None:
        """A plan made now keeps every promise, after any events since the last rebalance."""
        if self.world.members:
            found = check(
                self.world.members.values(),
                self.world.partitions,
                self.world.answer(),
                replicas=self.world.replicas,
                changelogs=CHANGELOGS,
                weightless=WEIGHTLESS,
            )
            assert found == []


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(
    max_examples=examples(25, 6),
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
