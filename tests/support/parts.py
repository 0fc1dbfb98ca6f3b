"""A pytest plugin: the real parts that a test uses, and the tests that this machine cannot run.

A test declares Apache Kafka, Spark, a browser or Prometheus by its fixture or its mark. The mark
decides its second try and its group (tests of a group run in one process and share a server). If
the part is missing, the test cannot run: the run's first and last line have the number of such
tests and the reason. Under ``CI=true`` such a run is an error.

    python -m tests.support.parts        # fetch the missing jars, archive Kafka's classes, if possible
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from faust_assigner.pipeline import jars as spark_jars
from faust_assigner.pipeline.maven import cache_dir, fetch_jars
from faust_assigner.testing import kafka
from tests.support import java, prometheus

#: The parts in the order in which their groups start: Spark's takes the longest.
PARTS = {
    "spark": (spark_jars.POM, spark_jars.CACHE_NAME),
    "kafka": (kafka.POM, f"kafka-{kafka.KAFKA_VERSION}"),
}
#: All parts, in the same order.
ALL = (*PARTS, "browser", "prometheus")
#: The names under which distributions install Chromium.
BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
COUNTING = "COUNT_TESTS_OF_FAUST_ASSIGNER"


def why_not(part: str) -> str | None:
    """Return the reason why this machine cannot run ``part``, or None."""
    if part == "browser":
        return None if any(map(shutil.which, BROWSERS)) else "no Chromium is on PATH"
    if part == "prometheus":
        return prometheus.why_not()
    if shutil.which("java") is None:
        return "java is not on PATH"
    if not _fetched(part) and shutil.which("mvn") is None:
        return "mvn is not on PATH, and its jars were not fetched before"
    return None


def _fetched(part: str) -> bool:
    return (cache_dir() / PARTS[part][1] / ".complete").exists()


def used_by(item: pytest.Item) -> list[str]:
    """Return the real parts that a test uses."""
    declared = _marks(item) | set(getattr(item, "fixturenames", ()))
    return [part for part in ALL if part in declared]


def _marks(item: pytest.Item) -> set[str]:
    """Return the names of a test's marks, in one walk: it is done for each of 20,000 tests."""
    return {mark.name for mark in item.iter_markers()}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Add second tries, groups and skips at once: xdist reads the groups after the collection."""
    used = used_by(item)
    if used or item.get_closest_marker("processes"):
        item.add_marker(pytest.mark.flaky(reruns=1))
    if used:
        item.add_marker(pytest.mark.xdist_group(_group(item, used[0])))
    if missing := [part for part in used if why_not(part)]:
        item.add_marker(pytest.mark.skip(reason=f"needs {missing[0]}: {why_not(missing[0])}"))


def _group(item: pytest.Item, part: str) -> str:
    """Return the test's group: Kafka's short tests share a server, long ones take turns by file."""
    if part == "kafka" and item.get_closest_marker("slow"):
        return f"kafka {item.path.name}"
    return part


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run slow tests first."""
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """Return the rank of a test: slow tests first, so that the run does not end with them."""
    used = used_by(item)
    if used:
        return ALL.index(used[0])
    if item.get_closest_marker("processes"):
        return len(ALL)
    if "slow" in _marks(item):
        return len(ALL) + 1
    return len(ALL) + 2 + item.nodeid.startswith("tests/unit/")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Print a line for each selected test that cannot run, for the count."""
    if COUNTING in os.environ:
        for item in session.items:
            if missing := [part for part in used_by(item) if why_not(part)]:
                print(f"cannot-run {missing[0]}")


def count(arguments: Iterable[str]) -> Counter[str]:
    """Count these pytest arguments' tests that cannot run, by part; costs 0 s if all can."""
    if not any(map(why_not, ALL)):
        return Counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, "--collect-only", "-q"],
        env=os.environ | {COUNTING: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return Counter(
        line.split()[1] for line in done.stdout.splitlines() if line.startswith("cannot-run ")
    )


def sentence(counts: Counter[str]) -> str:
    """Return the sentence that a run prints first and last."""
    parts = (
        f"{number} tests of {part} ({why_not(part)})" for part, number in sorted(counts.items())
    )
    return f"CANNOT RUN HERE: {', '.join(parts)}"


_cannot: Counter[str] = Counter()


def pytest_configure(config: pytest.Config) -> None:
    """Print first which tests cannot run; under CI end the run."""
    if COUNTING in os.environ or hasattr(config, "workerinput") or config.option.collectonly:
        return
    _cannot.update(count(_without_workers(config.invocation_params.args)))
    if _cannot:
        print(sentence(_cannot), flush=True)
        if os.environ.get("CI") == "true":
            raise pytest.UsageError("CI runs everything: install what is missing")


def _without_workers(arguments: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return the arguments without those of xdist."""
    found, skip = [], False
    for argument in map(str, arguments):
        if not skip and not argument.startswith(("-n", "--dist", "--numprocesses")):
            found.append(argument)
        skip = argument in ("-n", "--dist", "--numprocesses")
    return found


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Repeat the sentence at the end."""
    if _cannot:
        print(sentence(_cannot), flush=True)


if __name__ == "__main__":
    for name, (pom, folder) in PARTS.items():
        if why_not(name) is None and not _fetched(name):
            began = time.monotonic()
            fetch_jars(Path(pom), folder)
            print(f"fetched the jars of {name} in {time.monotonic() - began:.0f} s")
    if why_not("kafka") is None:
        java.write_archive()
