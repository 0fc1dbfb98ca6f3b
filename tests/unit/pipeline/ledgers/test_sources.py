"""Ledger files are found, cut, read and followed exactly, without Spark."""

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
from faust_assigner.pipeline.ledgers.chunks import Chunk, cut, last_line_start, pack, read_lines
from faust_assigner.pipeline.ledgers.files import LedgerPathError, find_files
from faust_assigner.pipeline.ledgers.parse import parse_chunks
from faust_assigner.pipeline.ledgers.rows import Refused, accepted_rows
from tests.integration.spark.ledgers import DECISION, SAMPLE, good


def lines_of(path: Path, chunk_bytes: int) -> list[tuple[int, bytes]]:
    """Return all lines of a file read in chunks."""
    chunks = cut(str(path), 0, path.stat().st_size, chunk_bytes)
    return [line for chunk in chunks for line in read_lines(chunk)]


def test_folder_gives_its_ledgers_and_nothing_else(tmp_path: Path) -> None:
    """``*.jsonl`` and ``*.jsonl.N`` are found at any depth; a given file may have any name."""
    ledgers = ("a.jsonl", "a.jsonl.1", "a.jsonl.1.xz", "a.jsonl.2.gz", "a.jsonl.gz", "b/c.jsonl.12")
    for name in (*ledgers, "a.jsonl.1.tmp", "a.gz", "x.json", "log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = find_files([str(tmp_path)])
    assert [file.name for file in found] == [str(tmp_path / name) for name in ledgers]
    assert [file.name for file in find_files([str(tmp_path / "log")])] == [str(tmp_path / "log")]


def test_packing_that_is_not_read_is_an_error_and_no_silence() -> None:
    """Otherwise its lines would be missing from every figure."""
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
    """The file is a single chunk of any size; positions are those of the lines."""
    path = tmp_path / name
    path.write_bytes(pack(b"one\ntwo\n" + b"x" * 100_000 + b"\nlast"))
    assert len(cut(str(path), 0, path.stat().st_size, 10)) == 1
    found = [(at, len(line)) for at, line in lines_of(path, 10)]
    assert found == [(0, 3), (4, 3), (8, 100_000), (100_009, 4)]


@pytest.mark.parametrize("cut_at", [-40, 5])
def test_torn_packed_file_gives_the_lines_before_and_one_refusal(
    tmp_path: Path, cut_at: int
) -> None:
    """The file is an unfinished copy or has foreign bytes."""
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
    assert len(reasons) <= 2  # and perhaps the torn line
    taken = sum(each.column("decision").null_count < len(each) for each in (batch, *more))
    assert bool(taken) == (cut_at < 0)
    refused = Refused()
    list(accepted_rows([str(path)], refused))
    assert refused.lines == len(reasons)


def test_file_reached_in_many_ways_is_found_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ways are a folder, a glob, a link, and relative and absolute paths."""
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "a.jsonl")
    monkeypatch.chdir(tmp_path)
    found = find_files([".", str(tmp_path), "a.jsonl", "*.jsonl", f"file://{tmp_path}/a.jsonl"])
    assert [file.name for file in found] == [str(tmp_path / "a.jsonl")]


def test_name_with_glob_characters_is_a_name_when_it_exists(tmp_path: Path) -> None:
    """A file's name may contain ``[1]``."""
    (tmp_path / "led[1].jsonl").touch()
    assert len(find_files([str(tmp_path / "led[1].jsonl")])) == 1


def test_a_set_of_characters_is_a_pattern_when_no_such_file_exists(tmp_path: Path) -> None:
    """The rule is that of a shell."""
    for number in range(3):
        (tmp_path / f"w{number}.jsonl").touch()
    found = find_files([str(tmp_path / "w[12].jsonl")])
    assert [Path(file.name).name for file in found] == ["w1.jsonl", "w2.jsonl"]


@pytest.mark.parametrize("missing", ["nothing", "*.nothing", "no/such/folder/"])
def test_path_that_is_not_there_is_named(tmp_path: Path, missing: str) -> None:
    """The other path exists."""
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(LedgerPathError, match="no such ledger") as caught:
        find_files([str(tmp_path / "a.jsonl"), f"{tmp_path}/{missing}"])
    assert missing.rstrip("/") in str(caught.value)


def test_ledgers_need_not_be_local() -> None:
    """Any file system of fsspec works; the names are URLs there."""
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
    """Chunks end inside or between lines or at newlines; each line occurs once, in place."""
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
    """Memory is bounded for lines of any length; positions stay right."""
    path = tmp_path / "w.jsonl"
    path.write_bytes(b"x" * (2 * MAX_LINE_BYTES) + b"\nnext\n")
    (_, long), (at, after) = lines_of(path, 1 << 30)
    assert len(long) == MAX_LINE_BYTES + 1
    assert (at, after) == (2 * MAX_LINE_BYTES + 1, b"next")


def test_loads_are_even_and_whole() -> None:
    """Every chunk occurs once, and no load is needlessly twice as heavy."""
    sizes = [1000, 10, 990, 500, 480, 0, 30]
    chunks = [chunk for n, size in enumerate(sizes) for chunk in cut(f"f{n}", 0, size)]
    loads = pack(chunks, 2)
    assert sorted(chunk for load in loads for chunk in load) == sorted(chunks)
    assert len(loads) == 2
    assert pack([], 3) == []


def test_open_line_is_found_from_the_end(tmp_path: Path) -> None:
    """The result is the start of a half-written line, or the size without such a line."""
    path = tmp_path / "w"
    path.write_bytes(b"one\ntwo\nthr")
    assert last_line_start(str(path), 0, 11) == 8
    assert last_line_start(str(path), 0, 8) == 8
    assert last_line_start(str(path), 9, 11) == 9
    path.write_bytes(b"x" * 3_000_000)
    assert last_line_start(str(path), 0, 3_000_000) == 0


@pytest.mark.parametrize("then", ["rotated", "rotated twice", "rotated and begun anew"])
def test_a_file_that_rotates_after_it_was_listed_is_read_whole(tmp_path: Path, then: str) -> None:
    """The file is renamed as by the workers' ledger; later lines are left for the next run."""
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
    """Its lines are in no figure, so the run names the file."""
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
    """Return a row in the form of a worker's sensor."""
    return "partition_sample", {**SAMPLE, "ts": float(number), "end_offset": number}
