"""Jars from Maven, fetched once and kept in a cache folder: a second run needs no registry."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from faust_assigner.errors import FaustAssignerError
from faust_assigner.settings.schema import read
from faust_assigner.settings.table import CACHE


class JarsError(FaustAssignerError, RuntimeError):
    """The jars could not be fetched; the message carries Maven's own reason."""


def cache_dir() -> Path:
    """Where fetched jars stay: ``$FAUST_ASSIGNER_CACHE`` or ``~/.cache/faust-assigner``."""
    return read(CACHE, environment=os.environ).expanduser()


def fetch_jars(pom: Path, name: str) -> Path:
    """Copy the dependencies of ``pom`` into the cache folder ``name``; return that folder.

    Two processes may fetch at once: each fills a folder of its own and the first rename wins.
    Cost: one Maven run (about 5 s) the first time, nothing after that.
    """
    target = cache_dir() / name
    if (target / ".complete").exists():
        return target
    if shutil.which("mvn") is None:
        raise JarsError(f"Maven (mvn) is not on PATH; it fetches the jars of {name}")
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
    command = [
        "mvn",
        "-q",
        "-B",
        "-f",
        str(pom),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={fresh}",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        shutil.rmtree(fresh, ignore_errors=True)
        said = f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        raise JarsError(f"{' '.join(command)} failed:\n{said}")
    (fresh / ".complete").touch()
    _publish(fresh, target)
    return target


def _publish(fresh: Path, target: Path) -> None:
    """Move ``fresh`` into place unless someone else was first; a torso left by a kill gives way."""
    if not (target / ".complete").exists():
        shutil.rmtree(target, ignore_errors=True)
        try:
            fresh.rename(target)
            return
        except OSError:
            if not (target / ".complete").exists():
                raise
    shutil.rmtree(fresh, ignore_errors=True)
