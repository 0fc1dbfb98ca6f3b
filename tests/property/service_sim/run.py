"""Play a run of the simulator from its seed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import dataclass

from tests.property.service_sim.acts import Act, Setting, draw
from tests.property.service_sim.book import Violation
from tests.property.service_sim.loop import VirtualLoop
from tests.property.service_sim.world import World

SHRINKS = 60  # repeated runs at most, to find a shorter list of acts


@dataclass(frozen=True)
class Outcome:
    """The counts of a run, so a test can refuse a simulator without any activity."""

    completed: int
    aborted: int
    commits: int
    fenced: int
    answers: int


def play(setting: Setting, acts: Sequence[Act]) -> Outcome:
    """Play a run on virtual time. Raises Violation."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    world = loop.run_until_complete(_make(setting))
    failures: list[BaseException] = []
    loop.set_exception_handler(
        lambda _, context: failures.append(context.get("exception") or Violation(str(context)))
    )
    try:
        loop.run_until_complete(_play(world, acts))
        if failures:
            raise Violation(f"a task failed: {failures[0]!r}") from failures[0]
    except Violation as violation:
        # The first failure is the cause.
        raise (
            failures[0] if failures and isinstance(failures[0], Violation) else violation
        ) from None
    finally:
        loop.run_until_complete(world.end())
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        asyncio.set_event_loop(None)
    promises, sink = world.promises, world.sink
    return Outcome(
        promises.completed, promises.aborted, sink.accepted, sink.refused, len(world.said)
    )


async def _make(setting: Setting) -> World:
    return World(setting)


async def _play(world: World, acts: Sequence[Act]) -> None:
    await world.begin()
    for act in acts:
        await world.do(act)
    await world.settle()


def run(seed: int, steps: int = 25) -> Outcome:
    """Play a run from its seed. Raises Violation with the seed and a short list of acts."""
    setting, acts = draw(seed, steps)
    try:
        return play(setting, acts)
    except Violation as violation:
        short = shrink(setting, acts)
        told = [
            f"  {act.kind} who={act.who} {act.seconds:g} s, then {act.wait:g} s" for act in short
        ]
        head = f"seed {seed}: {violation}\n{setting}\n{len(short)} of {len(acts)} acts:"
        raise Violation("\n".join([head, *told])) from None
    finally:
        gc.collect(0)


def shrink(setting: Setting, acts: Sequence[Act]) -> list[Act]:
    """Drop acts in ever smaller pieces, as long as a promise still breaks."""
    short, size, budget = list(acts), max(len(acts) // 2, 1), SHRINKS
    while size:
        start = 0
        while start < len(short) and budget > 0:
            candidate = short[:start] + short[start + size :]
            budget -= 1
            if _broken(setting, candidate):
                short = candidate
            else:
                start += size
        size //= 2
    return short


def _broken(setting: Setting, acts: Sequence[Act]) -> bool:
    try:
        play(setting, acts)
    except Violation:
        return True
    return False
