"""Copies the repository and runs some of its tests in the copy.

A caller plants a fault in the copy between two runs; ``tests/mutants/generated.py`` is this caller.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
#: What a test may need of the tree; build/ and the rest stay where they are.
COPIED = (
    "faust_assigner",
    "tests",
    "examples",
    "benchmarks",
    "docs",
    "setup.cfg",
    "pyproject.toml",
    "README.md",
    "Makefile",
)
#: Seconds for the tests of one fault; each test has its own limit below that.
LIMIT_S = 1200.0
#: With bytecode kept, a file that is planted anew within a second might run as it was.
NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
#: Seconds that a process may live on when its tests are over: Python takes several to end on a busy machine,
#: and pytest writes what it found wrong with the tests after its report.
GRACE_S = 30.0
#: Bytes of memory of its own for each process that runs tests of a fault. A fault may make a loop endless, and its
#: lists then fill the machine before the deadline. Files of tests of the app, the broker, the service
#: and the history pass with a quarter of this. Private writable memory is counted (RLIMIT_DATA), not addresses
#: (RLIMIT_AS): threads, Go and databases reserve many times the addresses that they use.
MEMORY_BYTES = 4 << 30
KILLED, SURVIVED = "killed", "SURVIVED"


def failed(report: Path) -> dict[str, bool]:
    """Node id -> whether it failed, read from pytest's own record; a fixture that fails is a failure."""
    outcomes: dict[str, bool] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.get("file", "")
        inside = (
            case.get("classname", "")
            .removeprefix(file.removesuffix(".py").replace("/", "."))
            .strip(".")
        )
        name = "::".join(
            part for part in (file, inside.replace(".", "::"), case.get("name", "")) if part
        )
        bad = any(case.find(kind) is not None for kind in ("failure", "error"))
        outcomes[name] = bad or outcomes.get(name, False)
    return outcomes


def run(
    tree: Path,
    tests: Iterable[str],
    *,
    options: Sequence[str] = (),
    environment: Mapping[str, str] = NO_BYTECODE,
    limit_s: float = LIMIT_S,
    tries: int = 1,
) -> tuple[dict[str, bool], str]:
    """The tests' outcomes in ``tree``; with none of them, the reason. Two tries: as their marks say."""
    report = tree / "outcomes.xml"
    report.unlink(missing_ok=True)
    environment = os.environ | {"PYTHONPATH": str(tree)} | environment
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *(["--force-reruns=0"] if tries == 1 else []),
        "--tb=line",
        "-o",
        "junit_family=xunit1",
        f"--junitxml={report}",
        *options,
        *sorted(set(tests)),
    ]
    with (tree / "output.txt").open("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=tree,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        _limit_memory(process)
        code = _end_of(process, report, limit_s)
        output.seek(0)
        said = [line for line in output if line.strip()]
    outcomes = failed(report) if report.exists() else {}
    # A pytest that found no test may have been ended before it could say so by its exit code.
    if code not in (0, 1) or not outcomes:
        reason = next((line for line in said if line.startswith("ERROR")), said[-1] if said else "")
        return {}, reason.strip() or f"pytest ended with {code}"
    return outcomes, ""


def _limit_memory(process: subprocess.Popen[bytes]) -> None:
    """Bound the memory of a process and of its later children, each by itself; a larger need is a MemoryError.

    Set from outside: the caller has threads, so that a ``preexec_fn`` may deadlock. Only Linux can do this.
    """
    if sys.platform == "linux":
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))


def _end_of(process: subprocess.Popen[bytes], report: Path, limit_s: float) -> int:
    """Its exit code; 1 where the tests are over and a thread of theirs keeps the process, which is ended."""
    end = time.monotonic() + limit_s
    while process.poll() is None and time.monotonic() < end:
        if report.exists():
            end = min(end, time.monotonic() + GRACE_S)
        time.sleep(0.1)
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return 1
    return process.returncode


def copy(root: Path, folder: Path) -> Path:
    """A copy of the tree without anything compiled, so that no old bytecode stands in for a planted bug."""
    compiled = shutil.ignore_patterns("__pycache__", ".hypothesis")
    for name in COPIED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=compiled)
        elif source.exists():
            shutil.copy2(source, folder / name)
    return folder


def scratch(root: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder below build/, away from what the tests of the tree itself collect."""
    (root / "build").mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="mutant-", dir=root / "build")
