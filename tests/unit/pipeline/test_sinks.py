"""A folder of results: its files are whole or absent."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faust_assigner.pipeline.sinks import DamagedFile, Folder


def test_a_file_takes_the_place_of_the_one_before_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk full during the write leaves the old file and no draft; the error names the file."""
    folder = Folder(str(tmp_path))
    for content in (b"first", b"second"):
        folder.write("sources.json", content)
        assert folder.read("sources.json") == content

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/sources.json'"):
        folder.write("sources.json", b"third")
    assert folder.read("sources.json") == b"second"
    assert os.listdir(tmp_path) == ["sources.json"]


def test_a_flipped_bit_in_a_page_is_an_error(tmp_path: Path) -> None:
    """Without checksums nearly all flips changed figures in silence."""
    draw = random.Random(7)
    rows = pa.table({name: [draw.random() for _ in range(50)] for name in "abc"})
    folder, path = Folder(str(tmp_path)), tmp_path / "x.parquet"
    folder.write_parquet(rows, path.name)
    whole = path.read_bytes()
    group = pq.ParquetFile(path).metadata.row_group(0)
    for chunk in map(group.column, range(3)):
        flipped = bytearray(whole)
        flipped[chunk.dictionary_page_offset + chunk.total_compressed_size // 2] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(DamagedFile, match=path.name):
            folder.read_parquet(path.name)


def test_a_file_without_checksums_is_read(tmp_path: Path) -> None:
    """Earlier versions wrote such files, and a history contains both kinds."""
    rows = pa.table({"a": [1, 2]})
    pq.write_table(rows, tmp_path / "x.parquet")
    assert Folder(str(tmp_path)).read_parquet("x.parquet").equals(rows)


def test_a_damaged_type_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyarrow raises a NotImplementedError for a flipped bit in the width of an integer."""
    folder = Folder(str(tmp_path))
    folder.write_parquet(pa.table({"a": [1]}), "x.parquet")

    def refuse(*_: object, **__: object) -> None:
        raise pa.ArrowNotImplementedError("Integers with more than 64 bits not implemented")

    monkeypatch.setattr(pq, "ParquetFile", refuse)
    with pytest.raises(DamagedFile, match=r"x\.parquet is damaged: Integers"):
        folder.read_parquet("x.parquet")
