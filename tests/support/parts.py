"""A pytest plugin: which real parts a test uses, and what happens to it where the machine lacks them.

A test that uses Apache Kafka, Spark, a browser or Prometheus says so by its fixture or its mark. From that
follow its second try, its group (what runs in one process, which has one server for all), and, where what
the part needs is missing, that it cannot run: the run's first and last line say how many could not and why.
Under ``CI=true`` such a run is an error.

    python -m tests.support.parts        # fetch the jars that are missing; nothing where they cannot be had
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
from tests.support import prometheus

#: The parts in the order in which their groups begin: Spark's is the longest.
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
    """Why this machine cannot run ``part``; None where it can."""
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
    """The real parts that a test uses."""
    fixtures = getattr(item, "fixturenames", ())
    return [part for part in ALL if item.get_closest_marker(part) or part in fixtures]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Second tries, groups, and what cannot run. At once: xdist reads the groups when all are collected."""
    used = used_by(item)
    if used or item.get_closest_marker("processes"):
        item.add_marker(pytest.mark.flaky(reruns=1))
    if used:
        item.add_marker(pytest.mark.xdist_group(_group(item, used[0])))
    if missing := [part for part in used if why_not(part)]:
        item.add_marker(pytest.mark.skip(reason=f"needs {missing[0]}: {why_not(missing[0])}"))


def _group(item: pytest.Item, part: str) -> str:
    """What runs in one process. Kafka's tests go by files: together they are longer than all others."""
    return f"kafka {item.path.name}" if part == "kafka" else part


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long begins first."""
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """What takes long begins first, or it would be what everybody waits for in the end."""
    used = used_by(item)
    if used:
        return ALL.index(used[0])
    return len(ALL) + (item.get_closest_marker("processes") is None)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """For the count: one line for each test that is left and cannot run."""
    if COUNTING in os.environ:
        for item in session.items:
            if missing := [part for part in used_by(item) if why_not(part)]:
                print(f"cannot-run {missing[0]}")


def count(arguments: Iterable[str]) -> Counter[str]:
    """How many of the tests of these pytest arguments cannot run, by part; 0 s where all of them can."""
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
    """What is said first and last."""
    parts = (
        f"{number} tests of {part} ({why_not(part)})" for part, number in sorted(counts.items())
    )
    return f"CANNOT RUN HERE: {', '.join(parts)}"


_cannot: Counter[str] = Counter()


def pytest_configure(config: pytest.Config) -> None:
    """Say first what cannot run; under CI that is the end of it."""
    if COUNTING in os.environ or hasattr(config, "workerinput") or config.option.collectonly:
        return
    _cannot.update(count(_without_workers(config.invocation_params.args)))
    if _cannot:
        print(sentence(_cannot), flush=True)
        if os.environ.get("CI") == "true":
            raise pytest.UsageError("CI runs everything: install what is missing")


def _without_workers(arguments: Iterable[str | os.PathLike[str]]) -> list[str]:
    """The arguments less those of xdist."""
    found, skip = [], False
    for argument in map(str, arguments):
        if not skip and not argument.startswith(("-n", "--dist", "--numprocesses")):
            found.append(argument)
        skip = argument in ("-n", "--dist", "--numprocesses")
    return found


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Say it again where nobody can miss it."""
    if _cannot:
        print(sentence(_cannot), flush=True)


if __name__ == "__main__":
    for name, (pom, folder) in PARTS.items():
        if why_not(name) is None and not _fetched(name):
            began = time.monotonic()
            fetch_jars(Path(pom), folder)
            print(f"fetched the jars of {name} in {time.monotonic() - began:.0f} s")
