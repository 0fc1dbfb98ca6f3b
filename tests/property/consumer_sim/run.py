"""One seed, one run."""

from __future__ import annotations

from tests.property.consumer_sim.model import Violation
from tests.property.consumer_sim.shrink import shrink, transcript
from tests.property.consumer_sim.world import World


def run(seed: int, steps: int = 60) -> int:
    """One run; how many stable states were checked. Raises Violation with the seed and a short transcript."""
    world = World(seed)
    try:
        for _ in range(steps):
            world.step()
        world.settle()
    except Violation as violation:
        short = shrink(world.setting, world.acts)
        told = transcript(world.setting, short)
        head = f"seed {seed}: {violation}\n{len(short)} of {len(world.acts)} acts:"
        raise Violation(f"{head}\n{told}") from None
    return world.trial.stables
