"""Compaction keeps the last value per key, in memory or through sorted runs."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
import rocksdict
from hypothesis import given, settings
from hypothesis import strategies as st

from faust_assigner.snapshots import arrow_batches, compaction
from faust_assigner.snapshots.compaction import Compacted, Compactor
from faust_assigner.snapshots.json_rows import AUTO, JSON
from faust_assigner.snapshots.layers import Base
from faust_assigner.snapshots.manifest import SnapshotError
from faust_assigner.snapshots.sst import (
    OFFSET_KEY,
    ingest,
    is_empty,
    read_items,
    scratch_database,
    write_files,
)
from tests.support.examples import examples

Record = tuple[bytes | None, bytes | None]
KEYS = st.sampled_from(
    [b"a", b"b", b"ba", b"c", b"\x00", b"\xff\xff", b"", b"__faust", b"zz", None]
)
RECORDS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=4)), max_size=40)


def state_of(records: list[Record]) -> dict[bytes, bytes]:
    """Return the model's state, a dict."""
    state: dict[bytes, bytes] = {}
    for key, value in records:
        if key is not None and value is None:
            state.pop(key, None)
        elif key is not None:
            state[key] = value
    return state


def compact(
    folder: Path,
    records: list[Record],
    *,
    base: Compacted | None = None,
    memory: int = 1 << 30,
    next_offset: int | None = None,
    batch: int = 5,
    file_bytes: int = 1 << 20,
    codecs: tuple[str, str] = ("raw", "raw"),
) -> Compacted:
    """Run ``records`` through a compactor in batches."""
    with Compactor(
        folder,
        base=Base(base.layers, base.keys) if base else None,
        memory_bytes=memory,
        max_file_bytes=file_bytes,
        codecs=codecs,
    ) as compactor:
        for start in range(0, len(records), batch):
            part = records[start : start + batch]
            compactor.add([key for key, _ in part], [value for _, value in part])
        return compactor.finish(len(records) if next_offset is None else next_offset)


def contents(compacted: Compacted) -> dict[bytes, bytes]:
    """Return the rows of a store made from the files."""
    return dict(read_items([file.path for file in compacted.files]))


@settings(max_examples=examples(60, 10), deadline=None)
@given(before=RECORDS, after=RECORDS, memory=st.sampled_from([0, 700, 1 << 30]))
def test_any_records_give_the_models_state(
    tmp_path_factory: pytest.TempPathFactory, before: list[Record], after: list[Record], memory: int
) -> None:
    """A full compaction, runs, and a compaction upon a snapshot yield the same rows."""
    folder = tmp_path_factory.mktemp("compaction")
    whole = compact(folder / "whole", before + after, memory=memory)
    first = compact(folder / "first", before)
    second = compact(
        folder / "second", after, base=first, memory=memory, next_offset=len(before + after)
    )
    expected = state_of(before + after)
    offset = str(len(before + after) - 1).encode()
    assert contents(whole) == expected | {OFFSET_KEY: offset}
    assert whole.keys == len(expected)
    assert (contents(second), second.keys) == (contents(whole), whole.keys)


def test_a_partition_larger_than_memory_is_merged_from_runs(tmp_path: Path) -> None:
    """Runs are written, the newest value wins, and the files equal those of the fast path."""
    records: list[Record] = [
        (b"key-%05d" % (n * 7919 % 5000), b"value-%d" % n) for n in range(20_000)
    ]
    records += [(b"key-%05d" % n, None) for n in range(0, 5000, 3)]
    spilled = compact(tmp_path / "spilled", records, memory=100_000, batch=500)
    roomy = compact(tmp_path / "roomy", records)
    assert spilled.runs > 5
    assert roomy.runs == 0
    assert spilled.sha256 == roomy.sha256
    assert spilled.keys == len(state_of(records))


