"""Files of rows: their boundaries, names and seals, and JSON payloads."""

from __future__ import annotations

import hashlib
import json
import resource
from pathlib import Path
from typing import Any

import pytest
import rocksdict

from faust_assigner.snapshots import arrow_batches, json_rows, layers, seal, sst
from faust_assigner.snapshots.compaction import Compacted, Compactor
from faust_assigner.snapshots.json_rows import AUTO, JSON, RAW, json_types, parse_json
from faust_assigner.snapshots.layers import Base
from faust_assigner.snapshots.manifest import SnapshotError
from faust_assigner.snapshots.sst import (
    OFFSET_KEY,
    SstFile,
    digest_files,
    ingest,
    is_empty,
    read_items,
    scratch_database,
    write_files,
)


def keys_in(path: Path) -> list[bytes]:
    """Return the keys of a file."""
    return [key for key, _ in read_items([path])]


@pytest.mark.parametrize(
    ("limit", "parts"),
    [
        (4, [[b"a"], [b"b"], [b"c", b"d"], [b"e"]]),
        (5, [[b"a", b"b"], [b"c", b"d", b"e"]]),
        (1, [[b"a"], [b"b"], [b"c"], [b"d"], [b"e"]]),
        (99, [[b"a", b"b", b"c", b"d", b"e"]]),
    ],
)
def test_files_are_cut_at_their_bytes_of_keys_and_values(
    tmp_path: Path, limit: int, parts: list[list[bytes]]
) -> None:
    """A file ends with the row that reaches the limit; a deletion counts its key."""
    items = [(b"a", b"123"), (b"b", b"1234"), (b"c", None), (b"d", b"12"), (b"e", b"")]
    found = write_files(items, tmp_path / "new" / "out", max_file_bytes=limit)
    assert [file.keys for file in found] == [len(part) for part in parts]
    assert [keys_in(file.path) for file in found] == [
        [key for key in part if key != b"c"] for part in parts
    ]
    for number, file in enumerate(found):
        data = file.path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        assert file.name == file.path.name == f"{number:06d}-{digest[:16]}.sst"
        assert (file.size, file.path.parent) == (len(data), tmp_path / "new" / "out")
    assert sorted(path.name for path in (tmp_path / "new" / "out").iterdir()) == sorted(
        file.name for file in found
    )


def test_no_rows_are_no_file(tmp_path: Path) -> None:
    """The folder is created anyway."""
    assert write_files(iter(()), tmp_path / "out") == []
    assert list((tmp_path / "out").iterdir()) == []


def test_later_files_win_and_deletions_hide_rows(tmp_path: Path) -> None:
    """Files are ingested in one or two steps; with ``move`` the given files are moved."""
    first = write_files([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], tmp_path / "1")
    second = write_files([(b"a", None), (b"b", b"9")], tmp_path / "2")
    paths = [file.path for file in (*first, *second)]
    assert list(read_items(paths)) == [(b"b", b"9"), (b"c", b"3")]
    assert list(read_items(paths[::-1])) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    with scratch_database(tmp_path) as database:
        assert is_empty(database)
        ingest(database, paths[:1])
        ingest(database, paths[1:], move=True)
        assert list(database.items()) == [(b"b", b"9"), (b"c", b"3")]
        assert (paths[0].exists(), is_empty(database)) == (True, False)
    with scratch_database() as database, pytest.raises(SnapshotError, match=r"gone\.sst"):
        ingest(database, [tmp_path / "gone.sst"])


def test_the_digest_is_of_all_bytes_in_their_order(tmp_path: Path) -> None:
    """The cases include a file larger than a piece, and no file."""
    contents = [b"a" * (2**20 + 7), b"", b"bc"]
    paths = []
    for number, data in enumerate(contents):
        paths.append(tmp_path / str(number))
        paths[-1].write_bytes(data)
    whole = hashlib.sha256(b"".join(contents)).hexdigest()
    assert digest_files(paths) == (whole, 2**20 + 9)
    assert digest_files(paths[::-1])[0] != whole
    assert digest_files([]) == (hashlib.sha256().hexdigest(), 0)


