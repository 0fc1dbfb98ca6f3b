"""Ledger files are found, cut, read and followed byte for byte; no Spark is started for it."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
from pathlib import Path
from typing import Any

import fsspec
import pytest

from faust_assigner.app.ledger.files import LedgerFiles
from faust_assigner.ledger import MAX_LINE_BYTES
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.ledgers.files import (
    Chunk,
    LedgerPathError,
    cut,
    find_files,
    last_line_start,
    pack,
    read_lines,
)
from faust_assigner.pipeline.ledgers.rows import Refused, accepted_rows
from faust_assigner.snapshots.changelog import Changelog, Extent
from tests.integration.spark.ledgers import DECISION, SAMPLE, good

pytest.importorskip("pyspark")

from faust_assigner.pipeline.ledgers import topics
from faust_assigner.pipeline.ledgers.parse import parse_chunks
from faust_assigner.pipeline.ledgers.sources import LedgerStreamReader, advance

Offset = dict[str, Any]


def lines_of(path: Path, chunk_bytes: int) -> list[tuple[int, bytes]]:
    """All lines of a file read in chunks."""
    chunks = cut(str(path), 0, path.stat().st_size, chunk_bytes)
    return [line for chunk in chunks for line in read_lines(chunk)]


def test_folder_gives_its_ledgers_and_nothing_else(tmp_path: Path) -> None:
    """``*.jsonl`` and ``*.jsonl.N`` at any depth, packed too; a file named by itself may have any name."""
    ledgers = ("a.jsonl", "a.jsonl.1", "a.jsonl.1.xz", "a.jsonl.2.gz", "a.jsonl.gz", "b/c.jsonl.12")
    for name in (*ledgers, "a.jsonl.1.tmp", "a.gz", "x.json", "log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = find_files([str(tmp_path)])
    assert [file.name for file in found] == [str(tmp_path / name) for name in ledgers]
    assert [file.name for file in find_files([str(tmp_path / "log")])] == [str(tmp_path / "log")]


def test_packing_that_is_not_read_is_an_error_and_no_silence() -> None:
    """Its lines would be missing from every figure."""
    fs = fsspec.filesystem("memory")
    for name in ("a.jsonl", "a.jsonl.1.zst"):
        fs.pipe_file(f"/packed/{name}", b"")
    with pytest.raises(LedgerPathError, match=r"a\.jsonl\.1\.zst: only gz"):
        find_files(["memory://packed"])


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.jsonl.gz", gzip.compress),
        ("a.jsonl.3.bz2", bz2.compress),
        ("a.jsonl.1.xz", lzma.compress),
    ],
)
def test_packed_file_gives_its_lines(tmp_path: Path, name: str, pack: Any) -> None:
    """In one chunk, however large it is; positions are those of the lines."""
    path = tmp_path / name
    path.write_bytes(pack(b"one\ntwo\n" + b"x" * 100_000 + b"\nlast"))
    assert len(cut(str(path), 0, path.stat().st_size, 10)) == 1
    found = [(at, len(line)) for at, line in lines_of(path, 10)]
    assert found == [(0, 3), (4, 3), (8, 100_000), (100_009, 4)]


@pytest.mark.parametrize("cut_at", [-40, 5])
def test_torn_packed_file_gives_the_lines_before_and_one_refusal(
    tmp_path: Path, cut_at: int
) -> None:
    """A copy that was not finished, or bytes that are something else."""
    path = tmp_path / "a.jsonl.gz"
    row = json.dumps(DECISION).encode()
    draw = random.Random(1)
    whole = b"".join(row[:-1] + b', "n": %d}\n' % draw.getrandbits(64) for _ in range(9000))
    path.write_bytes(gzip.compress(whole)[:cut_at])
    (batch, *more) = parse_chunks(cut(str(path), 0, path.stat().st_size))
    reasons = [
        reason for each in (batch, *more) for reason in each.column("reason").to_pylist() if reason
    ]
    assert "not read further" in reasons[-1]
    assert len(reasons) <= 2  # and perhaps the line that was torn
    taken = sum(each.column("decision").null_count < len(each) for each in (batch, *more))
    assert bool(taken) == (cut_at < 0)
    refused = Refused()
    list(accepted_rows([str(path)], refused))
    assert refused.lines == len(reasons)


def test_packed_file_that_grows_is_read_again_whole(tmp_path: Path) -> None:
    """Nothing else can be done; rows that are told twice count once."""
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"one\n"))
    reader = LedgerStreamReader([str(tmp_path)], 2)
    first = reader.latestOffset({}, None)
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    second = reader.latestOffset(first, None)
    [load] = reader.partitions(first, second)
    assert [line for chunk in load.chunks() for _, line in read_lines(chunk)] == [b"one", b"two"]
    assert not reader.partitions(second, reader.latestOffset(second, None))


def test_file_reached_in_many_ways_is_found_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By folder, glob, link, relative and absolute path."""
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "a.jsonl")
    monkeypatch.chdir(tmp_path)
    found = find_files([".", str(tmp_path), "a.jsonl", "*.jsonl", f"file://{tmp_path}/a.jsonl"])
    assert [file.name for file in found] == [str(tmp_path / "a.jsonl")]


