"""The events of a simulated run: a run is a list of acts; each of its sub-lists is a run too."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Act:
    """Apply ``kind`` to candidate number ``who`` for ``seconds``; then let ``wait`` seconds pass."""

    kind: str
    who: int
    seconds: float
    wait: float


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of a run."""

    seed: int
    nodes: int
    strict: bool
    channel: int
    partitions: int
    limit: int
    pairs: bool = False


#: The kinds of acts, and their weights.
KINDS = {
    "join": 10,
    "crash": 4,
    "stall": 5,
    "reconnect": 6,
    "restart": 5,
    "leave": 4,
    "stuck": 2,
    "failing": 2,
    "mute": 2,
    "pause": 5,
    "cut": 5,
    "kill": 4,
    "lossy": 3,
    "lie": 6,
    "compact": 4,
    "grow": 1,
    "drain": 2,
    "abort": 2,
    "nothing": 6,
    "skew": 1,
    "coup": 2,
    "unable": 1,
    "forget": 3,
    "outage": 2,
}


def draw(seed: int, steps: int) -> tuple[Setting, list[Act]]:
    """Draw a run from its seed."""
    dice = random.Random(seed)
    setting = Setting(
        seed,
        nodes=dice.choice((1, 2, 2, 3)),
        strict=dice.random() < 0.6,
        channel=dice.choice((2, 4, 1024)),
        partitions=dice.choice((3, 6, 10)),
        limit=dice.choice((1, 2, 16)),
    )
    kinds, weights = list(KINDS), list(KINDS.values())
    acts = [Act("join", 0, 0.0, 0.2), Act("join", 0, 0.0, 0.2)]
    for kind in dice.choices(kinds, weights, k=steps):
        acts.append(
            Act(
                kind,
                dice.randrange(1_000),
                dice.choice((0.5, 2.0, 5.0, 12.0)),
                dice.choice((0.0, 0.1, 0.5, 1.0, 3.0)),
            )
        )
    return replace(setting, pairs=dice.random() < 0.3), acts
