"""A partition's log whose writes, states and answers become lines, after each step of a story."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from aiokafka.record.default_records import DefaultRecordBatch

from faust_assigner.broker.storage import clean_writes
from faust_assigner.broker.storage.cleaning import CleaningRules, cleanable
from faust_assigner.broker.storage.entries import (
    BATCHES,
    CLEAN,
    ENDED,
    FLOOR,
    HOLE,
    INDEX,
    OFFSET,
    OPEN,
    START,
    Entry,
)
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.reads import available, plan_read
from faust_assigner.broker.storage.records import BadBatch, parse_batch, read_header
from faust_assigner.broker.storage.store import MemoryStore, Range, StoreFailed
from faust_assigner.broker.storage.transactions import ABORTED
from faust_assigner.broker.storage.unpacking import pack
from tests.support.clients.raw_client import batch, keyed_record
from tests.support.logs import find_time, load, newest_time, open_log, read_log

TOPIC = uuid.UUID(int=7).bytes
_NAMES = {BATCHES: "batch", INDEX: "index", START: "start", FLOOR: "floor", OPEN: "open"} | {
    ENDED: "aborted",
    CLEAN: "clean",
}


def key_words(key: bytes) -> str:
    """Return a key of the store in words."""
    kind = _NAMES.get(key[:1])
    if kind is None or len(key) < 21:
        return key.decode(errors="replace")
    (partition,) = struct.unpack_from(">i", key, 17)
    offset = f" {OFFSET.unpack_from(key, 21)[0]}" if len(key) >= 29 else ""
    return f"{kind} of {partition}{offset}{' and beyond' if key[29:] else ''}"


def value_words(key: bytes, value: bytes) -> str:
    """Return a value of the store in words."""
    kind = key[:1] if len(key) >= 21 else b""
    if kind == BATCHES:
        return batch_words(value)
    if kind == INDEX:
        entry = Entry.unpack(value)
        return " ".join(f"{name}={said}" for name, said in entry._asdict().items())
    if kind in (START, OPEN, CLEAN):
        return str(OFFSET.unpack(value)[0])
    if kind == ENDED:
        return f"producer, first, stable {ABORTED.unpack(value)}"
    if kind == FLOOR:
        return f"end {OFFSET.unpack_from(value)[0]}, {list(HOLE.iter_unpack(value[8:]))}"
    return value.decode(errors="replace")


def batch_words(data: bytes) -> str:
    """Return a batch's header and records in words."""
    said = read_header(data)
    head = (
        f"{said.base_offset}+{said.last_delta} attributes {said.attributes} {len(data)} B "
        f"times {said.base_timestamp}-{said.max_timestamp} producer {said.producer_id} "
        f"epoch {said.producer_epoch} sequence {said.base_sequence} count {said.count}"
    )
    with suppress(BadBatch):
        if said.count:
            parse_batch(data)
    if not said.count:
        return f"{head} without records"
    rows = [(r.offset, r.timestamp, r.key, r.value) for r in DefaultRecordBatch(data)]
    return f"{head} {rows}"