def test_name_with_glob_characters_is_a_name_when_it_exists(tmp_path: Path) -> None:
    """``[1]`` in a file's name is no pattern."""
    (tmp_path / "led[1].jsonl").touch()
    assert len(find_files([str(tmp_path / "led[1].jsonl")])) == 1


@pytest.mark.parametrize("missing", ["nothing", "*.nothing", "no/such/folder/"])
def test_path_that_is_not_there_is_named(tmp_path: Path, missing: str) -> None:
    """Whatever else is there."""
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(LedgerPathError, match="no such ledger") as caught:
        find_files([str(tmp_path / "a.jsonl"), f"{tmp_path}/{missing}"])
    assert missing.rstrip("/") in str(caught.value)


def test_ledgers_need_not_be_local() -> None:
    """Any file system fsspec knows; names are URLs there."""
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/bucket/w.jsonl", b"one\ntwo")
    fs.pipe_file("/bucket/other", b"x")
    (file,) = find_files(["memory://bucket"])
    assert file.name.startswith("memory://")
    assert file.name.endswith("bucket/w.jsonl")
    assert file.size == 7
    assert [line for _, line in read_lines(Chunk(file.name, 0, file.size))] == [b"one", b"two"]


@pytest.mark.parametrize("seed", range(5))
def test_chunks_of_any_size_give_the_files_lines(tmp_path: Path, seed: int) -> None:
    """Cut inside lines, between them, at newlines: the same lines at the same places, none twice."""
    rng = random.Random(seed)
    data = b"\n".join(bytes(rng.choices(b"ab\r ", k=rng.choice([0, 1, 5, 40]))) for _ in range(200))
    path = tmp_path / "w.jsonl"
    path.write_bytes(data + rng.choice([b"", b"\n"]))
    whole = path.read_bytes()
    wanted = whole.split(b"\n")[: -1 if whole.endswith(b"\n") else None]
    for size in (1, 7, 64, 10_000):
        found = lines_of(path, size)
        assert [line for _, line in found] == wanted
        assert all(whole[at:].startswith(line) for at, line in found)
        assert sorted(found) == found


def test_long_line_is_cut_and_the_next_is_whole(tmp_path: Path) -> None:
    """Memory stays bounded whatever a line's length; positions stay right."""
    path = tmp_path / "w.jsonl"
    path.write_bytes(b"x" * (2 * MAX_LINE_BYTES) + b"\nnext\n")
    (_, long), (at, after) = lines_of(path, 1 << 30)
    assert len(long) == MAX_LINE_BYTES + 1
    assert (at, after) == (2 * MAX_LINE_BYTES + 1, b"next")


def test_loads_are_even_and_whole() -> None:
    """Every chunk once; no load twice as heavy as need be."""
    sizes = [1000, 10, 990, 500, 480, 0, 30]
    chunks = [chunk for n, size in enumerate(sizes) for chunk in cut(f"f{n}", 0, size)]
    loads = pack(chunks, 2)
    assert sorted(chunk for load in loads for chunk in load) == sorted(chunks)
    assert len(loads) == 2
    assert pack([], 3) == []


def test_open_line_is_found_from_the_end(tmp_path: Path) -> None:
    """Where a half-written line starts; the size when none is."""
    path = tmp_path / "w"
    path.write_bytes(b"one\ntwo\nthr")
    assert last_line_start(str(path), 0, 11) == 8
    assert last_line_start(str(path), 0, 8) == 8
    assert last_line_start(str(path), 9, 11) == 9
    path.write_bytes(b"x" * 3_000_000)
    assert last_line_start(str(path), 0, 3_000_000) == 0


