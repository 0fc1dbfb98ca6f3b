"""A seeded random walk through the life of a group: ``python -m tests.property.walk ROUNDS [SEED]``.

Every round is one rebalance with every promise checked; a thorough one (answers repeated, members
permuted) every tenth. A violation prints the seed of its life and its round, which replay it.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from random import Random

from tests.property.world import EVENTS, World

#: Rounds of one life; each has its own seed, so that any failure replays in a second.
LIFE = 200


def live(seed: str, rounds: int = LIFE) -> tuple[int, list[str]]:
    """One life: (rebalances, a line for each violation)."""
    rng = Random(seed)
    world = World()
    for _ in range(rng.randint(1, 6)):
        world.join(rng)
    if rng.random() < 0.4:
        world.all_resubscribe(rng)
    events, chances = zip(*EVENTS, strict=True)
    found: list[str] = []
    for step in range(rounds):
        names = []
        for event in rng.choices(events, chances, k=rng.choice([0, 1, 1, 1, 2, 3])):
            event(world, rng)
            names.append(event.__name__)
        for violation in world.rebalance(thorough=step % 10 == 0):
            found.append(f"life {seed} round {step} after {'+'.join(names) or 'nothing'}: {violation}")
    return rounds, found


def walk(rounds: int, seed: int, processes: int = 1) -> tuple[int, list[str]]:
    """``rounds`` rebalances in lives of ``LIFE``; (rounds played, violations)."""
    seeds = [f"{seed}:{i}" for i in range(-(-rounds // LIFE))]
    if processes == 1:
        lives = [live(s) for s in seeds]
    else:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            lives = list(pool.imap(live, seeds, chunksize=8))
    return sum(n for n, _ in lives), [line for _, lines in lives for line in lines]


def main() -> int:
    """Print what was played and every violation; the exit code says whether there was one."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    started = time.perf_counter()
    played, found = walk(rounds, seed, processes=os.cpu_count() or 1)
    print(*found[:50], sep="\n")
    print(f"seed {seed}: {len(found)} violations in {played} rounds, {time.perf_counter() - started:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
