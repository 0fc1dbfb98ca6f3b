"""The generated pages of the reference: their text equals the tables in the code."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from docs.generate.__main__ import PAGES, REFERENCE, TABLES, write_pages


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the generated pages; the tables of the other pages had wrong rows before."""
    folder = tmp_path_factory.mktemp("reference")
    for name in TABLES:
        shutil.copy(REFERENCE / name, folder)
    for old, new in (("**none** |", "**some** |"), ("**true** |", "**false** |"), (" | 0-", " | 7-")):
        for path in folder.iterdir():
            path.write_text(path.read_text().replace(old, new))
    assert all(path.read_text() != (REFERENCE / path.name).read_text() for path in folder.iterdir())
    write_pages(folder)
    return folder


@pytest.mark.parametrize("name", sorted([*PAGES, *TABLES]))
def test_each_page_equals_its_generated_text(written: Path, name: str) -> None:
    """``python -m docs.generate`` writes a stale page anew, and replaces a wrong row."""
    assert (written / name).read_text() == (REFERENCE / name).read_text()