@pytest.mark.parametrize("distinct", [200, 40_000])
def test_memory_stays_within_its_bound(tmp_path: Path, distinct: int) -> None:
    """The case measures Arrow's peak beyond the current batch, with unique and repeated keys."""
    memory, rows = 3_000_000, 1000
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        with Compactor(tmp_path, memory_bytes=memory) as compactor:
            for start in range(0, 100_000, rows):
                numbers = [n * 7919 % distinct for n in range(start, start + rows)]
                compactor.add(
                    pa.array([b"key-%05d" % n for n in numbers], pa.binary()),
                    pa.array([b"%0100d" % n for n in numbers], pa.binary()),
                )
            compacted = compactor.finish(100_000)
    finally:
        pa.set_memory_pool(before)
    assert compacted.keys == distinct
    assert (compacted.runs > 0) == (distinct * 112 > memory)
    assert pool.max_memory() < memory + 2 * rows * 112


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary()])
def test_arrow_columns_and_lists_give_the_same_files(tmp_path: Path, kind: pa.DataType) -> None:
    """Spark passes Arrow and aiokafka passes records; slices of an array count from their start."""
    keys, values = [b"b", None, b"a", b"b", b"c"], [b"1", b"2", b"3", None, b"4"]
    plain = compact(tmp_path / "plain", list(zip(keys, values, strict=True)))
    with Compactor(tmp_path / "arrow") as compactor:
        columns = [
            pa.array([b"junk", *items], pa.binary()).cast(kind).slice(1) for items in (keys, values)
        ]
        compactor.add(*columns)
        assert compactor.finish(5).sha256 == plain.sha256


def test_files_are_split_by_size_and_do_not_overlap(tmp_path: Path) -> None:
    """The files ascend and together hold the whole state; a store ingests them in a single step."""
    records: list[Record] = [(b"key-%05d" % n, b"x" * 100) for n in range(1000)]
    compacted = compact(tmp_path, records, file_bytes=10_000)
    assert len(compacted.files) > 5
    previous = b""
    for file in compacted.files:
        keys = [key for key, _ in read_items([file.path])]
        assert previous < keys[0]
        previous = keys[-1]
    with scratch_database() as database:
        assert is_empty(database)
        ingest(database, [file.path for file in compacted.files])
        assert not is_empty(database)
        assert database.get(b"key-00777") == b"x" * 100
        assert database.get(OFFSET_KEY) == b"999"


def test_an_empty_partition_has_only_its_offset(tmp_path: Path) -> None:
    """Faust reads -1 as "no offset yet"."""
    compacted = compact(tmp_path, [])
    assert contents(compacted) == {OFFSET_KEY: b"-1"}
    assert compacted.keys == 0


def test_a_record_that_poses_as_the_offset_key_is_dropped(tmp_path: Path) -> None:
    """Only the compactor writes the offset."""
    compacted = compact(tmp_path, [(OFFSET_KEY, b"9999"), (b"a", b"1")])
    assert contents(compacted) == {OFFSET_KEY: b"1", b"a": b"1"}


def test_identical_contents_give_identical_bytes(tmp_path: Path) -> None:
    """A rerun yields the same file names and bytes."""
    records: list[Record] = [(b"key-%d" % n, b"value") for n in range(500)]
    one, two = compact(tmp_path / "one", records), compact(tmp_path / "two", records[::-1])
    assert [file.path.read_bytes() for file in one.files] == [
        file.path.read_bytes() for file in two.files
    ]
    assert [file.name for file in one.files] == [file.name for file in two.files]


def test_different_contents_have_different_session_ids(tmp_path: Path) -> None:
    """RocksDB's block cache distinguishes files by the session id."""
    marker = b"session.identity"
    identities = set()
    for value in (b"1", b"2"):
        compacted = compact(tmp_path / value.decode(), [(b"a", value)])
        data = compacted.files[0].path.read_bytes()
        at = data.index(marker) + len(marker)
        identities.add(data[at : at + 20])
    assert len(identities) == 2


