"""The run of Faust's own tests: their download, their environment and their command."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.suites import faust as faust_suite_run


def test_a_failed_build_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run rebuilds the environment; a complete build is reused."""
    commands: list[str] = []
    fails = [True, False]

    def run(command: list[Any], *, check: bool) -> None:
        assert check
        commands.append("venv" if "venv" in command else "install")
        if commands[-1] == "venv":
            Path(command[-1]).mkdir(exist_ok=True)
        elif fails.pop(0):
            raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(subprocess.CalledProcessError):
        faust_suite_run.environment(tmp_path)
    for _ in range(2):
        faust_suite_run.environment(tmp_path)
    assert commands == ["venv", "install", "venv", "install"]


def test_another_checkout_python_or_list_of_requirements_has_its_own_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment has what Faust's tests need, and then the packages of this one."""
    commands: list[Any] = []

    def run(command: list[Any], *, check: bool) -> None:
        commands.append(command)
        if "venv" in command:
            Path(command[-1]).mkdir()

    monkeypatch.setattr(subprocess, "run", run)
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "setup.cfg").write_text("one")
    monkeypatch.setattr(faust_suite_run, "ROOT", root)
    monkeypatch.setattr(faust_suite_run, "REQUIREMENTS", ("pytest<8", "attrs"))
    python = faust_suite_run.environment(tmp_path)
    venv = python.parents[1]
    assert python == venv / "bin" / "python"
    assert commands == [
        [sys.executable, "-m", "venv", "--clear", venv],
        [python, "-m", "pip", "install", "-q", "pytest<8", "attrs"],
    ]
    [beside] = venv.glob("lib/python*/site-packages/beside.pth")
    assert repr(sysconfig.get_path("purelib")) in beside.read_text()
    found = {python}
    (root / "setup.cfg").write_text("two")
    found.add(faust_suite_run.environment(tmp_path))
    monkeypatch.setattr(faust_suite_run, "REQUIREMENTS", ("pytest<8",))
    found.add(faust_suite_run.environment(tmp_path))
    monkeypatch.setattr(faust_suite_run, "sys", SimpleNamespace(version="4", executable="python4"))
    found.add(faust_suite_run.environment(tmp_path))
    other = tmp_path / "other"
    other.mkdir()
    (other / "setup.cfg").write_text("two")
    monkeypatch.setattr(faust_suite_run, "ROOT", other)
    found.add(faust_suite_run.environment(tmp_path))
    assert len(found) == 5


def test_the_tests_are_downloaded_once_and_unpacked_without_fausts_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kept archive is unpacked again without a download; unpacked tests are used as they are."""
    commands: list[Any] = []
    name, folder = faust_suite_run.NAME, tmp_path / "cache"

    def run(command: list[Any], *, check: bool) -> None:
        assert check
        commands.append(command)
        with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as packed:
            for file in ("tests/test_x.py", "faust/app.py"):
                packed.addfile(tarfile.TarInfo(f"{name}/{file}"), io.BytesIO())

    monkeypatch.setattr(subprocess, "run", run)
    assert faust_suite_run.fetch(folder) == folder / name
    assert sorted(one.name for one in (folder / name).iterdir()) == ["tests"]
    assert faust_suite_run.fetch(folder) == folder / name
    (folder / name / "tests").rename(tmp_path / "lost")
    faust_suite_run.fetch(folder)
    assert (folder / name / "tests" / "test_x.py").exists()
    assert commands == [
        [
            *(sys.executable, "-m", "pip", "download", "-q", "--no-deps"),
            *("--no-binary", "faust-streaming", "-d", folder),
            f"faust-streaming=={faust_suite_run.VERSION}",
        ]
    ]


@pytest.mark.parametrize(
    ("arguments", "chosen", "plugin"),
    [
        (
            [],
            ["tests/unit", "tests/functional", "tests/integration", "tests/meticulous",
             "tests/regression"],
            ["-p", "suite_faust"],
        ),
        (["--stock", "tests/unit", "--x", "-x"], ["tests/unit", "--x", "-x"], []),
    ],
)  # fmt: skip
def test_the_suite_runs_its_folders_or_the_given_ones_with_ours_or_stock(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    chosen: list[str],
    plugin: list[str],
) -> None:
    """The exit code is pytest's; the suite's own options and warnings are left out."""
    monkeypatch.setattr(faust_suite_run, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(faust_suite_run, "fetch", lambda folder: folder / "tree")
    monkeypatch.setattr(faust_suite_run, "environment", lambda folder: folder / "python")
    monkeypatch.setenv("KIT_X", "y")
    monkeypatch.setenv("PYTHONPATH", "other")
    runs: list[Any] = []

    def run(command: list[Any], **more: Any) -> Any:
        runs.append((command, more))
        return SimpleNamespace(returncode=6)

    monkeypatch.setattr(subprocess, "run", run)
    assert faust_suite_run.main(arguments) == 6
    folder = tmp_path / "faust-suite"
    [(command, more)] = runs
    assert command == [
        *(folder / "python", "-m", "pytest", "-q", "-rs", "-o", "addopts="),
        *("-p", "no:cacheprovider", "-pno:rerunfailures", "-pno:timeout", "-pno:xdist"),
        *(*plugin, *chosen),
    ]
    assert (more["cwd"], more["check"]) == (folder / "tree", False)
    assert (more["env"]["PYTHONWARNINGS"], more["env"]["KIT_X"]) == ("ignore", "y")
    assert more["env"]["PYTHONPATH"] == f"{faust_suite_run.PLUGINS}{os.pathsep}other"
