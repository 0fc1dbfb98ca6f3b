"""A folder of results without Spark: files are whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from faust_assigner.pipeline.sinks import PlainFolder


def test_a_small_file_takes_the_place_of_the_one_before_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills while the file is written leaves the one before."""
    folder = PlainFolder(str(tmp_path))
    for content in (b"first", b"second"):
        folder.write("sources.json", content)
        assert folder.read("sources.json") == content

    def full(content: bytes, *names: str) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(folder, "_create", full)
    with pytest.raises(OSError, match="no space"):
        folder.write("sources.json", b"third")
    assert folder.read("sources.json") == b"second"
