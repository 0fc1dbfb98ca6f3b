"""The groups of one instance; each has its own keys, consumers and leader."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from typing import Final

from faust_assigner.service.errors import BadRequest, NotFound
from faust_assigner.service.node import AssignerNode

#: A group's name is used unchanged as one part of a key.
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Groups:
    """The node of each group, by the group's name; a single group may have the name ""."""

    def __init__(self, nodes: Mapping[str, AssignerNode]) -> None:
        self._nodes = dict(nodes)

    def __iter__(self) -> Iterator[AssignerNode]:
        return iter(self._nodes.values())

    def items(self) -> Iterator[tuple[str, AssignerNode]]:
        """Return an iterator over (name, node)."""
        return iter(self._nodes.items())

    def of(self, name: str) -> AssignerNode:
        """Return the node of the named group; "" also means the only group of the service.

        Raises NotFound and BadRequest.
        """
        node = self._nodes.get(name)
        if node is not None:
            return node
        known = ", ".join(sorted(filter(None, self._nodes))) or "one group without a name"
        if name:
            raise NotFound(f"no group {name[:64]}: this service has {known}")
        if len(self._nodes) > 1:
            raise BadRequest(f"the request names no group: this service has {known}")
        return next(iter(self._nodes.values()))

    async def start(self) -> None:
        """Start every node; if one fails to start, stop the started nodes."""
        started: list[AssignerNode] = []
        try:
            for node in self:
                await node.start()
                started.append(node)
        except BaseException:
            for node in started:
                await node.stop()
            raise

    async def stop(self) -> None:
        """Stop all nodes at the same time, because a silent store delays the stop of each."""
        await asyncio.gather(*(node.stop() for node in self))