def spans(reader: LedgerStreamReader, start: Offset, end: Offset) -> list[tuple[str, int, int]]:
    """What lies between two offsets, by file."""
    chunks = [chunk for load in reader.partitions(start, end) for chunk in load.chunks()]
    return sorted((Path(chunk.name).name, chunk.start, chunk.end) for chunk in chunks)


def test_offsets_follow_growth_torn_lines_and_rotation(tmp_path: Path) -> None:
    """Only news is read; an open line again; a new file under an old name from its start."""
    path, reader = tmp_path / "w.jsonl", LedgerStreamReader([str(tmp_path)], 2)
    first = reader.latestOffset({}, reader.getDefaultReadLimit())
    assert first == {}
    path.write_bytes(b"one\ntw")
    second = reader.latestOffset(first, reader.getDefaultReadLimit())
    assert spans(reader, first, second) == [("w.jsonl", 0, 6)]
    assert reader.latestOffset(second, reader.getDefaultReadLimit()) == second
    path.write_bytes(b"one\ntwo\nthree\n")
    third = reader.latestOffset(second, reader.getDefaultReadLimit())
    assert spans(reader, second, third) == [("w.jsonl", 4, 14)]
    path.rename(tmp_path / "w.jsonl.1")
    path.write_bytes(b"another file that is longer than the first\n")
    fourth = reader.latestOffset(third, reader.getDefaultReadLimit())
    assert spans(reader, third, fourth) == [("w.jsonl", 0, 43), ("w.jsonl.1", 0, 14)]
    path.write_bytes(b"short\n")
    fifth = reader.latestOffset(fourth, reader.getDefaultReadLimit())
    assert spans(reader, fourth, fifth) == [("w.jsonl", 0, 6)]
    path.unlink()
    assert reader.latestOffset(fifth, reader.getDefaultReadLimit()) == fifth


def test_visit_stops_at_what_was_there_when_it_began(tmp_path: Path) -> None:
    """However fast files grow meanwhile."""
    path, reader = tmp_path / "w.jsonl", LedgerStreamReader([str(tmp_path)], 2)
    path.write_bytes(b"one\n")
    reader.prepareForTriggerAvailableNow()
    path.write_bytes(b"one\ntwo\n")
    (entry,) = reader.latestOffset({}, reader.getDefaultReadLimit()).values()
    assert entry["size"] == 4


def test_file_that_only_got_a_newer_date_is_not_read_again(tmp_path: Path) -> None:
    """The head and the size tell, not the clock."""
    path = tmp_path / "w.jsonl"
    path.write_bytes(b"one\n")
    (file,) = find_files([str(path)])
    known = advance(file, None)
    touched = type(file)(file.name, file.size, "later")
    assert (advance(touched, known).life, advance(touched, known).at) == (0, 4)


def test_offset_forgets_files_that_are_gone_once_there_is_news(tmp_path: Path) -> None:
    """Else it keeps every name there ever was; without news it stays as it is, and nothing is taken."""
    for number in range(50):
        (tmp_path / f"w.jsonl.{number}").write_bytes(b"x\n")
    reader = LedgerStreamReader([str(tmp_path)], 2)
    first = reader.latestOffset({}, None)
    for number in range(49):
        (tmp_path / f"w.jsonl.{number}").unlink()
    assert reader.latestOffset(first, None) == first
    (tmp_path / "w.jsonl").write_bytes(b"y\n")
    second = reader.latestOffset(first, None)
    assert [Path(name).name for name in second] == ["w.jsonl", "w.jsonl.49"]
    [load] = reader.partitions(first, second)
    assert [Path(chunk.name).name for chunk in load.chunks()] == ["w.jsonl"]


def test_offset_forgets_nothing_while_a_path_does_not_answer(tmp_path: Path) -> None:
    """A mount that is away for a moment comes back with all its files: they are not read again."""
    here, mount = tmp_path / "here", tmp_path / "mount"
    for folder in (here, mount):
        folder.mkdir()
        (folder / "w.jsonl").write_bytes(b"x\n")
    reader = LedgerStreamReader([str(here), str(mount)], 2)
    first = reader.latestOffset({}, None)
    mount.rename(tmp_path / "away")
    (here / "w.jsonl").write_bytes(b"x\ny\n")
    second = reader.latestOffset(first, None)
    assert set(second) == set(first)


