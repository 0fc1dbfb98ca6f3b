"""The parts around an instance whose effects become lines: its store, metrics, log and messages."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from faust_assigner.service.metrics import Metrics
from faust_assigner.service.store.base import Batch, Compare, Lease, Listing, Put, TxnResult, Write
from faust_assigner.service.store.memory import MemoryStore

PREFIX = "/g/"
#: Seconds that a call of the store takes, half of them before the store carries it out.
CALL_S = 0.004

Note = Callable[[str], None]


def worded(value: object) -> str:
    """Return a message, or a part of one, on one line: the fields that are set, in their order."""
    if isinstance(value, Message):
        fields = []
        for field, said in value.ListFields():
            shown = worded(said)
            if field.enum_type is not None:
                shown = field.enum_type.values_by_number[said].name
            fields.append(f"{field.name}={shown}")
        return "{" + " ".join(fields) + "}"
    if isinstance(value, str):
        return value or '""'
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1e6 else f"{value:.3f}"
    if isinstance(value, int | bytes):
        return str(value)
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(worded, value)) + "]"
    return str(value)


def document(value: bytes) -> str:
    """Return a stored value as text, without the quotes of JSON."""
    try:
        said = json.loads(value)
    except ValueError:
        return value.decode(errors="replace")
    return json.dumps(said).replace('"', "")


def _compared(compare: Compare) -> str:
    return f"{compare.key.removeprefix(PREFIX)}.{compare.field.value}={_shown(compare.expected)}"


def _shown(expected: object) -> str:
    return document(expected) if isinstance(expected, bytes) else str(expected)


def _written(write: Write) -> str:
    key = write.key.removeprefix(PREFIX)
    if not isinstance(write, Put):
        return f"delete {key}"
    bound = f" lease {write.lease}" if write.lease else ""
    return f"put {key}{bound}: {document(write.value)}"


class SharedStore(MemoryStore):
    """The store of all instances; it notes the leases that end, with their keys."""

    def __init__(self, note: Note, **more: Any) -> None:
        super().__init__(**more)
        self._note = note

    def _end(self, lease_id: int) -> None:
        lease = self._leases.get(lease_id)
        if lease is not None:
            keys = ", ".join(key.removeprefix(PREFIX) for key in sorted(lease.keys)) or "no key"
            self._note(f"store: lease {lease_id} ends with {keys}")
        super()._end(lease_id)

    def restore(self, revision: int, keys: Mapping[str, Any]) -> None:
        """Go back to an earlier revision with these keys, as from a snapshot of etcd."""
        self._note(f"store: restored at {revision}")
        self._keys, self.revision, self._log = dict(keys), revision, []
        self.compacted = min(self.compacted, revision)

    def keys(self) -> dict[str, Any]:
        """Return a copy of all keys."""
        return dict(self._keys)


class RecordedStore:
    """One instance's connection to the store. Every write and call of a lease becomes a line.

    ``fails``: operation -> the outcomes of its next calls: None, an error instead of the call, or
    an error after the call. ``is_cut``: every call waits, and then fails.
    """

    def __init__(self, who: str, store: SharedStore, note: Note) -> None:
        self._who, self._store, self._note = who, store, note
        self.fails: defaultdict[str, list[tuple[str, Exception] | None]] = defaultdict(list)
        self.cut: Exception | None = None
        #: Keys that another instance rewrites just before the next write that compares them.
        self.contested: list[str] = []

    async def _call(self, operation: str, said: str, work: Callable[[], Any]) -> Any:
        planned = self.fails[operation].pop(0) if self.fails[operation] else None
        await asyncio.sleep(CALL_S / 2)
        said = f"{self._who} {operation} {said}".rstrip()
        if self.cut is not None or (planned and planned[0] == "before"):
            error = self.cut or (planned[1] if planned else None)
            assert error is not None
            self._note(f"{said} -> not done: {error}")
            raise error
        try:
            answer = await work()
        except Exception as error:
            self._note(f"{said} -> {type(error).__name__}: {error}")
            raise
        if operation not in ("get", "list"):
            self._note(f"{said}{_answered(answer)}")
        await asyncio.sleep(CALL_S / 2)
        if planned is not None:
            self._note(f"{self._who} {operation} done, but without an answer: {planned[1]}")
            raise planned[1]
        return answer

    async def get(self, key: str) -> Any:
        """Read a key."""
        return await self._call("get", key, lambda: self._store.get(key))

    async def list(self, prefix: str) -> Listing:
        """List keys."""
        found: Listing = await self._call("list", prefix, lambda: self._store.list(prefix))
        return found

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Write."""
        said = "; ".join(map(_written, writes))
        if compares:
            said = f"if {', '.join(map(_compared, compares))}: {said}"

        async def work() -> TxnResult:
            for key in sorted({compare.key for compare in compares} & {*self.contested}):
                kv = await self._store.get(key)
                if kv is not None:
                    self.contested.remove(key)
                    self._note(f"{self._who} is too late: {key.removeprefix(PREFIX)} is rewritten")
                    await self._store.txn([], [Put(key, kv.value, kv.lease)])
            return await self._store.txn(compares, writes)

        found: TxnResult = await self._call("txn", said, work)
        return found

    async def watch(self, prefix: str, start_revision: int) -> AsyncIterator[Batch]:
        """Watch keys; the events arrive a little later."""
        self._note(f"{self._who} watch from {start_revision}")
        async for batch in self._store.watch(prefix, start_revision):
            await asyncio.sleep(CALL_S / 4)
            while self.cut is not None:
                await asyncio.sleep(0.1)
            if self.fails["watch"] and (planned := self.fails["watch"].pop(0)):
                self._note(f"{self._who} watch breaks before {batch.revision}: {planned[1]}")
                raise planned[1]
            yield batch

    async def grant(self, ttl_s: float) -> Lease:
        """Grant a lease."""
        found: Lease = await self._call("grant", f"{ttl_s:g} s", lambda: self._store.grant(ttl_s))
        return found

    async def keep_alive(self, lease_id: int, *, timeout_s: float | None = None) -> float:
        """Renew a lease."""
        left = "" if timeout_s is None else f" within {timeout_s:.3f} s"
        found: float = await self._call(
            "keep_alive", f"{lease_id}{left}", lambda: self._store.keep_alive(lease_id)
        )
        return found

    async def revoke(self, lease_id: int) -> None:
        """End a lease."""
        await self._call("revoke", f"{lease_id}", lambda: self._store.revoke(lease_id))

    async def compact(self, revision: int) -> None:
        """Forget the history."""
        await self._store.compact(revision)

    async def close(self) -> None:
        """Leave the shared store open."""


