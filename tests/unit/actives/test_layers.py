"""The layers of the flow's search: steps from the nearest excess."""

from __future__ import annotations

import numpy as np
import pytest

from faust_assigner.actives.paths import _Search
from faust_assigner.actives.transport import Flow, Transport


def search(seed: int, groups: int = 4, members: int = 5) -> _Search:
    """Return a search with random arcs of reduced cost zero and random imbalances."""
    rng = np.random.default_rng(seed)
    none = np.zeros((groups, members), dtype=np.int64)
    flow = Flow(
        Transport(
            supply=np.ones(groups, dtype=np.int64),
            allowed=np.ones((groups, members), dtype=np.bool_),
            kept=none,
            warm=none,
            home=none,
            rate=np.ones(members, dtype=np.int64),
        )
    )
    made = _Search(flow, rng.choice([0, 1, -1], groups + members + 1, p=[0.7, 0.2, 0.1]))
    made.free_up = rng.random((groups, members)) < 0.35
    made.free_down = rng.random((members, groups)) < 0.35
    made.free_out = rng.random(members) < 0.5
    made.free_in = rng.random(members) < 0.15
    return made


def plain(made: _Search) -> list[int] | None:
    """Return the layers, computed node by node."""
    g, sink = made.groups, made.sink
    arcs: dict[int, set[int]] = {
        **{u: {g + int(m) for m in np.flatnonzero(made.free_up[u])} for u in range(g)},
        **{
            g + m: {int(u) for u in np.flatnonzero(made.free_down[m])}
            | ({sink} if made.free_out[m] else set())
            for m in range(made.members)
        },
        sink: {g + int(m) for m in np.flatnonzero(made.free_in)},
    }
    layer: dict[int, int] = {}
    frontier = {u for u in arcs if made.excess[u] > 0}
    while frontier:
        layer |= dict.fromkeys(frontier, max(layer.values(), default=-1) + 1)
        if any(made.excess[u] < 0 for u in frontier):
            return [layer.get(u, -1) for u in range(sink + 1)]
        frontier = {v for u in frontier for v in arcs[u]} - layer.keys()
    return None


@pytest.mark.parametrize("part", range(4))
def test_layers_are_the_steps_from_the_nearest_excess(part: int) -> None:
    """Layers end at the first deficit; a search that misses a deficit would not end."""
    for seed in range(100 * part, 100 * part + 100):
        made = search(seed)
        layers = made._layers()
        assert (None if layers is None else layers.tolist()) == plain(made), seed
