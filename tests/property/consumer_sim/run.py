"""A run from a seed."""

from __future__ import annotations

from tests.property.consumer_sim import acts
from tests.property.consumer_sim.trial import Trial
from tests.property.consumer_sim.world import World
from tests.property.lives import one_life


def run(seed: int, steps: int = 60) -> int:
    """Run a seed; return the number of checked stable states.

    Raises Violation with the seed and a short transcript."""
    world = World(seed)
    setting = world.setting
    head = acts.told(setting)
    return one_life(seed, steps, world, lambda: Trial(setting), head=head, told=acts.told)
