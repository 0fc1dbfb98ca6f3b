"""Find cycles of parent pointers; after a shortest-path search each such cycle has a negative cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from faust_assigner.model import NOBODY


def cycles_of(up: Sequence[int]) -> Iterator[list[int]]:
    """Yield each cycle of ``up`` (node -> parent, or ``NOBODY``), from parent to child. Cost: O(nodes)."""
    seen = [0] * len(up)
    for start in range(len(up)):
        u = start
        while u != NOBODY and not seen[u]:
            seen[u] = start + 1
            u = up[u]
        if u != NOBODY and seen[u] == start + 1:
            around = [u]
            while up[around[-1]] != u:
                around.append(up[around[-1]])
            yield around[::-1]
