"""One suite against one broker, compared with the kept list. ``make suites`` calls it.

    python -m tests.suites.run SUITE --sources CHECKOUT [--protocol consumer] [--broker kafka] [-k WORDS]

``--sources`` is a checkout of the suite's project at the revision that :mod:`tests.suites.catalogue` names;
nothing in it is changed. The suite runs in an environment of its own, kept in the cache folder, with the
client it was written for. The exit code is 1 when a test did otherwise than its line in ``expected/`` says.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

from faust_assigner.maven import cache_dir
from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.kafka import kafka_server
from tests.suites.catalogue import SETTINGS, SUITES, Suite
from tests.suites.expected_list import differences, read

PLUGINS = Path(__file__).with_name("plugins")


@contextlib.contextmanager
def broker(kind: str, settings: Mapping[str, str | None]) -> Iterator[str]:
    """A fresh broker of that kind (ours, kafka); yields its address."""
    if kind == "kafka":
        with kafka_server(settings) as server:
            yield server.bootstrap
    else:
        chosen = [f"{name}={value}" for name, value in settings.items() if value is not None]
        with tempfile.TemporaryDirectory() as data, broker_process(Path(data), *chosen) as ours:
            yield ours.bootstrap


def environment(name: str, suite: Suite) -> Path:
    """The Python to run a suite with; built on first use, for these requirements and this Python."""
    stamp = hashlib.sha256("\n".join((*suite.requirements, sys.version)).encode()).hexdigest()[:12]
    venv = cache_dir() / "suites" / f"{name}-{stamp}"
    python = venv / "bin" / "python"
    if not (venv / "ready").exists():
        print(f"Building {venv}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *suite.requirements], check=True)
        (venv / "ready").touch()
    return python


def outcomes(report: Path) -> dict[str, str]:
    """Name -> passed, failed (errors of fixtures too) or skipped, of a JUnit report.

    A test that passed and whose clean-up failed stands twice in a report; it has failed.
    """
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        tags = {child.tag for child in case}
        outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        found[name] = "failed" if "failed" in (outcome, found.get(name)) else outcome
    return found


def run(name: str, sources: Path, protocol: str, kind: str, pytest_arguments: list[str]) -> dict[str, str]:
    """Run it; what each test came to."""
    suite = SUITES[name]
    python = environment(name, suite)
    with broker(kind, {**SETTINGS, **suite.settings}) as bootstrap, tempfile.TemporaryDirectory() as folder:
        words = {"bootstrap": bootstrap, "protocol": protocol}
        report = Path(folder) / "report.xml"
        # The suite's own folder comes first: its packages are called `tests` as well.
        variables = {**os.environ, **{k: v.format(**words) for k, v in suite.environment.items()},
                     "PYTHONPATH": f"{sources}{os.pathsep}{PLUGINS}"}
        subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "180", "--tb", "short",
             f"--junitxml={report}", *suite.arguments, *suite.folders, *pytest_arguments],
            cwd=sources, env=variables, check=False)
        return outcomes(report) if report.exists() else {}


def main(arguments: list[str]) -> int:
    """Run, print every name with its outcome and the counts; 1 when the kept list says otherwise."""
    parser = argparse.ArgumentParser(prog="tests.suites.run", description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--protocol", default="classic", choices=("classic", "consumer"))
    parser.add_argument("--broker", default="ours", choices=("ours", "kafka"))
    chosen, rest = parser.parse_known_args(arguments)
    if chosen.protocol not in SUITES[chosen.suite].protocols:
        parser.error(f"{chosen.suite} has no run in the {chosen.protocol} protocol")
    came = run(chosen.suite, chosen.sources.resolve(), chosen.protocol, chosen.broker, rest)
    for name, outcome in sorted(came.items()):
        print(f"{outcome:8} {name}")
    counts = Counter(came.values())
    title = f"{chosen.suite}, {chosen.protocol} protocol, on {chosen.broker}"
    print(f"{title}: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    expected = read(chosen.suite, chosen.protocol)
    otherwise = differences({n: e for n, e in expected.items() if not rest or n in came}, came, chosen.broker)
    for line in otherwise:
        print(f"OTHERWISE {line}")
    return int(bool(otherwise) or not came)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
