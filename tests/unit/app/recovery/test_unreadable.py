"""Undecodable records: the records to keep, the size limit, and the rate of log lines."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from aiokafka import TopicPartition
from faust.types import TP

from faust_assigner.app.recovery import unreadable as module
from faust_assigner.app.recovery.batched_replay import to_consumer_record
from faust_assigner.app.recovery.unreadable import UnreadableRecords, keep, reason_of, unreadable_of

HERE, OTHER = TP("log", 3), TP("log", 4)


def bad(offset: int, key: bytes | None = b"k", value: bytes | None = b"v") -> Any:
    """Return a record and its decoding error."""
    return offset, key, value, ValueError(f"bad {offset}")


def lines_in(folder: Path, tp: TP = HERE) -> list[dict[str, Any]]:
    """Return the kept records of a partition."""
    file = folder / module.FOLDER / f"{tp.topic}-{tp.partition}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_record_is_kept_with_all_that_is_needed_to_mend_it(tmp_path: Path) -> None:
    """Key and value are kept in base64 or as null; existing lines stay."""
    keep(tmp_path, HERE, [bad(1), bad(2, None, None)])
    keep(tmp_path, HERE, [bad(3, b"", b"")])
    assert lines_in(tmp_path) == [
        {"offset": 1, "key": "aw==", "value": "dg==", "error": "ValueError('bad 1')"},
        {"offset": 2, "key": None, "value": None, "error": "ValueError('bad 2')"},
        {"offset": 3, "key": "", "value": "", "error": "ValueError('bad 3')"},
    ]


def test_a_file_that_is_large_enough_takes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic full of undecodable records would otherwise fill the disk."""
    monkeypatch.setattr(module, "FILE_BYTES", 100)
    for offset in range(0, 40, 4):
        keep(tmp_path, HERE, [bad(offset + n) for n in range(4)])
    kept = lines_in(tmp_path)
    assert [one["offset"] for one in kept] == list(range(len(kept)))
    size = len(json.dumps(kept[0])) + 1
    assert 100 / size <= len(kept) < 100 / size + 1.5


def test_a_disk_that_takes_nothing_is_logged(tmp_path: Path, caplog: Any) -> None:
    """The restore continues."""
    (tmp_path / module.FOLDER).write_text("a file in the place of the folder")
    keep(tmp_path, HERE, [bad(1)])
    assert "Could not keep the unreadable records" in caplog.text


def test_each_partition_is_logged_by_itself(tmp_path: Path, caplog: Any) -> None:
    """A call without records logs no line."""
    app: Any = SimpleNamespace(conf=SimpleNamespace(tabledir=tmp_path))
    found = unreadable_of(app)
    assert unreadable_of(app) is found
    assert isinstance(found, UnreadableRecords)
    found(HERE, [])
    assert (caplog.records, found.counts) == ([], {})
    found(HERE, [bad(1), bad(2)])
    found(OTHER, [bad(7)])
    found(HERE, [bad(3)])
    assert found.counts == {HERE: 3, OTHER: 1}
    said = [one.getMessage() for one in caplog.records]
    assert [text.partition(" records")[0] for text in said] == [
        "Changelog log-3: 2",
        "Changelog log-4: 1",
    ]


@pytest.mark.parametrize(
    ("key", "value", "is_bad"),
    [
        (b'"a"', b"1", False),
        (b'"a"', None, False),
        (b'"a"', b"{no json", True),
        (b"{no json", b"1", True),
        (b"{no json", None, True),
        (None, b"1", True),
    ],
)
def test_a_row_needs_a_key_and_a_value_that_decode(
    key: bytes | None, value: bytes | None, is_bad: bool
) -> None:
    """A deletion has no value."""
    app = faust.App("shop", broker="kafka://127.0.0.1:1", store="memory://", web_enabled=False)
    reason = reason_of(app.Table("counts", key_type=str, value_type=int))
    found = reason(SimpleNamespace(key=key, value=value, headers=()))
    assert (found is not None) == is_bad


def test_a_bare_record_is_completed_for_a_schema_of_someones_own() -> None:
    """Like a consumer's record it has sizes, with -1 for a missing key or value."""
    record = SimpleNamespace(
        offset=7,
        timestamp=5,
        timestamp_type=1,
        key=b"abc",
        value=None,
        checksum=77,
        headers=[("a", b"b")],
    )
    found = to_consumer_record(TopicPartition("log", 3), record)
    assert (found.topic, found.partition, found.offset) == ("log", 3, 7)
    assert (found.timestamp, found.timestamp_type, found.checksum) == (5, 1, 77)
    assert (found.key, found.value, found.headers) == (b"abc", None, (("a", b"b"),))
    assert (found.serialized_key_size, found.serialized_value_size) == (3, -1)
    record.key, record.value = None, b""
    found = to_consumer_record(TopicPartition("log", 3), record)
    assert (found.serialized_key_size, found.serialized_value_size) == (-1, 0)


def test_a_file_takes_records_until_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record that fills the file is complete; another partition has its own file."""
    keep(tmp_path, HERE, [bad(1)])
    size = (tmp_path / module.FOLDER / "log-3.jsonl").stat().st_size
    monkeypatch.setattr(module, "FILE_BYTES", 2 * size)
    keep(tmp_path, HERE, [bad(2), bad(3), bad(4)])
    keep(tmp_path, OTHER, [bad(5)])
    assert [one["offset"] for one in lines_in(tmp_path)] == [1, 2]
    assert [one["offset"] for one in lines_in(tmp_path, OTHER)] == [5]
    monkeypatch.setattr(module, "FILE_BYTES", 2 * size + 1)
    keep(tmp_path, HERE, [bad(6), bad(7)])
    assert [one["offset"] for one in lines_in(tmp_path)] == [1, 2, 6]


def test_records_of_a_full_disk_are_counted_and_logged_with_their_end(
    tmp_path: Path, caplog: Any
) -> None:
    """The line counts all records since the start, without keys and values."""
    (tmp_path / module.FOLDER).write_text("a file in the place of the folder")
    app: Any = SimpleNamespace(conf=SimpleNamespace(tabledir=str(tmp_path)))
    found = UnreadableRecords(app)
    found(HERE, [bad(4), bad(9, b"secret", b"secret")])
    assert found.counts == {HERE: 2}
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    line = caplog.records[1].getMessage()
    assert line.startswith("Changelog log-3: 2 records did not decode and are skipped")
    assert line.endswith("the last record has offset 9: ValueError('bad 9')")
    assert "secret" not in line
