"""A storm from a seed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from faust_assigner.broker import throttle
from faust_assigner.broker.api import offset_commit
from tests.property.broker_sim.world import World
from tests.property.lives import Violation


def run(seed: int, steps: int = 150, folder: Path | None = None) -> int:
    """Run a seed; return the number of compared logs. Raises Violation with the last acts."""
    return asyncio.run(_storm(seed, steps, folder))


def run_crowds(seed: int, rounds: int = 30) -> int:
    """Run requests that are served at once, in the shortest slices; return the number of restarts.

    Raises Violation if a restart changes the visible state."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(throttle, "SLICE_S", -1.0)
        patched.setattr(offset_commit, "COMMITTED_AT_ONCE", 1)
        return asyncio.run(_crowds(seed, rounds))


async def _crowds(seed: int, rounds: int) -> int:
    world = World(seed, None)
    try:
        await world.prepare()
        for number in range(rounds):
            await world.crowd()
            if number % 5 == 4:
                world.restart_alike()
    except Violation as violation:
        last = "\n".join(world.story[-60:])
        raise Violation(f"seed {seed}, {rounds} rounds: {last}\n{violation}") from None
    finally:
        world.host.end()
    return rounds // 5


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
