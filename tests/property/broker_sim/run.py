"""A storm from a seed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.property.broker_sim.world import World
from tests.property.lives import Violation


def run(seed: int, steps: int = 150, folder: Path | None = None) -> int:
    """Run a seed; return the number of compared logs. Raises Violation with the last acts."""
    return asyncio.run(_storm(seed, steps, folder))


async def _storm(seed: int, steps: int, folder: Path | None) -> int:
    world = World(seed, folder)
    try:
        await world.prepare()
        for _ in range(steps):
            await world.step()
        await world.finish()
    except Violation as violation:
        last = "\n".join(world.story[-60:])
        raise Violation(f"seed {seed}, {steps} steps: {last}\n{violation}") from None
    finally:
        world.host.end()
    return world.checks
