"""One write batch for many changelog records: what it keeps, what it leaves out, when it lets go."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.exceptions import DecodeError
from faust.stores.rocksdb import RocksDBOptions
from faust.types import TP

from faust_assigner.app.restore.batched_replay import run_until_stopped, to_batch
from faust_assigner.app.restore.decoding import ANYTHING, decoding_of
from faust_assigner.app.restore.unreadable import UnreadableRecords
from faust_assigner.snapshots.sst import OFFSET_KEY


def records(*rows: tuple[bytes | None, bytes | None]) -> list[Any]:
    """As aiokafka hands them out, offsets from 0."""
    return [
        SimpleNamespace(key=key, value=value, offset=at, headers=())
        for at, (key, value) in enumerate(rows)
    ]


@pytest.fixture
def database(tmp_path: Path) -> Any:
    """An empty one, as Faust opens it."""
    return RocksDBOptions(use_rocksdict=True).open(tmp_path / "totals-0.db")


@pytest.fixture
async def totals() -> Any:
    """A table of numbers by name."""
    app = faust.App("shop", broker="kafka://127.0.0.1:1", store="memory://", web_enabled=False)
    return app.Table("totals", key_type=str, value_type=int)


async def test_rows_that_do_not_decode_are_left_out(database: Any, totals: Any) -> None:
    """A row of that kind would end the agent that reads it; the last readable one of its key stays."""
    batch, refused = to_batch(
        records(
            (b'"anna"', b"1"),
            (b'"anna"', b"{no json"),
            (b'"ben"', b"2"),
            (b"{no json", b"3"),
            (None, b"4"),
            (b'"ben"', b'"no number"'),
        ),
        6,
        decoding_of(totals),
    )
    database.write(batch)
    assert dict(database.items()) == {b'"anna"': b"1", b'"ben"': b"2", OFFSET_KEY: b"5"}
    assert [offset for offset, *_ in refused] == [1, 3, 4, 5]
    assert all(isinstance(error, DecodeError) for *_, error in refused)


def test_only_none_deletes_a_row(database: Any) -> None:
    """An empty value is a value: a set of flags, an empty text."""
    batch, refused = to_batch(
        records((b"empty", b""), (b"gone", b"1"), (b"gone", None)), 3, ANYTHING
    )
    database.write(batch)
    assert (database.get(b"empty"), database.get(b"gone"), list(refused)) == (b"", None, [])


def test_unreadable_records_are_counted_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Named once a minute, however many there are."""
    app = SimpleNamespace(conf=SimpleNamespace(tabledir=tmp_path))
    unreadable, tp = UnreadableRecords(app), TP("shop-totals-changelog", 3)
    for offset in range(5):
        unreadable(tp, [(offset, b"key", None, DecodeError("bad"))])
    assert unreadable.counts == {tp: 5}
    assert len([record for record in caplog.records if "did not decode" in record.message]) == 1
    lines = (tmp_path / "unreadable" / "shop-totals-changelog-3.jsonl").read_text().splitlines()
    assert [json.loads(line)["offset"] for line in lines] == list(range(5))
    assert json.loads(lines[0])["key"] == "a2V5"


def test_the_last_unreadable_record_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With its own error: it says how far the trouble goes."""
    app = SimpleNamespace(conf=SimpleNamespace(tabledir=tmp_path))
    found = [(offset, b"key", None, DecodeError(f"bad {offset}")) for offset in (7, 8, 9)]
    UnreadableRecords(app)(TP("shop-totals-changelog", 3), found)
    assert "3 records did not decode" in caplog.text
    assert "the last at offset 9: DecodeError('bad 9')" in caplog.text


def test_a_broker_that_does_not_answer_does_not_hold_up_a_stop() -> None:
    """The worker's process waits for this thread."""

    async def silent() -> None:
        await asyncio.sleep(30)

    began = time.monotonic()
    assert run_until_stopped(silent(), lambda: time.monotonic() - began > 0.1) is None
    assert time.monotonic() - began < 10
