"""Fetch jars from Maven once into a cache folder; a second run needs no registry."""

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
    """The jars could not be fetched; the message contains Maven's output."""


def cache_dir() -> Path:
    """The cache folder of fetched jars: ``$FAUST_ASSIGNER_CACHE`` or ``~/.cache/faust-assigner``."""
    return read(CACHE, environment=os.environ).expanduser()


def fetch_jars(pom: Path, name: str) -> Path:
    """Copy the dependencies of ``pom`` into the cache folder ``name``; return that folder.

    Two processes may fetch concurrently: each fills its own folder, and the first rename is kept.
    Cost: one Maven run (about 5 s) if the cache lacks the jars.
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
    """Rename ``fresh`` to ``target``, unless another process was first; replace an incomplete folder."""
    if not (target / ".complete").exists():
        shutil.rmtree(target, ignore_errors=True)
        try:
            fresh.rename(target)
            return
        except OSError:
            if not (target / ".complete").exists():
                raise
    shutil.rmtree(fresh, ignore_errors=True)
