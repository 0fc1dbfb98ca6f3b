"""Find circles of parent pointers: after a search for shortest paths, each circle is a negative cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from faust_assigner.model import NOBODY


def circles_of(up: Sequence[int]) -> Iterator[list[int]]:
    """Yield each circle of ``up`` (node -> parent, or ``NOBODY``), from parent to child. Cost: O(nodes)."""
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