def test_a_sealed_file_passes_rocksdbs_own_checks(tmp_path: Path) -> None:
    """The checksum of the properties block is right: RocksDB refuses the file after a bit flip."""
    compacted = compact(tmp_path, [(b"a", b"1")])
    path = compacted.files[0].path
    assert dict(read_items([path]))[b"a"] == b"1"
    data = bytearray(path.read_bytes())
    data[data.index(b"session.identity") + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(SnapshotError, match="checksum"):
        list(read_items([path]))


def test_a_store_as_faust_opens_it_takes_the_files(tmp_path: Path) -> None:
    """Raw mode and byte order match Faust's driver."""
    from faust.stores.rocksdb import RocksDBOptions

    compacted = compact(tmp_path / "snapshot", [(b'"a"', b'{"n": 1}'), (b'"b"', b'{"n": 2}')])
    store = RocksDBOptions(max_open_files=64).open(tmp_path / "table-0.db")
    try:
        ingest(store, [file.path for file in compacted.files])
        assert store.get(b'"b"') == b'{"n": 2}'
        assert store.get(OFFSET_KEY) == b"1"
    finally:
        store.close()


def test_keys_out_of_order_are_an_error(tmp_path: Path) -> None:
    """Otherwise RocksDB would refuse the file later, in the worker."""
    with pytest.raises(SnapshotError):
        write_files([(b"b", b"1"), (b"a", b"2")], tmp_path)


def test_the_scratch_space_is_gone_afterwards(tmp_path: Path) -> None:
    """Only the finished files remain."""
    compacted = compact(tmp_path, [(b"a", b"%d" % n) for n in range(100)], memory=0)
    assert compacted.runs > 0
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == [f"out/{file.name}" for file in compacted.files]


def test_rocksdict_still_writes_the_layout_that_seal_knows(tmp_path: Path) -> None:
    """This case detects a layout changed by an upgrade; otherwise only hashes would differ."""
    from faust_assigner.snapshots.seal import seal
    from faust_assigner.snapshots.sst import options

    writer = rocksdict.SstFileWriter(options())
    writer.open(str(tmp_path / "a.sst"))
    writer[b"a"] = b"1"
    writer.finish()
    assert seal(tmp_path / "a.sst")
    (tmp_path / "b.sst").write_bytes(b"no table at all")
    assert not seal(tmp_path / "b.sst")


GOOD_OR_BAD = st.lists(
    st.tuples(
        st.sampled_from([b'"a"', b'"b"', b"1", b"a", b"{", b"\xff"]),
        st.none()
        | st.sampled_from([b"1", b"2.5", b'"x"', b"", b"{not json", b"1 2", b"],[", b"\xff"]),
    ),
    max_size=30,
)


@settings(max_examples=examples(60, 10), deadline=None)
@given(before=GOOD_OR_BAD, after=GOOD_OR_BAD, memory=st.sampled_from([0, 700, 1 << 30]))
def test_records_that_are_not_json_leave_the_row_before_them(
    tmp_path_factory: pytest.TempPathFactory, before: list[Record], after: list[Record], memory: int
) -> None:
    """The replay drops the same records: in memory, in runs, and upon a previous snapshot."""
    folder = tmp_path_factory.mktemp("compaction")
    codecs = ("json", "json")
    first = compact(folder / "first", before, memory=memory, codecs=codecs)
    second = compact(
        folder / "second",
        after,
        base=first,
        memory=memory,
        codecs=codecs,
        next_offset=len(before + after),
    )
    good = [record for record in before + after if all(map(is_json, record))]
    assert contents(second) == state_of(good) | {OFFSET_KEY: b"%d" % (len(before + after) - 1)}
    # A record replaced by a later record is not parsed.
    assert first.unreadable + second.unreadable <= len(before + after) - len(good)


def is_json(payload: bytes | None) -> bool:
    """Whether Python's own parser accepts the payload."""
    try:
        json.loads((b"1" if payload is None else payload).decode())
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("values", "keys", "types"),
    [
        ([b"1", b"2", b"{"], 2, {"int"}),
        ([b"1", b"{", b"["], 3, None),
        ([b"NaN", b"2", b"3"], 3, {"int", "_NonFinite"}),
        ([], 0, None),
    ],
    ids=["one is bad", "most are bad", "only Python takes it", "nothing"],
)
def test_without_a_codec_most_of_the_rows_decide(
    tmp_path: Path, values: list[bytes], keys: int, types: set[str] | None
) -> None:
    """Values of another serializer stay; a few damaged values are dropped."""
    records: list[Record] = [(b"%d" % number, value) for number, value in enumerate(values)]
    done = compact(tmp_path, records, codecs=("auto", "auto"))
    assert (done.keys, done.value_types) == (keys, types)