def test_keys_that_do_not_ascend_are_an_error_of_their_file(tmp_path: Path) -> None:
    """Equal keys are an error too."""
    for keys in ((b"b", b"a"), (b"a", b"a")):
        with pytest.raises(SnapshotError, match=r"draft\.sst"):
            write_files([(key, b"") for key in keys], tmp_path)


# -- seals


def draft(path: Path, value: bytes = b"1") -> Path:
    """Write a file as RocksDB does, with its own session id."""
    writer = rocksdict.SstFileWriter(sst.options())
    writer.open(str(path))
    writer[b"a"] = value
    writer.finish()
    return path


def test_a_sealed_file_is_a_function_of_its_rows(tmp_path: Path) -> None:
    """Files with the same rows are equal byte by byte; a second seal changes no byte."""
    one, two, other = draft(tmp_path / "1"), draft(tmp_path / "2"), draft(tmp_path / "3", b"2")
    assert one.read_bytes() != two.read_bytes()
    assert [seal.seal(path) for path in (one, two, other)] == [True] * 3
    data = one.read_bytes()
    assert data == two.read_bytes() != other.read_bytes()
    assert seal.seal(one)
    assert one.read_bytes() == data
    at = data.index(b"session.identity") + len(b"session.identity")
    assert set(data[at : at + 20]) <= set(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    zeroed = bytearray(data)
    zeroed[at : at + 20] = bytes(20)
    start, end = seal._properties_block(bytearray(data)) or (0, 0)
    zeroed[end + 1 : end + 5] = bytes(4)
    number, digits = int.from_bytes(hashlib.sha256(zeroed).digest()[:16], "big"), ""
    for _ in range(20):
        number, digit = divmod(number, 36)
        digits += "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[digit]
    assert data[at : at + 20].decode() == digits
    assert start < at < end


@pytest.mark.parametrize(
    "part", ["magic", "checksum type", "name", "length", "compression", "short"]
)
def test_a_file_of_another_layout_stays_as_it_is(tmp_path: Path, part: str) -> None:
    """The layout differs in the given part."""
    path = draft(tmp_path / "x.sst")
    data = bytearray(path.read_bytes())
    at = data.index(b"session.identity")
    _, end = seal._properties_block(data) or (0, 0)
    if part == "magic":
        data[-1] ^= 1
    elif part == "checksum type":
        data[-53] = 4
    elif part == "name":
        index = data.rindex(b"rocksdb.properties")
        data[index] ^= 1
    elif part == "length":
        data[at - 1] = 21
    elif part == "compression":
        data[end] = 1
    else:
        del data[:-52]
    path.write_bytes(data)
    assert not seal.seal(path)
    assert path.read_bytes() == bytes(data)


@pytest.mark.parametrize(
    ("data", "value", "after"),
    [(b"\x00", 0, 1), (b"\x7f", 127, 1), (b"\x80\x01", 128, 2), (b"\xff\xff\x03rest", 65_535, 3)],
)
def test_a_number_is_read_seven_bits_at_a_time(data: bytes, value: int, after: int) -> None:
    """The least significant bits come first."""
    assert seal._read_varint(data, 0) == (value, after)
    assert seal._read_varint(b"xx" + data, 2) == (value, after + 2)


# -- JSON


def test_many_payloads_are_parsed_as_one() -> None:
    """Each payload yields its value; a payload with two values or half a value is refused."""
    assert parse_json([]) == ()
    assert parse_json([b"1", b'"a"', b"[2,3]", b"null"]) == [1, "a", [2, 3], None]
    fence = json.dumps(json_rows._FENCE).encode()
    for bad in (
        [b"1,2"],
        [b"1", b"2,3"],
        [b"1," + fence + b",2"],
        [b"1," + fence + b",2", b"3"],
        [b"1", b"2," + fence],
    ):
        with_errors: Any = None
        try:
            with_errors = parse_json(bad)
        except ValueError:
            continue
        assert with_errors is None
    calls: list[str] = []
    assert parse_json([b"7"], lambda text: calls.append(text) or [7]) == [7]
    assert calls == ["[7]"]


def test_types_are_those_of_all_payloads() -> None:
    """A boolean is not an int, and NaN is its own type; a bad payload yields no types."""
    payloads = [b"1", b"true", b"2.5", b"null", b'"x"', b"{}", b"[]", b"NaN"]
    assert json_types(payloads) == {
        "int",
        "bool",
        "float",
        "NoneType",
        "str",
        "dict",
        "list",
        "_NonFinite",
    }
    assert json_types([b"-Infinity"]) == {"_NonFinite"}
    assert json_types([]) == frozenset()
    assert json_types([b"1", b"\xff"]) is json_types([b"[" * 100_000]) is json_types([b""]) is None


# -- compaction


def compacted(folder: Path, *batches: tuple[list[Any], list[Any]], **how: Any) -> Compacted:
    """Return the files of these batches."""
    with Compactor(folder, **how) as compactor:
        for keys, values in batches:
            compactor.add(keys, values)
        return compactor.finish(10)


def test_a_compaction_tells_all_of_its_result(tmp_path: Path) -> None:
    """The result has the keys without Faust's own, the bytes, the hash and both columns' types."""
    one = compacted(
        tmp_path,
        ([b'"a"', b'"b"', None], [b"1", b"2", b"3"]),
        ([b'"b"', b"7", b'"c"', b'"d"'], [b'"x"', b"4.5", None, b"{"]),
        codecs=(JSON, JSON),
        max_file_bytes=8,
    )
    assert dict(read_items([file.path for file in one.files])) == {
        b'"a"': b"1",
        b'"b"': b'"x"',
        b"7": b"4.5",
        OFFSET_KEY: b"9",
    }
    assert (one.keys, one.runs, one.unreadable, one.is_whole) == (3, 0, 1, True)
    assert (one.key_types, one.value_types) == ({"str", "int"}, {"int", "str", "float"})
    assert (one.sha256, one.bytes) == digest_files(file.path for file in one.files)
    assert len(one.layers) == 1
    assert len(one.files) > 1


@pytest.mark.parametrize(
    ("codecs", "types"),
    [
        ((RAW, RAW), (None, None)),
        ((JSON, RAW), ({"int"}, None)),
        ((RAW, JSON), (None, {"str"})),
        ((AUTO, AUTO), ({"int"}, {"str"})),
    ],
)
def test_only_checked_columns_have_types(
    tmp_path: Path, codecs: tuple[str, str], types: tuple[Any, Any]
) -> None:
    """Deletions have no types."""
    one = compacted(tmp_path, ([b"1", b"2"], [b'"a"', None]), codecs=codecs)
    assert (one.key_types, one.value_types) == types


def test_each_column_is_decided_by_its_own_first_rows(tmp_path: Path) -> None:
    """More than half of a column's first rows must be invalid JSON; later rows do not matter."""
    bad, good = b"{", b"1"
    one = compacted(
        tmp_path / "1", ([b"1", b"2", b"3", b"4"], [bad, bad, bad, good]), codecs=(AUTO, AUTO)
    )
    assert (one.keys, one.key_types, one.value_types) == (4, {"int"}, None)
    two = compacted(
        tmp_path / "2", ([b"1", b"2", b"3", b"4"], [bad, bad, good, good]), codecs=(AUTO, AUTO)
    )
    assert (two.keys, two.unreadable, two.value_types) == (2, 2, {"int"})


def test_a_snapshot_upon_another_is_not_whole(tmp_path: Path) -> None:
    """A single layer with files of another snapshot is not whole either."""
    keys = [b"%03d" % number for number in range(300)]
    first = compacted(tmp_path / "1", (keys, [key * 10 for key in keys]))
    base = Base(first.layers, first.keys)
    second = compacted(tmp_path / "2", ([b"b"], [b"2"]), base=base)
    assert (second.is_whole, len(second.layers), second.keys) == (False, 2, 301)
    assert first.is_whole
    file = SstFile("00000000000000000001/a.sst", Path("a.sst"), 1, 1)
    layered = Compacted(((file,),), 1, 1, "", 0, None, None, 0)
    assert not layered.is_whole
    assert layered.files == (file,)


def test_deletions_survive_in_the_runs_of_a_change(tmp_path: Path) -> None:
    """A key of the base deleted by a later run is gone; an empty value is a row."""
    first = compacted(tmp_path / "1", ([b"a", b"b", b"c"], [b"1", b"2", b"3"]))
    second = compacted(
        tmp_path / "2",
        ([b"a", b"b"], [b"9", None]),
        ([b"c", b"d"], [b"", b"4"]),
        ([b"a"], [None]),
        base=Base(first.layers, first.keys),
        memory_bytes=0,
    )
    assert second.runs > 1
    rows = dict(read_items([file.path for file in second.files]))
    assert rows == {b"c": b"", b"d": b"4", OFFSET_KEY: b"9"}
    assert second.keys == 2


@pytest.mark.parametrize("bad", [0, 1, 2, 3, 4])
def test_rows_are_checked_and_written_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: int
) -> None:
    """A bad row is found in each piece, and keys ascend across pieces."""
    monkeypatch.setattr(arrow_batches, "_ROWS", 2)
    keys = [b"5", b"3", b"1", b"4", b"2"]
    values = [b"{" if number == bad else b"%d" % number for number in range(5)]
    one = compacted(tmp_path, (keys, values), codecs=(JSON, JSON))
    rows = [(keys[number], values[number]) for number in range(5) if number != bad]
    assert list(read_items([file.path for file in one.files])) == sorted(
        [*rows, (OFFSET_KEY, b"9")]
    )
    assert (one.keys, one.unreadable, one.value_types) == (4, 1, {"int"})


