"""Who founded which group, so that no peer fills the broker with groups and locks the others out.

An address may hold as many groups as it leaves room for, and each of its connections as many as it leaves to
the address. Groups of committed offsets alone are told apart: acknowledged offsets are never dropped to make
room, so they get no more than half of all groups, and the rest stays with members. Counts are of groups that
stand: one that goes gives its place back.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from faust_assigner.broker import limits


class Founder(Protocol):
    """A peer, as far as groups go."""

    address: str
    founded: int  # groups that its requests made and that stand


class _Entry(NamedTuple):
    address: str
    peer: weakref.ref[Founder] | None
    is_simple: bool


class Founders:
    """The account of all groups of one broker."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._standing: Counter[str] = Counter()  # by address
        self._simple: Counter[str] = Counter()  # those of committed offsets alone
        self._fresh: dict[
            tuple[str, bool], dict[str, None]
        ] = {}  # (address, simple) -> groups, oldest first

    def note(self, group_id: str, founder: Founder | None, *, is_simple: bool) -> None:
        """A group is founded; by nobody where the store had it."""
        address = founder.address if founder is not None else ""
        peer = None
        if founder is not None:
            founder.founded += 1
            peer = weakref.ref(founder)
        self._entries[group_id] = _Entry(address, peer, is_simple)
        self._standing[address] += 1
        self._simple[address] += is_simple
        self._fresh.setdefault((address, is_simple), {})[group_id] = None

    def has_members(self, group_id: str) -> None:
        """Somebody joins: it is no group of offsets alone, and will not be one again."""
        entry = self._entries.get(group_id)
        if entry is not None and entry.is_simple:
            self._simple[entry.address] -= 1
            self._entries[group_id] = entry._replace(is_simple=False)

    def gone(self, group_id: str) -> None:
        """The group stands no more."""
        entry = self._entries.pop(group_id, None)
        if entry is None:
            return
        self._standing[entry.address] -= 1
        self._simple[entry.address] -= entry.is_simple
        for is_simple in (True, False):  # it may have been founded as the other kind
            self._fresh.get((entry.address, is_simple), {}).pop(group_id, None)
        peer = entry.peer() if entry.peer is not None else None
        if peer is not None:
            peer.founded -= 1

    def may_found(self, founder: Founder | None, *, is_simple: bool) -> bool:
        """Whether a peer (nobody in particular: the broker itself) may found one more."""
        left = self._left(founder.address if founder is not None else None, is_simple)
        return left > 0 and (founder is None or founder.founded < left)

    def makes_room(self, founder: Founder | None, *, is_simple: bool) -> bool:
        """Whether groups that hold nothing should go for this peer: its address is full, not its own part."""
        return self._left(founder.address if founder is not None else None, is_simple) <= 0

    def _left(self, address: str | None, is_simple: bool) -> int:
        """How many more an address may found: as many as it leaves to others, less what it has."""
        left = limits.MAX_GROUPS - self._standing.total()
        if address is not None:
            left -= self._standing[address]
        if is_simple:
            simple = limits.MAX_GROUPS // 2 - self._simple.total()
            left = min(left, simple - (self._simple[address] if address is not None else 0))
        return left

    def fresh(self, founder: Founder | None, *, is_simple: bool) -> Iterator[str]:
        """Groups that may hold nothing yet, the peer's own kind and address first; each is named once."""
        mine = (founder.address if founder is not None else "", is_simple)
        keys = sorted(self._fresh, key=lambda key: (key != mine, key[0] != mine[0], key))
        for key in keys:
            groups = self._fresh[key]
            while groups:
                group_id = next(iter(groups))
                del groups[group_id]
                yield group_id
            del self._fresh[key]