def _answered(answer: object) -> str:
    if isinstance(answer, TxnResult):
        return f" -> {answer.revision}" if answer.succeeded else f" -> refused at {answer.revision}"
    if isinstance(answer, Lease):
        return f" -> lease {answer.lease_id} of {answer.ttl_s:g} s"
    return "" if answer is None else f" -> {answer}"


class RecordedMetrics(Metrics):
    """The metrics of one instance; a gauge has a line only when it changes."""

    def __init__(self, who: str, note: Note) -> None:
        self._who, self._note = who, note
        self._last: dict[str, object] = {}

    def _gauge(self, name: str, value: object) -> None:
        if self._last.get(name) != value:
            self._last[name] = value
            self._note(f"{self._who} metric {name} {value}")

    def leading(self, leads: bool) -> None:
        """Note a term's begin or end."""
        self._gauge("leading", leads)

    def handoffs(self, ages_s: Mapping[str, Sequence[float]]) -> None:
        """Note the numbers of hand-offs by phase, with the oldest age at that time."""
        counts = {phase: len(ages) for phase, ages in ages_s.items()}
        if self._last.get("handoffs") != counts:
            self._last["handoffs"] = counts
            oldest = {phase: f"{len(a)} (oldest {max(a):.3f} s)" for phase, a in ages_s.items()}
            self._note(f"{self._who} metric handoffs {oldest}")

    def handoff_ended(self, outcome: str, took_s: float) -> None:
        """Note an end."""
        self._note(f"{self._who} metric handoff {outcome} after {took_s:.3f} s")

    def stuck(self, count: int) -> None:
        """Note stuck consumers."""
        self._gauge("stuck", count)

    def rebalanced(self, moves: int, took_s: float) -> None:
        """Note a plan."""
        self._note(f"{self._who} metric plan with {moves} moves took {took_s:.3f} s")

    def stream_resynced(self, consumer_name: str) -> None:
        """Note an overflow."""
        self._note(f"{self._who} metric resynced {consumer_name}")

    def holdings_repaired(self) -> None:
        """Note a repair."""
        self._note(f"{self._who} metric repaired")

    def streams(self, count: int) -> None:
        """Note the number of streams."""
        self._gauge("streams", count)


class Lines(logging.Handler):
    """The log of the service as lines."""

    def __init__(self, note: Note) -> None:
        super().__init__(logging.INFO)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        """Note the level and the text; of a traceback only the error."""
        error = f" ({record.exc_info[1]!r})" if record.exc_info else ""
        self._note(f"log {record.levelname} {record.getMessage()}{error}")
