"""The digest of plans is the same under all hash seeds: no set or hash order affects a plan."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.support.examples import examples

PROGRAM = """
import hashlib, json, sys
from random import Random
from tests.property.walk import EVENTS
from tests.property.world import World

digest = hashlib.sha256()
for seed in range(int(sys.argv[1])):
    rng, world = Random(seed), World()
    for _ in range(5):
        world.join(rng)
    while world.policy is None and seed % 2:
        world.set_warmups(rng)
    events, chances = zip(*EVENTS, strict=True)
    for _ in range(12):
        for event in rng.choices(events, chances, k=2):
            event(world, rng)
        answer = world.answer(sorted(world.said(), key=lambda m: hash(m.member_id)))
        digest.update(json.dumps([[i, answer.actives(i), answer.standbys(i), answer.warmups(i),
                                   answer.awaited(i)] for i in answer.member_ids]
                                 + [[g.group_id, g.topics] for g in answer.groups]).encode())
        world.rebalance(thorough=False)
print(digest.hexdigest())
"""


def digest(seed: int) -> str:
    """Return the digest of many plans under a hash seed; members are listed in hash order."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(examples(4, 2))],
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_hash_seeds_give_one_digest() -> None:
    """Plans, group ids and standbys are equal under any hash seed and member order (A8)."""
    with ThreadPoolExecutor(2) as pool:
        digests = set(pool.map(digest, range(examples(8, 2))))
    assert len(digests) == 1
