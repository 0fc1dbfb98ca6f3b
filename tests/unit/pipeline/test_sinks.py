"""A folder of results: its files are whole or absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from faust_assigner.pipeline.sinks import Folder


def test_a_file_takes_the_place_of_the_one_before_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk full during the write leaves the old file and no draft."""
    folder = Folder(str(tmp_path))
    for content in (b"first", b"second"):
        folder.write("sources.json", content)
        assert folder.read("sources.json") == content

    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        folder.write("sources.json", b"third")
    assert folder.read("sources.json") == b"second"
    assert os.listdir(tmp_path) == ["sources.json"]
