"""Gives a worker an assignment without a group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from faust.types.tuples import TP

from faust_assigner.app.rebalance.awaited import by_topic
from faust_assigner.wire.runs import Runs


def give(
    app: Any, *, actives: Iterable[TP] | None = None, standbys: Iterable[TP] | None = None
) -> None:
    """Make these partitions the last assignment of ``app``; None keeps those of before."""
    assignor = app.assignor
    for name, tps in (("actives", actives), ("standbys", standbys)):
        if tps is not None:
            claims = {topic: Runs.of(numbers) for topic, numbers in by_topic(tps).items()}
            assignor._memory = replace(assignor._memory, **{name: claims})
