"""One metric of a worker: its name, kind, unit, labels and first series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PREFIX: Final = "faust_assigner_"
GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One metric. ``name`` is without prefix and without ``_total``.

    ``starts`` are the label values whose series exist from the start, with 0. A gauge that is absent until it
    has a value has no ``starts``. Only the leader knows ``leader_only`` figures: counters of its decisions,
    and gauges that are removed when the leader changes.
    """

    name: str
    kind: str
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()
    starts: tuple[tuple[str, ...], ...] = ((),)
    leader_only: bool = False
    buckets: tuple[float, ...] = ()

    @property
    def exported(self) -> str:
        """The name in Prometheus."""
        return PREFIX + self.name + ("_total" if self.kind == COUNTER else "")


def gauge(name: str, unit: str, meaning: str, *, labels: tuple[str, ...] = ()) -> Figure:
    """Return a gauge; without labels its series exists from the start."""
    return Figure(
        name=name,
        kind=GAUGE,
        unit=unit,
        meaning=meaning,
        labels=labels,
        starts=() if labels else ((),),
    )


def gauge_or_absent(name: str, unit: str, meaning: str, *, leader_only: bool = False) -> Figure:
    """Return a gauge that is absent until it has a value."""
    return Figure(
        name=name, kind=GAUGE, unit=unit, meaning=meaning, starts=(), leader_only=leader_only
    )


def counter(name: str, meaning: str, *, unit: str = "", leader_only: bool = False) -> Figure:
    """Return a counter."""
    return Figure(name=name, kind=COUNTER, unit=unit, meaning=meaning, leader_only=leader_only)