def test_unreadable_records_of_all_batches_are_counted(tmp_path: Path) -> None:
    """A snapshot with too many of them is refused."""
    with Compactor(tmp_path, codecs=(JSON, JSON)) as compactor:
        compactor.add([b'"a"'], [b"x"])
        compactor.add([b'"b"'], [b"y"])
        assert compactor.finish(2).unreadable == 2


def test_a_fold_waits_for_as_many_new_bytes_as_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folding at every batch would fold each record once per batch."""
    monkeypatch.setattr(compaction, "_FOLD_BYTES", 1_000)
    folds, fold = [], compaction.last_per_key
    monkeypatch.setattr(
        compaction, "last_per_key", lambda batches: folds.append(len(batches)) or fold(batches)
    )
    with Compactor(tmp_path) as compactor:
        for number in range(200):
            compactor.add([b"%05d" % number], [b"x" * 90])
        compactor.finish(200)
    assert len(folds) < 10, "held bytes double from fold to fold"


def test_rows_that_are_held_are_not_read_again_with_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The types of each payload are read once if all payloads are JSON."""
    monkeypatch.setattr(compaction, "_FOLD_BYTES", 0)
    asked: list[int] = []
    types = arrow_batches.json_types
    monkeypatch.setattr(
        arrow_batches, "json_types", lambda rows: asked.append(len(rows)) or types(rows)
    )
    with Compactor(tmp_path, codecs=(JSON, JSON)) as compactor:
        for number in range(20):
            compactor.add([b"%d" % number], [b"1"])
        compactor.finish(20)
    assert sum(asked) == 2 * 20


def test_the_types_of_all_folds_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker compares all types with its table; the last fold's types alone would pass."""
    monkeypatch.setattr(compaction, "_FOLD_BYTES", 0)
    with Compactor(tmp_path, codecs=(JSON, JSON)) as compactor:
        for number, value in enumerate((b"1", b'"x"', b"2")):
            compactor.add([b"%d" % number], [value])
        done = compactor.finish(3)
    assert (done.key_types, done.value_types) == ({"int"}, {"int", "str"})


@pytest.mark.parametrize(("bad", "keys"), [(3, 4), (2, 2)])
def test_all_rows_of_the_first_fold_decide_the_codec(tmp_path: Path, bad: int, keys: int) -> None:
    """The table may have changed its serializer before the last batch."""
    with Compactor(tmp_path, codecs=("raw", "auto")) as compactor:
        compactor.add([b"b%d" % number for number in range(bad)], [b"{"] * bad)
        compactor.add([b"g%d" % number for number in range(4 - bad)], [b"1"] * (4 - bad))
        assert compactor.finish(4).keys == keys


def test_rows_without_a_key_decide_no_codec(tmp_path: Path) -> None:
    """The first fold has no rows; the rows of the second fold are not JSON and are kept."""
    with Compactor(tmp_path, memory_bytes=6, codecs=(AUTO, AUTO)) as compactor:
        compactor.add([None], [b"x" * 100])
        compactor.add([b"\xff"], [b"\xfe"])
        found = compactor.finish(next_offset=2)
    assert (found.keys, found.unreadable, found.key_types, found.value_types) == (1, 0, None, None)


def test_a_scratch_database_lies_in_the_given_folder_and_is_gone_afterwards(tmp_path: Path) -> None:
    """The folder holds the files too: a move between two disks would copy them."""
    with scratch_database(tmp_path) as database:
        database[b"a"] = b"1"
        [folder] = tmp_path.iterdir()
        assert any(folder.iterdir())
    assert list(tmp_path.iterdir()) == []
