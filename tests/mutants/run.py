"""Plants each listed bug in a copy of the tree and looks whether the tests that must see it do.

    python -m tests.mutants.run                         # every room
    python -m tests.mutants.run --room app --jobs 2     # tests/mutants/app.py alone, two at a time
    python -m tests.mutants.run --match "put back"      # those whose story says so

A mutant is ``killed`` when every test it names fails, ``SURVIVED`` when one passes, ``stale`` when its old
text is no longer there and ``broken`` when pytest could not run the tests (a name that is gone, a bug that
does not even import). The same tests run without a bug first: what is ``red`` anyway sees nothing.
Exit code 1 unless all are killed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests import mutants
from tests.mutants import Mutant, Stale, planted

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
#: Seconds for the tests of one mutant; each test has its own limit below that.
LIMIT_S = 1200.0
#: With bytecode kept, a file that is planted anew within a second might run as it was.
NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
#: Seconds that a process may live on when its tests are over: Python takes several to end on a busy machine,
#: and pytest writes what it found wrong with the tests after its report.
GRACE_S = 30.0
#: Modules beside the lists.
TOOLS = frozenset({"run", "generated", "operators", "equivalent", "calls"})
KILLED, SURVIVED, STALE, BROKEN, RED = "killed", "SURVIVED", "stale", "broken", "red"


class Verdict(NamedTuple):
    """What became of one mutant; ``detail`` names the test that did not see it, or the reason."""

    mutant: Mutant
    outcome: str
    seconds: float
    detail: str = ""


def rooms() -> list[str]:
    """Names of the lists, in order."""
    return sorted(
        module.name for module in pkgutil.iter_modules(mutants.__path__) if module.name not in TOOLS
    )


def listed(room: str) -> tuple[Mutant, ...]:
    """The mutants of one room."""
    found: tuple[Mutant, ...] = importlib.import_module(f"tests.mutants.{room}").MUTANTS
    return found


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


def saw(test: str, outcomes: dict[str, bool]) -> bool:
    """Whether ``test`` failed, or one of its cases where it names them all."""
    return any(bad for name, bad in outcomes.items() if name == test or name.startswith(test + "["))


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
        code = _end_of(
            subprocess.Popen(
                command,
                cwd=tree,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ),
            report,
            limit_s,
        )
        output.seek(0)
        said = [line for line in output if line.strip()]
    outcomes = failed(report) if report.exists() else {}
    # A pytest that found no test may have been ended before it could say so by its exit code.
    if code not in (0, 1) or not outcomes:
        reason = next((line for line in said if line.startswith("ERROR")), said[-1] if said else "")
        return {}, reason.strip() or f"pytest ended with {code}"
    return outcomes, ""


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


def judge(root: Path, mutant: Mutant, red_anyway: frozenset[str]) -> Verdict:
    """Plant one bug and run its tests."""
    began = time.monotonic()

    def verdict(outcome: str, detail: str = "") -> Verdict:
        return Verdict(mutant, outcome, time.monotonic() - began, detail)

    try:
        source = planted((root / mutant.file).read_text(encoding="utf-8"), mutant)
        compile(source, mutant.file, "exec")
    except (Stale, OSError) as exc:
        return verdict(STALE, str(exc))
    except SyntaxError as exc:
        return verdict(BROKEN, str(exc))
    if blind := sorted(red_anyway & set(mutant.red)):
        return verdict(RED, f"without the bug: {', '.join(blind)}")
    with scratch(root) as folder:
        tree = copy(root, Path(folder))
        (tree / mutant.file).write_text(source, encoding="utf-8")
        outcomes, reason = run(tree, mutant.red)
    if reason:
        return verdict(BROKEN, reason)
    passed = [test for test in mutant.red if not saw(test, outcomes)]
    return verdict(SURVIVED, ", ".join(passed)) if passed else verdict(KILLED)


def scratch(root: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder below build/, away from what the tests of the tree itself collect."""
    (root / "build").mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="mutant-", dir=root / "build")


def red_without_a_bug(root: Path, chosen: Sequence[Mutant]) -> frozenset[str]:
    """Of the tests that ``chosen`` name, those that fail as the tree is.

    None if pytest cannot run all of them: the mutant that names a test that is gone will be found broken.
    """
    tests = {test for mutant in chosen for test in mutant.red}
    with scratch(root) as folder:
        outcomes, _ = run(copy(root, Path(folder)), tests)
    return frozenset(test for test in tests if saw(test, outcomes))


def judged(root: Path, chosen: Sequence[Mutant], jobs: int = 1) -> Iterator[Verdict]:
    """A verdict for each, in order, as they come."""
    red_anyway = red_without_a_bug(root, chosen) if chosen else frozenset()
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda mutant: judge(root, mutant, red_anyway), chosen)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each and a sum."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants.run", description="Plant bugs, watch tests see them."
    )
    parser.add_argument(
        "--room", action="append", choices=rooms(), help="again for another; default: all"
    )
    parser.add_argument("--match", default="", help="only those with this in their story")
    parser.add_argument("--jobs", type=int, default=1, help="at a time")
    options = parser.parse_args(arguments)
    chosen = [
        mutant
        for room in options.room or rooms()
        for mutant in listed(room)
        if options.match in mutant.story
    ]
    tally: Counter[str] = Counter()
    for verdict in judged(ROOT, chosen, options.jobs):
        tally[verdict.outcome] += 1
        print(
            f"{verdict.outcome:8} {verdict.seconds:6.1f} s  {verdict.mutant.file}: {verdict.mutant.story}",
            *(f"\n         {verdict.detail}" for _ in range(bool(verdict.detail))),
            flush=True,
        )
    print(
        ", ".join(
            f"{tally[outcome]} {outcome}" for outcome in (KILLED, SURVIVED, STALE, BROKEN, RED)
        )
    )
    return 0 if chosen and tally[KILLED] == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
