"""Pending rows over files, against dicts: Faust's tables on RocksDB, with a fake changelog."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from faust_assigner.app.tables.changes import Overlay, Usage
from faust_assigner.app.transactions.shares import Share
from tests.support.examples import examples
from tests.support.made_up_tables import MadeUp, answer, done, process

PARTITIONS = range(2)
LINES = ("one", "other")
OFFSET = b"__faust\0offset__"
KEYS = st.sampled_from("abcd")
Rows = dict[bytes, bytes]


@dataclass
class Made:
    """A change in the model, with the state of its changelog record."""

    record: Any
    share: Share | None
    line: str
    offset: int | None = None
    told: bool = False
    gone: bool = False

    @property
    def counts(self) -> bool:
        """Whether committed readers see the change."""
        return (
            self.offset is not None
            and not self.gone
            and (self.share is None or self.share.committed)
        )


def fold(rows: Rows, changes: Any) -> Rows:
    """Return ``rows`` after ``changes``."""
    rows = dict(rows)
    for made in changes:
        message = made.record.message
        if message.value is None:
            rows.pop(message.key, None)
        else:
            rows[message.key] = message.value
    return rows


class Place:
    """A partition of a table: all changes in order, and its changelog."""

    def __init__(self) -> None:
        self.made: list[Made] = []
        self.end = 0

    def log(self, to: int) -> Rows:
        """Return the rows seen by committed readers up to an offset."""
        return fold(
            {},
            sorted((m for m in self.made if m.counts and m.offset <= to), key=lambda m: m.offset),
        )

    def view(self, to: int) -> Rows:
        """Return the rows seen by a worker with a file at the offset."""
        waiting = [m for m in self.made if not m.gone and not (m.counts and m.offset <= to)]
        return fold(self.log(to), waiting)


class Tables(RuleBasedStateMachine):
    """Two tables, one windowed; with ``exactly_once`` changes belong to transactions."""

    exactly_once = False

    @initialize()
    def begin(self) -> None:
        """Start with an empty disk."""
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.folder = Path(tempfile.mkdtemp())
        self.places: dict[tuple[str, int], Place] = {}
        self.shares: dict[str, Share] = {}
        self.line = LINES[0]
        self.live()

    def live(self) -> None:
        """Start a process on the existing files and restore its tables."""
        share = self.share if self.exactly_once else None
        self.made_up = MadeUp(self.folder, "plain", "windowed", share=share)
        self.app, self.sent, self.tables = self.made_up.app, self.made_up.sent, self.made_up.tables
        self.windows = self.tables["windowed"].tumbling(10.0)
        for name, table in self.tables.items():
            for partition in PARTITIONS:
                self.places.setdefault((name, partition), Place())
                self.replay(name, partition)
                table.data.flushing.resume(partition)

    def share(self) -> Share | None:
        """Return the open transaction of ``self.line``."""
        if not self.exactly_once:
            return None
        if self.line not in self.shares:
            self.shares[self.line] = self.loop.run_until_complete(_share(self.line))
        return self.shares[self.line]

    def replay(self, name: str, partition: int) -> None:
        """Apply the changelog records missing in the file."""
        store, place = self.tables[name].data, self.places[name, partition]
        known = self.offset(name, partition)
        store.apply_changelog_batch(
            [
                SimpleNamespace(
                    message=SimpleNamespace(
                        tp=TP("log", partition),
                        partition=partition,
                        offset=made.offset,
                        key=made.record.message.key,
                        value=made.record.message.value,
                    )
                )
                for made in sorted(
                    (m for m in place.made if m.counts and m.offset > known), key=lambda m: m.offset
                )
            ],
            None,
            None,
        )

    def offset(self, name: str, partition: int) -> int:
        """Return the offset of the file."""
        found = self.tables[name].data.persisted_offset(TP("log", partition))
        return -1 if found is None else found

    # -- agents

    def note(self, name: str) -> None:
        """Add the sent records to the model."""
        while self.sent:
            record = self.sent.popleft()
            self.places[name, record.message.partition].made.append(
                Made(record, self.share(), self.line if self.exactly_once else "")
            )
        done()

    def choose(self, line: str) -> None:
        """Choose the producer; at-least-once has a single producer."""
        self.line = line if self.exactly_once else LINES[0]

    @rule(
        partition=st.sampled_from(PARTITIONS),
        key=KEYS,
        value=st.integers(0, 9),
        line=st.sampled_from(LINES),
    )
    def put(self, partition: int, key: str, value: int, line: str) -> None:
        """Put a row."""
        self.choose(line)
        process(partition)
        self.tables["plain"][key] = value
        self.note("plain")

    @rule(
        partition=st.sampled_from(PARTITIONS),
        values=st.dictionaries(KEYS, st.integers(0, 9), min_size=1),
    )
    def update(self, partition: int, values: dict[str, int]) -> None:
        """Faust sends all records and then fails; the rows must equal the changelog."""
        process(partition)
        with pytest.raises(AttributeError):
            self.tables["plain"].update(values)
        self.note("plain")

    @rule(partition=st.sampled_from(PARTITIONS), key=KEYS, line=st.sampled_from(LINES))
    def delete(self, partition: int, key: str, line: str) -> None:
        """Delete a row that may not exist."""
        self.choose(line)
        process(partition)
        del self.tables["plain"][key]
        self.note("plain")

    @rule(
        partition=st.sampled_from(PARTITIONS),
        key=KEYS,
        value=st.integers(0, 9),
        timestamp=st.sampled_from([5.0, 15.0]),
    )
    def put_in_window(self, partition: int, key: str, value: int, timestamp: float) -> None:
        """Put a row of a window."""
        event = process(partition, timestamp)
        self.windows[key] = value
        assert self.windows[key].value(event) == value
        self.note("windowed")

    # -- the broker

    def line_of(self, name: str, partition: int, line: str) -> list[Made]:
        """Return a producer's records for the partition, without dropped records."""
        return [
            m
            for m in self.places[name, partition].made
            if not m.gone and (m.line == line or not self.exactly_once)
        ]

    @rule(
        place=st.sampled_from([("plain", 0), ("plain", 1), ("windowed", 0)]),
        line=st.sampled_from(LINES),
        count=st.integers(1, 5),
    )
    def append(self, place: tuple[str, int], line: str, count: int) -> None:
        """Append a producer's next records to the changelog, without an answer yet."""
        for made in [m for m in self.line_of(*place, line) if m.offset is None][:count]:
            made.offset, self.places[place].end = self.places[place].end, self.places[place].end + 1

    @rule(
        place=st.sampled_from([("plain", 0), ("plain", 1), ("windowed", 0)]),
        line=st.sampled_from(LINES),
        count=st.integers(1, 5),
    )
    def tell(self, place: tuple[str, int], line: str, count: int) -> None:
        """Answer a producer's appended records."""
        waiting = [m for m in self.line_of(*place, line) if m.offset is not None and not m.told]
        self.answer(place, waiting[:count])

    def answer(self, place: tuple[str, int], all_made: list[Made]) -> None:
        """Deliver the answers and check the callback."""
        store = self.tables[place[0]].data

        if all_made:
            assert all_made[0].record.message.callback == store.arrived
            for made in all_made:
                made.told = True
            self.loop.run_until_complete(answer(*((made.record, made.offset) for made in all_made)))

    @precondition(lambda self: self.exactly_once)
    @rule(line=st.sampled_from(LINES))
    def commit(self, line: str) -> None:
        """Commit a transaction; a commit first waits for all answers."""
        for place in self.places:
            for made in [m for m in self.line_of(*place, line) if m.offset is None]:
                made.offset, self.places[place].end = (
                    self.places[place].end,
                    self.places[place].end + 1,
                )
            self.answer(place, [m for m in self.line_of(*place, line) if not m.told])
        if (share := self.shares.pop(line, None)) is not None:
            share.commit()
        for place in self.places.values():
            place.end += 1  # the transaction's marker

    @precondition(lambda self: self.exactly_once)
    @rule(line=st.sampled_from(LINES))
    def abort(self, line: str) -> None:
        """Abort a transaction: none of its changes count."""
        if (share := self.shares.pop(line, None)) is not None:
            share.abandon()
            for place in self.places.values():
                for made in place.made:
                    made.gone = made.gone or made.share is share

    # -- the worker

    @rule(resumes=st.booleans())
    def hold(self, resumes: bool) -> None:
        """Hold the stores, as on a full disk, and replay the changelogs."""
        for name, partition in self.places:
            store = self.tables[name].data
            store.flushing.hold()
            self.replay(name, partition)
            if resumes:
                store.flushing.resume(partition)

    @rule()
    def resume(self) -> None:
        """Resume writing to the files."""
        for name, partition in self.places:
            self.replay(name, partition)
            self.tables[name].data.flushing.resume(partition)

    @rule(stops=st.booleans())
    def die(self, stops: bool) -> None:
        """Restart the process: changes missing in a changelog or uncommitted are lost."""
        for table in self.tables.values():
            if stops:
                table.data.flushing.discard()
        self.made_up.close()
        for place in self.places.values():
            for made in place.made:
                # no process is waiting
                made.gone, made.told = made.gone or not made.counts, True
        self.shares.clear()
        self.live()

    # -- invariants

    @invariant()
    def files_are_their_changelogs(self) -> None:
        """A file equals its changelog folded up to the file's offset."""
        for (name, partition), place in getattr(self, "places", {}).items():
            rows = dict(self.tables[name].data._db_for_partition(partition).items())
            offset = int(rows.pop(OFFSET, b"-1"))
            assert rows == place.log(offset)

    @invariant()
    def readers_see_all_changes(self) -> None:
        """Readers see all changes by key, in iteration and in counts."""
        for (name, partition), place in getattr(self, "places", {}).items():
            store, expected = self.tables[name].data, place.view(self.offset(name, partition))
            process(partition)
            seen = {key: store._get(key) for key in {m.record.message.key for m in place.made}}
            assert {key: value for key, value in seen.items() if value is not None} == expected
            assert all(store._contains(key) == (value is not None) for key, value in seen.items())
            database = store._db_for_partition(partition)
            assert list(store._visible_items(database)) == sorted(expected.items())
            assert list(store._visible_keys(database)) == sorted(expected)
            assert list(store._visible_values(database)) == [
                value for _, value in sorted(expected.items())
            ]
            done()
        for name, table in getattr(self, "tables", {}).items():
            views = [self.places[name, p].view(self.offset(name, p)) for p in PARTITIONS]
            assert len(table.data) == sum(map(len, views))
            for key in {key for view in views for key in view}:
                assert table.data._get(key) in [view[key] for view in views if key in view]

    @invariant()
    def nothing_waits_without_a_reason(self) -> None:
        """No change waits without a reason, and the usage counts exactly the waiting changes."""
        for (name, partition), place in getattr(self, "places", {}).items():
            overlay = self.tables[name].data.overlays[partition]
            if overlay.lands and all(m.gone or (m.counts and m.told) for m in place.made):
                assert len(overlay) == 0
                end = max((m.offset for m in place.made if m.counts), default=-1)
                assert self.offset(name, partition) == end
        if hasattr(self, "tables"):
            waiting = [o for table in self.tables.values() for o in table.data.overlays.values()]
            assert self.app.tables.overlay_usage.changes == sum(map(len, waiting))
            assert (self.app.tables.overlay_usage.bytes == 0) == (not any(waiting))

    def teardown(self) -> None:
        """Close and remove the tables."""
        if hasattr(self, "tables"):
            self.made_up.close()
            shutil.rmtree(self.folder)
            asyncio.set_event_loop(None)
            self.loop.close()


