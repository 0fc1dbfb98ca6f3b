"""The published files: the wheel is complete, and the demo runs from it in a clean environment."""

from __future__ import annotations

import re
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support import dist

#: A build takes seconds and writes beside the sources: only one at a time.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dist")]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(sdist, wheel), built once, with only the requirements that pyproject.toml names."""
    return dist.build(tmp_path_factory.mktemp("dist"))


@pytest.mark.slow
def test_every_file_of_the_package_is_in_the_wheel(built: tuple[Path, Path]) -> None:
    """Among them are py.typed, the page of the history and the Maven files."""
    assert (dist.ROOT / dist.PACKAGE / "py.typed").exists()
    assert dist.missing_from(built[1]) == []


def test_the_sdist_has_examples_docs_and_tests(built: tuple[Path, Path]) -> None:
    """A user of the archive can run the demo, read and test."""
    with tarfile.open(built[0]) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"examples/orders/demo.py", "docs/index.md", "tests/conftest.py", "Makefile"} <= inside
    assert not [name for name in inside if name.endswith(".pyc")]


@pytest.mark.slow
def test_both_pass_twine(built: tuple[Path, Path]) -> None:
    """twine accepts both files and their description."""
    said = dist.run(sys.executable, "-m", "twine", "check", "--strict", *built)
    assert said.count("PASSED") == 2


@pytest.mark.timeout(600)
def test_the_broker_alone_and_the_demo_run_from_the_installed_wheel(
    built: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """As in ``make dist``: clean environments, the sdist's examples, no source of the package in reach.

    With only the broker's extra there is no Faust and no Spark, and a client's test passes.
    """
    dist.check_installed(*built)
    said = capsys.readouterr().out
    assert "imported from broker/lib/" in said
    assert "1 passed" in said
    assert "imported from venv/lib/" in said
    assert re.search(r"equal, \d+ records", said)
    # status and why, as printed by the demo
    assert "\ngroup shop-ours: Stable, 4 members" in said
    assert re.search(r"\norders/\d+ moved from worker-\d to worker-\d", said)
