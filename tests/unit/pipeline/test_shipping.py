"""The check of the executors' Python, with a process for the executor."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle

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
