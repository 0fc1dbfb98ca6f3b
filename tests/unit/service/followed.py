"""An in-memory store with a copy that follows each transaction at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import Handoff, TopicPartition
from faust_assigner.service.records import Assigned, Consumer, TopicConfig
from faust_assigner.service.store.base import Compare, Put, TxnResult, Write
from faust_assigner.service.store.memory import MemoryStore
from faust_assigner.service.view import View, differences
from tests.support.assigning.consumers import LoopClock
from tests.unit.service.stories import ALL


class Followed(MemoryStore):
    """``view`` is the mirror's view, ``txns`` the transactions, ``reads`` the waits of callers."""

    def __init__(self) -> None:
        super().__init__(clock=LoopClock(), first_revision=100)
        self.view = View(ALL)
        self.listeners: list[Callable[..., None]] = []
        self.txns: list[tuple[tuple[Compare, ...], tuple[Write, ...]]] = []
        self.waits: list[tuple[str, Any]] = []
        self.meanwhile: list[Sequence[Write]] = []
        self.is_late = False
        self.heard_at = 0.0

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Write, after the next writes of ``meanwhile``."""
        if self.meanwhile:
            await super().txn([], self.meanwhile.pop(0))
        self.txns.append((tuple(compares), tuple(writes)))
        result = await super().txn(compares, writes)
        if not self.is_late:
            self.follow()
        return result

    def follow(self) -> None:
        """Bring the copy up to date."""
        self._expire()
        items = tuple(self._keys[key] for key in sorted(self._keys))
        listing: Any = type("Listing", (), {"revision": self.revision, "items": items})
        changes = [self.view.apply(event) for event in differences(self.view.raw, listing)]
        for listener in self.listeners:
            listener([change for change in changes if change is not None])

    # -- methods of a mirror ---------------------------------------------------------------------------

    @property
    def dated(self) -> int:
        """The copy's revision, on the scale of epochs."""
        return self.view.base + self.revision

    async def reached(self, revision: int) -> None:
        """Follow the store."""
        self.waits.append(("reached", revision))
        self.follow()

    async def reached_write(self, revision: int, known: int) -> None:
        """Follow the store."""
        self.waits.append(("past", (revision, known)))
        self.follow()

    @property
    def epochs(self) -> Followed:
        """The mirror's part that raises the epochs."""
        return self

    async def begin(self, wall: float) -> None:
        """Record the call."""
        self.waits.append(("begin_epochs", wall))

    async def surpass(self, epoch: int, wall: float) -> None:
        """Record the call."""
        self.waits.append(("pass_epoch", (epoch, wall)))

    # -- contents of the store ---------------------------------------------------------------------------

    async def put(self, key: str, value: bytes, lease: int = 0) -> int:
        """Write a key."""
        result = await super().txn([], [Put(key, value, lease)])
        if not self.is_late:
            self.follow()
        return result.revision

    async def consumer(self, consumer: Consumer, ttl_s: float = 0.0) -> int:
        """Register a consumer, and return its lease."""
        lease = (await self.grant(ttl_s)).lease_id if ttl_s else 0
        await self.put(ALL.consumer(consumer.name), codec.dump_consumer(consumer), lease)
        return lease

    async def topic(self, name: str, count: int) -> None:
        """Add a topic."""
        await self.put(ALL.topic(name), codec.dump_topic(TopicConfig(name, count)))

    async def owner(self, at: TopicPartition, name: str, incarnation: str = "") -> int:
        """Assign a partition."""
        assigned = Assigned(at, name, incarnation=incarnation)
        return await self.put(ALL.assignment(at), codec.dump_assigned(assigned))

    async def handoff(self, handoff: Handoff) -> int:
        """Write a hand-off."""
        return await self.put(ALL.handoff(handoff.at), codec.dump_handoff(handoff))

    async def registered(self, name: str) -> Consumer | None:
        """Return the stored registration."""
        kv = await self.get(ALL.consumer(name))
        return None if kv is None else codec.load_consumer(kv.value)