async def _share(line: str) -> Share:
    return Share(line, begun=True)


class Transactional(Tables):
    """Two transactional ids change the same partitions, interleaved in the changelog."""

    exactly_once = True


TestTables = pytest.mark.timeout(240)(Tables.TestCase)
TestTables.settings = settings(max_examples=examples(60, 5), stateful_step_count=20, deadline=None)
TestTransactional = pytest.mark.timeout(240)(Transactional.TestCase)
TestTransactional.settings = settings(
    max_examples=examples(60, 5), stateful_step_count=20, deadline=None
)

ROWS = st.dictionaries(st.binary(max_size=2), st.binary(max_size=2), max_size=8)
CHANGES = st.lists(st.tuples(st.binary(max_size=2), st.none() | st.binary(max_size=2)), max_size=12)
ENDS = st.none() | st.binary(max_size=2)


@given(rows=ROWS, changes=CHANGES, start=ENDS, stop=ENDS)
def test_a_range_is_that_of_the_rows_after_the_changes(
    rows: Rows, changes: list[tuple[bytes, bytes | None]], start: bytes | None, stop: bytes | None
) -> None:
    """The rows are in the order of keys; empty values are values."""
    overlay, expected = Overlay(Usage(1, 1)), dict(rows)
    for key, value in changes:
        overlay.put(key, value)
        if value is None:
            expected.pop(key, None)
        else:
            expected[key] = value
    assert list(overlay.over(sorted(rows.items()), start, stop)) == [
        (key, value)
        for key, value in sorted(expected.items())
        if (start is None or key >= start) and (stop is None or key < stop)
    ]
