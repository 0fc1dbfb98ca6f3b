"""The check of the executors' Python, with a process for the executor."""

from __future__ import annotations

import atexit
import importlib
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle

from faust_assigner.pipeline import shipping
from faust_assigner.pipeline.shipping import PACKAGE, ExecutorsLackPackages, ship

#: The executor unpickles the function and runs it without the named modules.
EXECUTOR = """
import pickle, sys
class Without:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Without)
(answer,) = pickle.load(sys.stdin.buffer)(iter([None]))
print(answer.column("lacks")[0].as_py())
"""


class Session:
    """A Spark session with one executor, which lacks a module until the driver sends it."""

    def __init__(self, lacks: str) -> None:
        self.lacks = [lacks]
        self.sent: list[Path] = []

    def range(self, *_: int) -> Session:
        """Return a single task."""
        return self

    def mapInArrow(self, task: Callable[..., Any], schema: str) -> Session:  # noqa: N802 - Spark's
        """Record the task of the next ``collect()``."""
        self.task = cloudpickle.dumps(task)
        return self

    def collect(self) -> list[Any]:
        """Run the task in a process."""
        command = [sys.executable, "-c", EXECUTOR, *self.lacks]
        done = subprocess.run(
            command, input=self.task, capture_output=True, check=True, timeout=120
        )
        return [SimpleNamespace(lacks=done.stdout.decode().strip())]

    def addArtifacts(self, archive: str, *, pyfile: bool) -> None:  # noqa: N802 - Spark's
        """Give the package to the executor."""
        self.sent.append(Path(archive))
        self.lacks.remove(PACKAGE)


@pytest.mark.slow
def test_the_package_is_sent_to_executors_that_lack_it() -> None:
    """The package is sent once as a zip file; the second check finds all modules."""
    session: Any = Session(PACKAGE)
    ship(session)
    assert [file.name for file in session.sent] == [f"{PACKAGE}.zip"]


def test_a_dependency_that_the_executors_lack_is_named_at_once() -> None:
    """Only the package can be sent; without the check, the first job fails later."""
    session: Any = Session("pyarrow.compute")
    with pytest.raises(ExecutorsLackPackages, match=r"no module 'pyarrow\.compute'"):
        ship(session)
    assert session.sent == []


@pytest.mark.parametrize(
    ("answers", "sent", "lacks"),
    [
        (["", "never asked"], 0, None),
        ([PACKAGE, ""], 1, None),
        ([PACKAGE, "pyarrow"], 1, "pyarrow"),
        (["numpy", "never asked"], 0, "numpy"),
        ([PACKAGE, PACKAGE], 1, PACKAGE),
    ],
)
def test_the_package_alone_is_sent_and_the_executors_are_asked_again(
    monkeypatch: pytest.MonkeyPatch, answers: list[str], sent: int, lacks: str | None
) -> None:
    """The error names the module that is missing after the package was sent."""
    asked = iter(answers)
    archives: list[object] = []
    monkeypatch.setattr(shipping, "_missing", lambda spark: next(asked))
    monkeypatch.setattr(shipping, "package_zip", lambda: "archive")
    monkeypatch.setattr(shipping, "_send", lambda *given: archives.append(given))
    spark: Any = "spark"
    if lacks is None:
        ship(spark)
    else:
        with pytest.raises(ExecutorsLackPackages, match=f"has no module '{lacks}': install"):
            ship(spark)
    assert archives == [("spark", "archive")] * sent


def test_the_archive_has_all_files_of_the_package_below_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Templates and other data are included, compiled files are not; the folder goes at the exit."""
    package = tmp_path / PACKAGE
    for name in ("__init__.py", "pipeline/shipping.py", "pipeline/log4j2.xml", "page/a.html"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(name)
    (package / "page/__pycache__").mkdir()
    (package / "page/__pycache__/a.pyc").touch()
    monkeypatch.setattr(shipping, "__file__", str(package / "pipeline/shipping.py"))
    at_exit: list[Any] = []
    monkeypatch.setattr(atexit, "register", lambda *given, **named: at_exit.append((given, named)))
    found = shipping.package_zip()
    with zipfile.ZipFile(found) as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist()} == {
            f"{PACKAGE}/{name}": name
            for name in (
                "__init__.py",
                "page/a.html",
                "pipeline/log4j2.xml",
                "pipeline/shipping.py",
            )
        }
    assert found.name == f"{PACKAGE}.zip"
    [((remove, folder), named)] = at_exit
    assert (folder, named) == (found.parent, {"ignore_errors": True})
    remove(folder, **named)
    assert not folder.exists()


def test_each_kind_of_session_gets_the_archive_as_python_code() -> None:
    """Sessions of Spark 3.5 have no artifacts; Spark Connect has no SparkContext."""
    calls: list[Any] = []
    connect: Any = SimpleNamespace(
        addArtifacts=lambda *given, **named: calls.append((given, named))
    )
    context = SimpleNamespace(addPyFile=lambda *given: calls.append(given))
    classic: Any = SimpleNamespace(sparkContext=context)
    both: Any = SimpleNamespace(**vars(connect), **vars(classic))
    for session in (connect, classic, both):
        shipping._send(session, Path("/a.zip"))
    artifact = (("/a.zip",), {"pyfile": True})
    assert calls == [artifact, ("/a.zip",), artifact]


@pytest.mark.parametrize("lacks", ["pyarrow.dataset", None])
def test_one_task_imports_the_merge_and_answers_with_the_missing_module(
    monkeypatch: pytest.MonkeyPatch, lacks: str | None
) -> None:
    """The task is pickled by value: its module is not on the executors."""
    asked: list[Any] = []
    module, real = f"{PACKAGE}.pipeline.history.on_spark", importlib.import_module

    def load(name: str, package: str | None = None) -> Any:
        if name != module:
            return real(name, package)
        asked.append(name)
        if lacks is not None:
            raise ModuleNotFoundError("none", name=lacks)
        return None

    class Here(Session):
        def range(self, *given: int) -> Session:
            asked.append(given)
            return self

        def mapInArrow(self, task: Callable[..., Any], schema: str) -> Session:  # noqa: N802 - Spark's
            asked.append((task.__module__, schema))
            self.batches = list(task(iter([None])))
            return self

        def collect(self) -> list[Any]:
            return [SimpleNamespace(**row) for one in self.batches for row in one.to_pylist()]

    monkeypatch.setattr(importlib, "import_module", load)
    session: Any = Here("")
    assert shipping._missing(session) == (lacks or "")
    assert asked == [(0, 1, 1, 1), ("__main__", "lacks string"), module]
