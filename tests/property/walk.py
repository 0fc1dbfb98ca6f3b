"""A seeded random walk through a group's life: ``python -m tests.property.walk ROUNDS [SEED]``.

Every round is a rebalance with every promise checked; every tenth check is thorough (repeated
answers, permuted members). A violation prints its life's seed and its round; these two replay the
violation.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from random import Random

from tests.property.world import EVENTS, World

#: Rounds of a life; each life has its own seed, so a failure replays in a second.
LIFE = 200


def live(seed: str, rounds: int = LIFE) -> tuple[int, list[str]]:
    """Run a life; return (rebalances, a line for each violation)."""
    rng = Random(seed)
    world = World()
    for _ in range(rng.randint(1, 6)):
        world.join(rng)
    if rng.random() < 0.4:
        world.all_resubscribe(rng)
    world.set_warmups(rng)
    events, chances = zip(*EVENTS, strict=True)
    found: list[str] = []
    for step in range(rounds):
        names = []
        for event in rng.choices(events, chances, k=rng.choice([0, 1, 1, 1, 2, 3])):
            event(world, rng)
            names.append(event.__name__)
        for violation in world.rebalance(thorough=step % 20 == 0):
            found.append(
                f"life {seed} round {step} after {'+'.join(names) or 'nothing'}: {violation}"
            )
    return rounds, found


def lives(rounds: int, seed: int, processes: int = 1) -> Iterator[tuple[int, list[str]]]:
    """Run ``rounds`` rebalances in lives of ``LIFE`` rounds, and yield each result in order."""
    seeds = [f"{seed}:{i}" for i in range(-(-rounds // LIFE))]
    if processes == 1:
        yield from map(live, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(live, seeds, chunksize=4)


def walk(rounds: int, seed: int, processes: int = 1) -> tuple[int, list[str]]:
    """Return (rounds played, violations)."""
    played = list(lives(rounds, seed, processes))
    return sum(n for n, _ in played), [line for _, lines in played for line in lines]


def main() -> int:
    """Print the progress and every violation; exit with 1 if there is any."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    started = time.perf_counter()
    played = violations = 0
    for n, found in lives(rounds, seed, processes=os.cpu_count() or 1):
        played, violations = played + n, violations + len(found)
        print(*found, sep="\n", end="\n" if found else "")
        if played % max(LIFE, rounds // 20 // LIFE * LIFE) == 0 or played >= rounds:
            print(
                f"seed {seed}: {violations} violations in {played} rounds, "
                f"{time.perf_counter() - started:.0f} s",
                flush=True,
            )
    return 1 if violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
