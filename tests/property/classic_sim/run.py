"""A run from a seed."""

from __future__ import annotations

from tests.property.classic_sim import acts
from tests.property.classic_sim.trial import Trial
from tests.property.classic_sim.world import World
from tests.property.lives import one_life


def run(seed: int, steps: int = 60) -> int:
    """Run a seed; return the number of checked stable states.

    Raises Violation with the seed and a short transcript."""
    world = World(seed)
    setting = world.setting
    head = f"delay={setting.delay_ms} max_size={setting.max_size} max_pending={setting.max_pending}"
    return one_life(seed, steps, world, lambda: Trial(setting), head=head, told=acts.told)
