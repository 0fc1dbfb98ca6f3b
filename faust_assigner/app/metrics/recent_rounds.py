"""The last rounds as this worker saw them, kept in memory for the group's page.

A leader knows which tasks moved and by which rule. Every member knows the outcome of a round, and
the time that the round took on this member. The page asks all workers and merges their answers. So
a change of the leader loses no rounds while the former leader lives. This module does not
import Faust.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.model import NOBODY
from faust_assigner.planner import Plan
from faust_assigner.views.placed import RULES
from faust_assigner.wire.outcome import Outcome
from faust_assigner.wire.worker_status import MovedTask, RoundTold

#: The maximum number of rounds that are kept, and of moves in a round. Further moves of a round are
#: only counted in its outcome.
MOST_ROUNDS: Final = 50
MOST_MOVES: Final = 500


class RecentRounds:
    """The last rounds, keyed by generation. Any thread may call the methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rounds: dict[int, RoundTold] = {}

    def decided(self, inputs: DecisionInputs, plan: Plan) -> None:
        """Note a round that this member led."""
        names = {m.member_id: m.instance_id or m.member_id for m in inputs.members}
        found = _moved_tasks(plan, names)
        moves = tuple(move for move, _ in zip(found, range(MOST_MOVES), strict=False))
        self._note(inputs.generation, moves=moves)

    def answered(self, generation: int, outcome: Outcome | None, *, at: float) -> None:
        """Note the outcome that this member received at the time ``at`` (seconds since 1970)."""
        self._note(generation, outcome=outcome, at=at)

    def ended(self, generation: int, *, seconds: float) -> None:
        """Note the seconds from the round's begin to the restore of this member's partitions."""
        self._note(generation, seconds=round(seconds, 2))

    def rounds(self) -> tuple[RoundTold, ...]:
        """Return the rounds, oldest first."""
        with self._lock:
            return tuple(self._rounds[generation] for generation in sorted(self._rounds))

    def _note(self, generation: int, **found: object) -> None:
        if generation < 0:
            return
        with self._lock:
            known = self._rounds.get(generation, RoundTold(generation=generation))
            self._rounds[generation] = replace(known, **found)  # type: ignore[arg-type]
            while len(self._rounds) > MOST_ROUNDS:
                del self._rounds[min(self._rounds)]


def _moved_tasks(plan: Plan, names: dict[str, str]) -> Iterator[MovedTask]:
    ids = plan.member_ids
    for g, group in enumerate(plan.groups):
        if group.weightless:
            continue
        for number in np.flatnonzero(plan.moved[g]).tolist():
            owner, before = int(plan.owner[g][number]), int(plan.previous_owner[g][number])
            if owner != NOBODY:
                yield MovedTask(
                    topic=group.topics[0],
                    partition=number,
                    source="" if before == NOBODY else names.get(ids[before], ids[before]),
                    target=names.get(ids[owner], ids[owner]),
                    rule=RULES[plan.rule[g][number]],
                    is_cold=bool(plan.cold[g][number]),
                )
