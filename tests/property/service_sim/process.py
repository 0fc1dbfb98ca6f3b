"""A simulated process: its clocks, whether it is paused, and the store behind its network."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from faust_assigner.service.errors import StoreUnavailable
from faust_assigner.service.store.base import (
    Batch,
    Compare,
    KeyValue,
    Lease,
    Listing,
    TxnResult,
    Write,
)
from faust_assigner.service.store.memory import MemoryStore

T = TypeVar("T")
DEADLINE_S = 2.0
WALL = 1_700_000_000.0


class Process:
    """``skew_s``: the error of the wall clock. A paused process does nothing; its clocks go on."""

    def __init__(self, name: str, skew_s: float = 0.0) -> None:
        self.name = name
        self.skew_s = skew_s
        self.dead = asyncio.Event()
        self._running = asyncio.Event()
        self._running.set()

    @property
    def paused(self) -> bool:
        """Whether the process is paused."""
        return not self._running.is_set()

    def pause(self) -> None:
        """Stop the process, like SIGSTOP."""
        self._running.clear()

    def go_on(self) -> None:
        """Resume the process, like SIGCONT."""
        self._running.set()

    async def runs(self) -> None:
        """Wait until the process runs."""
        await self._running.wait()

    def monotonic(self) -> float:
        """The monotonic clock."""
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        """The wall clock, which may be wrong."""
        return WALL + asyncio.get_running_loop().time() + self.skew_s

    async def sleep(self, seconds: float) -> None:
        """Sleep for at least this long."""
        await asyncio.sleep(max(seconds, 0.0))
        await self.runs()


class FarStore:
    """The store over a slow, lossy network. A call with a lost answer may have been executed or not."""

    def __init__(
        self,
        near: MemoryStore,
        process: Process,
        draw: random.Random,
        sent: Callable[[Process, Sequence[Compare], Sequence[Write]], None],
        renewed: Callable[[Process, int, float], None],
    ) -> None:
        self.cut = False
        self.loss = 0.0
        self._near = near
        self._process = process
        self._draw = draw
        self._sent = sent
        self._renewed = renewed

    async def _far(self, call: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
        """Send a call and return its answer, each with a delay."""
        await self._process.runs()
        deadline = self._process.monotonic() + deadline_s
        await asyncio.sleep(self._delay())
        lost = self.cut or self._draw.random() < self.loss
        if not lost:
            try:
                answer, error = call(), None
            except Exception as failed:  # every error of the store travels back
                answer, error = None, failed
            await asyncio.sleep(self._delay())
            lost = self.cut or self._draw.random() < self.loss
        if lost or self._process.monotonic() > deadline:
            await asyncio.sleep(max(deadline - self._process.monotonic(), 0.0))
            await self._process.runs()
            raise StoreUnavailable("no answer in time")
        await self._process.runs()
        if error is not None:
            raise error
        return answer  # type: ignore[return-value]

    def _delay(self) -> float:
        return self._draw.choice((0.001, 0.002, 0.005, 0.02, 0.3))

    async def get(self, key: str) -> KeyValue | None:
        """Call the store over the network."""
        return await self._far(lambda: _now(self._near.get(key)))

    async def list(self, prefix: str) -> Listing:
        """Call the store over the network."""
        return await self._far(lambda: _now(self._near.list(prefix)))

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Call the store over the network."""
        self._sent(self._process, compares, writes)
        return await self._far(lambda: _now(self._near.txn(compares, writes)))

    async def grant(self, ttl_s: float) -> Lease:
        """Call the store over the network."""
        sent = self._process.monotonic()
        lease = await self._far(lambda: _now(self._near.grant(ttl_s)))
        self._renewed(self._process, lease.lease_id, sent)
        return lease

    async def keep_alive(self, lease_id: int, *, timeout_s: float | None = None) -> float:
        """Call the store over the network."""
        sent = self._process.monotonic()
        ttl = await self._far(
            lambda: _now(self._near.keep_alive(lease_id)), min(DEADLINE_S, timeout_s or DEADLINE_S)
        )
        if ttl > 0:
            self._renewed(self._process, lease_id, sent)
        return ttl

    async def revoke(self, lease_id: int) -> None:
        """Call the store over the network."""
        await self._far(lambda: _now(self._near.revoke(lease_id)))

    async def compact(self, revision: int) -> None:
        """Call the store over the network."""
        await self._near.compact(revision)

    async def watch(self, prefix: str, start_revision: int) -> AsyncIterator[Batch]:
        """Watch the store; without a network the watch fails, or blocks until the network is back."""
        await self._process.runs()
        async for batch in self._near.watch(prefix, start_revision):
            await asyncio.sleep(self._delay())
            while self.cut:
                if self._draw.random() < 0.3:
                    raise StoreUnavailable("the connection broke")
                await asyncio.sleep(0.5)
            await self._process.runs()
            yield batch

    async def close(self) -> None:
        """Do nothing: the in-memory store stays open."""


def _now(call: object) -> T:  # type: ignore[type-var]
    """Return the result of an in-memory store call, which never waits."""
    try:
        call.send(None)  # type: ignore[attr-defined]
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("the store waited")