def test_changes_are_compared_with_their_base_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every different row is written, including the last row of each piece."""
    monkeypatch.setattr(layers, "_ROWS", 2)
    keys = [b"%03d" % number for number in range(300)]
    first = compacted(tmp_path / "1", (keys, [key * 10 for key in keys]))
    changed = dict.fromkeys((1, 2, 5), b"new")
    some = [changed.get(number, key * 10) for number, key in enumerate(keys[:7])]
    second = compacted(tmp_path / "2", (keys[:7], some), base=Base(first.layers, first.keys))
    (newest,) = second.layers[1]
    assert dict(read_items([newest.path])) == dict.fromkeys((keys[1], keys[2], keys[5]), b"new")
    assert newest.keys == 3, "the offset is that of the base"


@pytest.mark.parametrize("column", [0, 1])
def test_types_of_rows_that_are_left_out_are_not_told(tmp_path: Path, column: int) -> None:
    """The other column is JSON: with its type known, a worker would read every row."""
    good, bad = [b'"a"', b"7"], [b'"b"', b"{"]
    columns = (good, bad) if column else (bad, good)
    one = compacted(tmp_path, columns, codecs=(JSON, JSON))
    assert (one.keys, one.unreadable) == (1, 1)
    assert (one.key_types, one.value_types) == ({"str"}, {"str"})


def test_a_disk_without_room_for_a_new_database_or_file_is_an_error_of_the_snapshot(
    tmp_path: Path,
) -> None:
    """RocksDB's bare Exception ended the command with a traceback; nothing stays behind."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(SnapshotError, match="too large"), scratch_database(tmp_path):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "draft.sst").mkdir()
    with pytest.raises(SnapshotError, match="IO error"):
        write_files([(b"a", b"1")], tmp_path)