class NotedStore(MemoryStore):
    """A store in memory that notes its writes, and may fail."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines
        self.fails = False

    def write(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        ranges: Iterable[Range] = (),
        is_rewrite: bool = False,
    ) -> None:
        """Note a write, and carry it out."""
        if self.fails:
            self._lines.append("  a write fails")
            raise StoreFailed("the disk is full")
        puts, deletes, ranges = list(puts), list(deletes), list(ranges)
        self._lines.append(f"  write{' (a rewrite)' if is_rewrite else ''}")
        for first, beyond, size, known in ranges:
            keys = "" if known is None else f": {', '.join(map(key_words, known()))}"
            self._lines.append(
                f"    delete {size} keys from {key_words(first)} to before {key_words(beyond)}{keys}"
            )
        self._lines += [f"    put {key_words(k)} = {value_words(k, v)}" for k, v in puts]
        self._lines += [f"    delete {key_words(k)}" for k in deletes]
        super().write(puts, deletes, ranges=ranges, is_rewrite=is_rewrite)

    def note_end(self, place: bytes, end: int) -> None:
        """Note an end for the write audit."""
        self._lines.append(f"  audit: the end is {end}")


def state(log: PartitionLog) -> list[str]:
    """Return the state of a log, one line for each part."""
    lines = [
        f"offsets {log.start_offset} to {log.end_offset}, stable {log.stable_offset}, clean to "
        f"{log.cleaned_to}, {log.size} B",
        f"holes {log.holes} accepted {log.accepted} deleted {log.deleted}",
    ]
    lines += [
        f"row {row.base}-{row.following} {row.size} B time {row.max_timestamp}"
        for row in log.index.rows(0, len(log.index))
    ]
    lines += [
        f"producer {pid} epoch {one.epoch} batches {list(one.batches)} seen {one.last_seen_ms} "
        f"coordinator {one.coordinator_epoch} forgotten {one.is_forgotten}"
        for pid, one in log.producers.items()
    ]
    lines.append(f"open {log.transactions.open}")
    lines += [f"aborted {tuple(one)}" for one in log.aborted(0, 10**9)]
    return lines


class Bench:
    """A log and the lines of its story."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.store = NotedStore(self.lines)
        self.log = PartitionLog(self.store, TOPIC, 3)
        self.log.waiters[1] = self._woken
        self.now_ms = 1_000
        self._last: list[str] = []

    def _woken(self) -> None:
        """Note what a waiting fetch finds."""
        states = {
            pid: (one.epoch, one.coordinator_epoch) for pid, one in self.log.producers.items()
        }
        self.note(
            f"a waiter finds the end {self.log.end_offset}, stable {self.log.stable_offset}, {states}"
        )

    def note(self, line: str) -> None:
        """Add a line."""
        self.lines.append(f"  {line}")

    def step(self, title: str, work: Callable[[], object] = lambda: None) -> None:
        """Do something; note its answer, the new lines of the state, and a restored log's others."""
        self.lines.append(f"-- {title}")
        try:
            answer = work()
        except (StoreFailed, ValueError) as error:
            answer = f"{type(error).__name__}: {error}"
        if answer is not None:
            self.note(f"answer {answer}")
        now = state(self.log)
        self.lines += [f"  gone {line}" for line in self._last if line not in now]
        self.lines += [f"  {line}" for line in now if line not in self._last]
        self._last = now
        again = state(open_log(self.store, TOPIC, 3))
        self.lines += [f"  a restart forgets {line}" for line in now if line not in again]
        self.lines += [f"  a restart has {line}" for line in again if line not in now]
        if sorted(again) == sorted(now) and again != now:
            self.note("a restart has another order")

    def restart(self) -> None:
        """Begin a second life over the same store."""
        self.lines.append("-- restart")
        self.log = open_log(self.store, TOPIC, 3)
        self.log.waiters[1] = self._woken
        self._last = state(self.log)
        self.lines += [f"  {line}" for line in self._last]

    def append(self, *pairs: tuple[bytes | None, bytes | None], **header: int) -> int | str:
        """Judge a batch as the broker does, and append it; return its offset or the refusal."""
        codec = header.pop("codec", 0)
        body = b"".join(
            keyed_record(k, v, offset_delta=n, time_delta=3 * n) for n, (k, v) in enumerate(pairs)
        )
        header.setdefault("timestamp", self.now_ms)
        data = batch(
            pack(codec, body) if codec else body,
            count=len(pairs),
            attributes=header.pop("attributes", 0) | codec,
            **header,
        )
        said = parse_batch(data)
        verdict = self.log.producers.judge(said)
        if verdict.duplicate_of is not None:
            return f"a duplicate of {verdict.duplicate_of}"
        if verdict.error:
            return verdict.error.name
        return self.log.append(said, data, self.now_ms)

    def ends(self, producer_id: int, epoch: int, *, commits: bool) -> str:
        """End a transaction as its coordinator does."""
        ending = self.log.end_transaction(producer_id, epoch, self.now_ms, commits=commits)
        self.store.write(ending.puts, ending.deletes)
        ending.stored()
        return "ended"

    def clean(self, rules: CleaningRules, max_keys: int = 1_000) -> str:
        """Run a compaction pass; return what it found and freed."""
        found = cleanable(self.log, rules, self.now_ms)
        if found is None:
            return "nothing to clean"
        work = clean_writes.begin(self.log, found, rules, self.now_ms, max_keys)
        while work.map_some():
            pass
        freed = 0
        while (chunk := work.clean_some()) is not None:
            freed += clean_writes.apply(self.log, chunk)
        clean_writes.end(self.log, work)
        return f"{tuple(found)}, {freed} B freed"

    def reads(self, offsets: Sequence[int], sizes: Sequence[int] = (0, 100, 10_000)) -> None:
        """Note the answers of reads from these offsets, with these limits."""
        self.lines.append("-- reads")
        for offset in offsets:
            for size in sizes:
                for whole in (True, False):
                    self.note(f"{offset}, {size} B, {whole}: {self._read(offset, size, whole)}")
            for beyond in (offset, offset + 1, offset + 3):
                plan = plan_read(self.log, offset, 10_000, at_least_one=True, beyond=beyond)
                bases = plan and [OFFSET.unpack_from(key, 21)[0] for key in plan.keys]
                said = plan and (plan.first, plan.size, plan.beyond, plan.cleanings)
                aborted = [tuple(one) for one in self.log.aborted(offset, beyond)]
                there = available(self.log, offset, beyond)
                self.note(f"{offset} before {beyond}: {bases} {said} {there} B aborted {aborted}")

    def _read(self, offset: int, size: int, whole: bool) -> str:
        try:
            data = read_log(self.log, offset, size, at_least_one=whole)
        except StoreFailed as error:
            return f"{error}"
        return f"{len(data)} B, batches {list(_bases(data))}"

    def times(self, *timestamps: int) -> None:
        """Note the answers to questions for times."""
        self.lines.append("-- times")
        for timestamp in timestamps:
            self.note(f"{timestamp}: {find_time(self.log, timestamp)}")
        self.note(f"newest: {newest_time(self.log)}")

    def planned(self, offset: int) -> Callable[[], str]:
        """Plan a read now; return a function that loads its batches later."""
        plan = plan_read(self.log, offset, 10_000, at_least_one=True)
        assert plan is not None
        from faust_assigner.broker.storage.reads import present_batches

        def later() -> str:
            data = b"".join(present_batches(self.log, load(self.log, plan), plan))
            return f"{len(data)} B, batches {list(_bases(data))}"

        return later


def _bases(data: bytes) -> Iterator[int]:
    position = 0
    while position < len(data):
        base, length = struct.unpack_from(">qi", data, position)
        yield base
        position += length + 12
