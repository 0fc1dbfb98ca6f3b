"""Jars from Maven: fetched once, complete or absent, and made for the installed Spark."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.pipeline import doctor, jars, maven
from faust_assigner.pipeline.jars import SPARK_VERSION
from faust_assigner.pipeline.maven import JarsError, fetch_jars


class Maven:
    """A fake Maven, which fills its output folder or fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cache: Path, code: int = 0) -> None:
        self.commands: list[list[str]] = []
        self.code, self.meanwhile = code, lambda: None
        monkeypatch.setattr(maven, "cache_dir", lambda: cache)
        monkeypatch.setattr(maven.shutil, "which", lambda name: "/usr/bin/mvn")
        monkeypatch.setattr(maven.subprocess, "run", self.run)

    def run(self, command: list[str], **_: Any) -> Any:
        """Copy a jar."""
        self.commands.append(command)
        Path(command[-1].removeprefix("-DoutputDirectory="), "new.jar").touch()
        self.meanwhile()
        return SimpleNamespace(returncode=self.code, stdout="out" * 900, stderr="err")


def test_jars_are_fetched_once_into_a_folder_that_is_then_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An incomplete folder is replaced, without left-over files."""
    fake = Maven(monkeypatch, tmp_path / "cache")
    target = tmp_path / "cache" / "jars"
    target.mkdir(parents=True)
    (target / "old.jar").touch()
    for _ in range(2):
        assert fetch_jars(Path("pom.xml"), "jars") == target
    assert sorted(path.name for path in target.iterdir()) == [".complete", "new.jar"]
    assert [path.name for path in target.parent.iterdir()] == ["jars"]
    [command] = fake.commands
    assert command[:6] == ["mvn", "-q", "-B", "-f", "pom.xml", "dependency:copy-dependencies"]


def test_of_two_processes_that_fetch_the_first_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second process removes its own folder."""
    fake = Maven(monkeypatch, tmp_path)
    target = tmp_path / "jars"

    def other() -> None:
        target.mkdir()
        (target / "first.jar").touch()
        (target / ".complete").touch()

    fake.meanwhile = other
    assert fetch_jars(Path("pom.xml"), "jars") == target
    assert sorted(path.name for path in target.iterdir()) == [".complete", "first.jar"]
    assert [path.name for path in tmp_path.iterdir()] == ["jars"]


def test_a_failed_fetch_leaves_no_folder_and_has_mavens_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the ends of Maven's outputs; without Maven no command is run."""
    fake = Maven(monkeypatch, tmp_path, code=1)
    with pytest.raises(JarsError) as failure:
        fetch_jars(Path("pom.xml"), "jars")
    assert str(failure.value).endswith(f" failed:\n{('out' * 900)[-2_000:]}err")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(maven.shutil, "which", lambda name: None)
    with pytest.raises(
        JarsError, match=r"Maven \(mvn\) is not on PATH; it fetches the jars of jars"
    ):
        fetch_jars(Path("pom.xml"), "jars")
    assert len(fake.commands) == 1


def test_cached_jars_are_those_of_the_installed_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both the cached and the fetched jars are sorted by name."""
    folder = tmp_path / jars.CACHE_NAME
    folder.mkdir()
    for name in ("b.jar", "a.jar", ".complete", "x.txt"):
        (folder / name).touch()
    monkeypatch.setattr(jars, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(jars, "fetch_jars", lambda pom, name: folder)
    wanted = [folder / "a.jar", folder / "b.jar"]
    monkeypatch.setattr(jars, "installed", lambda _: SPARK_VERSION)
    assert jars.cached_connector_jars() == jars.connector_jars() == wanted
    for other in ("3.5.6", None):
        monkeypatch.setattr(jars, "installed", lambda _, other=other: other)
        assert jars.cached_connector_jars() == []
    assert jars.connector_package("4.0.1").endswith("_2.13:4.0.1")


def test_a_package_that_is_not_installed_has_no_version() -> None:
    """The version is that of the installed distribution."""
    assert jars.installed("no-such-package-anywhere") is None
    assert jars.installed("pytest") == pytest.__version__


@pytest.mark.parametrize("error", [OSError("no file"), subprocess.TimeoutExpired(["/py"], 30)])
def test_a_workers_python_that_cannot_be_asked_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The program is missing, or does not end; the same holds for Java."""

    def run(command: list[str], **how: Any) -> None:
        assert how["timeout"] == 30
        raise error

    monkeypatch.setattr(doctor.subprocess, "run", run)
    monkeypatch.setenv("PYSPARK_PYTHON", "/py")
    monkeypatch.setenv("JAVA_HOME", "/jdk")
    found = doctor.check_python()
    assert (found.code, found.status) == ("python", doctor.FAILED)
    assert found.found.startswith(f"PYSPARK_PYTHON=/py is {error}, this is ")
    found = doctor.check_java()
    assert (found.status, found.found) == (doctor.FAILED, f"/jdk/bin/java: {error}")


def test_jars_are_fetched_beside_their_final_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename works within one file system alone."""
    fake = Maven(monkeypatch, tmp_path / "cache")
    fetch_jars(Path("pom.xml"), "jars")
    [command] = fake.commands
    scratch = Path(command[-1].removeprefix("-DoutputDirectory="))
    assert (scratch.parent, scratch.name[:6]) == (tmp_path / "cache", ".jars-")
