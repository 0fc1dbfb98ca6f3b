"""Renders a recommendation as text for people and as JSON for scripts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

from faust_assigner.scaler.case import GROW, HOLD, SHRINK, SLEEP, STAY, Recommendation

#: The version of the JSON document; a later version only adds keys.
VERSION = 1
_WORDS = {
    HOLD: "hold: the size must not change now",
    GROW: "grow",
    SHRINK: "shrink",
    STAY: "stay",
    SLEEP: "sleep: no worker is needed",
}


def as_json(group: str, found: Recommendation) -> str:
    """Return one line of JSON: the recommendation's fields, ``group`` and ``version``."""
    return json.dumps({"version": VERSION, "group": group, **dataclasses.asdict(found)})


def as_text(group: str, found: Recommendation) -> str:
    """Return the size first, then the reasons, then the figures."""
    head = f"{group}: {_workers(found.size)} ({_WORDS[found.decision]}; {found.present} now)"
    lines = [head, *(f"  why          {reason}" for reason in found.reasons), *_figures(found)]
    return "\n".join([*lines, *(f"  not known    {note}" for note in found.notes)])


def _figures(found: Recommendation) -> Iterator[str]:
    if found.tasks:
        sizes = ", ".join(map(str, found.useful))
        yield f"  tasks        {found.tasks}; sizes that help: {sizes}"
    arrival = "not known yet" if found.arrival is None else f"{found.arrival:,.0f} records/s arrive"
    yield f"  load         {arrival}, {found.backlog:,} records wait"
    if found.worker_rate is None:
        yield "  one worker   unknown rate: no worker was busy between two queries"
    else:
        yield f"  one worker   processes at most {found.worker_rate:,.0f} records/s"


def _workers(size: int) -> str:
    return f"{size} {'worker' if size == 1 else 'workers'}"