@pytest.mark.parametrize("then", ["rotated", "rotated twice", "rotated and begun anew"])
def test_a_file_that_rotates_after_it_was_listed_is_read_whole(tmp_path: Path, then: str) -> None:
    """As the workers' own ledger renames it; what was written since is for the next run."""
    files = LedgerFiles(tmp_path, "w", file_bytes=50_000)
    files.put(lambda: [sample_row(number) for number in range(100)])
    files.drain()
    [listed] = find_files([str(tmp_path)])
    path = tmp_path / "w.jsonl"
    path.rename(tmp_path / "w.jsonl.1")
    if then != "rotated":
        path.write_bytes(b"{}\n" * 10)
    if then == "rotated twice":
        path.rename(tmp_path / "w.jsonl.2")
    chunks = cut(listed.name, 0, listed.size, 1000, inode=listed.inode)
    assert len(chunks) > 3
    lines = [line for chunk in chunks for _, line in read_lines(chunk)]
    assert [json.loads(line)["end_offset"] for line in lines] == list(range(100))
    rows = list(accepted_rows([str(tmp_path)]))
    assert len(rows) == 100
    files.close()


def test_a_file_that_is_removed_after_it_was_listed_is_refused_and_counted(tmp_path: Path) -> None:
    """Its lines are in no figure: the run names it."""
    (tmp_path / "a.jsonl").write_bytes(good(SAMPLE).data)
    (tmp_path / "b.jsonl").write_bytes(good(SAMPLE).data)
    refused = Refused(keep=10)
    rows = accepted_rows([str(tmp_path)], refused)
    next(rows)
    (tmp_path / "b.jsonl").unlink()
    assert list(rows) == []
    assert [(Path(file).name, reason) for file, _, reason in refused.kept] == [
        ("b.jsonl", "not read: the file was removed after it was listed")
    ]


def sample_row(number: int) -> Any:
    """A row as a worker's sensor gives it."""
    return "partition_sample", {**SAMPLE, "ts": float(number), "end_offset": number}


@pytest.mark.parametrize(
    ("before", "now", "spans"),
    [
        ({"0": 1000}, {"0": 1400}, [(0, 1000, 1400)]),
        ({"0": 1000, "topic_id": "a"}, {"0": 1400, "topic_id": "a"}, [(0, 1000, 1400)]),
        ({"0": 1000, "topic_id": "a"}, {"0": 400, "topic_id": "b"}, [(0, 0, 400)]),
        ({"0": 1000, "topic_id": "a"}, {"0": 1400, "topic_id": "b"}, [(0, 0, 1400)]),
        ({"0": 1000, "1": 5}, {"0": 400, "1": 7}, [(0, 0, 400), (1, 0, 7)]),
        ({"0": 1000}, {"0": 400, "topic_id": "b"}, [(0, 0, 400)]),
        ({"0": 1000, "topic_id": "a"}, {"0": 400, "topic_id": "a"}, []),
        ({"0": 10}, {"0": 10, "1": 4}, [(1, 0, 4)]),
    ],
    ids=[
        "grown",
        "grown, with ids",
        "another topic",
        "another topic that has outgrown the first",
        "another topic, no ids",
        "another topic, of a checkpoint from before ids",
        "cut off by a failed leader",
        "a new partition",
    ],
)
def test_a_topic_that_was_created_again_is_read_from_its_first_record(
    monkeypatch: pytest.MonkeyPatch, before: Any, now: Any, spans: Any
) -> None:
    """Kafka's id of the topic tells, and where there is none an end that lies before what was read."""
    source = topics.TopicSource(Cluster("a:1"), "ledger")
    extents = {int(number): Extent(0, end) for number, end in now.items() if number != "topic_id"}
    log = Changelog("ledger", extents, 0, now.get("topic_id"))
    monkeypatch.setattr(topics, "look_at", lambda *_: log)
    reader = topics.TopicStreamReader(source)
    reader.prepareForTriggerAvailableNow()
    reached = reader.latestOffset(before, reader.getDefaultReadLimit())
    assert [span.value for span in reader.partitions(before, reached)] == spans
    again = reader.latestOffset(reached, reader.getDefaultReadLimit())
    assert reader.partitions(reached, again) == []
