"""Run a suite against a broker and compare the outcomes with the kept list.

    python -m tests.suites.run SUITE --sources CHECKOUT [--protocol consumer] [--broker kafka] [-k WORDS]

``make suites`` calls this module. ``--sources`` is a checkout of the suite's project at the
revision in :mod:`tests.suites.catalogue`; the checkout is not changed. The suite runs in its own
environment in the cache folder, with the client of its project. The exit code is 1 if an outcome
differs from its line in ``expected/``.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

from faust_assigner.pipeline.maven import cache_dir
from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.kafka import kafka_server
from tests.suites import librdkafka, tools
from tests.suites.catalogue import SETTINGS, SUITES, Suite
from tests.suites.expected_list import differences, read

PLUGINS = Path(__file__).with_name("plugins")
Outcomes = dict[str, str]  # name -> passed, failed or skipped


@contextlib.contextmanager
def broker(kind: str, settings: Mapping[str, str | None]) -> Iterator[str]:
    """Start a fresh broker of the kind (ours, kafka) and yield its address."""
    if kind == "kafka":
        with kafka_server(settings) as server:
            yield server.bootstrap
    else:
        chosen = [f"{name}={value}" for name, value in settings.items() if value is not None]
        with tempfile.TemporaryDirectory() as data, broker_process(Path(data), *chosen) as ours:
            yield ours.bootstrap


def environment(name: str, suite: Suite) -> Path:
    """Return the Python of a suite; the first use builds it for these requirements."""
    stamp = hashlib.sha256("\n".join((*suite.requirements, sys.version)).encode()).hexdigest()[:12]
    venv = cache_dir() / "suites" / f"{name}-{stamp}"
    python = venv / "bin" / "python"
    if not (venv / "ready").exists():
        print(f"Building {venv}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *suite.requirements], check=True)
        (venv / "ready").touch()
    return python


def outcomes(report: Path) -> Outcomes:
    """Return name -> passed, failed (including fixtures) or skipped, from a JUnit report.

    A passed test with a failed clean-up occurs twice in a report and counts as failed.
    """
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        tags = {child.tag for child in case}
        outcome = (
            "failed"
            if tags & {"failure", "error"}
            else "skipped"
            if "skipped" in tags
            else "passed"
        )
        found[name] = "failed" if "failed" in (outcome, found.get(name)) else outcome
    return found


def go_outcomes(lines: Iterable[str]) -> Outcomes:
    """Return the outcomes from ``go test -json`` output; a test without an end has failed."""
    words = {"run": "failed", "pass": "passed", "fail": "failed", "skip": "skipped"}
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return {e["Test"]: words[e["Action"]] for e in events if "Test" in e and e["Action"] in words}


def _run_pytest(
    python: Path, suite: Suite, sources: Path, variables: Mapping[str, str], more: list[str]
) -> Outcomes:
    # The suite's own folder comes first: its packages are called `tests` too.
    variables = {**variables, "PYTHONPATH": f"{sources}{os.pathsep}{PLUGINS}"}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        subprocess.run(
            [
                python,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "--timeout",
                "180",
                "--tb",
                "short",
                f"--junitxml={report}",
                *suite.arguments,
                *suite.folders,
                *more,
            ],
            cwd=sources,
            env=variables,
            check=False,
        )
        return outcomes(report) if report.exists() else {}


def _run_go(suite: Suite, sources: Path, variables: Mapping[str, str], more: list[str]) -> Outcomes:
    command = [
        "go",
        "test",
        "-json",
        "-count",
        "1",
        "-timeout",
        "30m",
        *suite.folders,
        *suite.arguments,
    ]
    command += more
    lines = []
    with subprocess.Popen(
        command, cwd=sources, env=variables, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line)
            said = json.loads(line).get("Output", "") if line.startswith("{") else line
            print(said, end="", flush=True)
    return go_outcomes(lines)


def run(name: str, sources: Path, protocol: str, kind: str, more: list[str]) -> Outcomes:
    """Run a suite with ``more`` arguments and return each test's outcome."""
    suite = SUITES[name]
    python = environment(name, suite) if suite.runner == "pytest" else Path()
    with broker(kind, {**SETTINGS, **suite.settings}) as bootstrap:
        words = {"bootstrap": bootstrap, "protocol": protocol}
        variables = {**os.environ, **{k: v.format(**words) for k, v in suite.environment.items()}}
        match suite.runner:
            case "go":
                return _run_go(suite, sources, variables, more)
            case "librdkafka":
                logs = Path("build") / "suites" / f"{name}-{protocol}-{kind}"
                names = [
                    n for n in read(name, protocol) if not more or any(word in n for word in more)
                ]
                return librdkafka.run(names, suite, sources, bootstrap, protocol, logs)
            case "tools":
                return tools.run(bootstrap, protocol, more)
            case _:
                return _run_pytest(python, suite, sources, variables, more)


def main(arguments: list[str]) -> int:
    """Run, print each test's outcome and the counts; return 1 for unexpected outcomes."""
    parser = argparse.ArgumentParser(prog="tests.suites.run", description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument(
        "--sources", type=Path, default=Path(), help="its checkout; tools needs none"
    )
    parser.add_argument("--protocol", default="classic", choices=("classic", "consumer", "both"))
    parser.add_argument("--broker", default="ours", choices=("ours", "kafka"))
    chosen, rest = parser.parse_known_args(arguments)
    if chosen.protocol not in SUITES[chosen.suite].protocols:
        parser.error(f"{chosen.suite} has no run in the {chosen.protocol} protocol")
    came = run(chosen.suite, chosen.sources.resolve(), chosen.protocol, chosen.broker, rest)
    for name, outcome in sorted(came.items()):
        print(f"{outcome:8} {name}")
    counts = Counter(came.values())
    title = f"{chosen.suite}, {chosen.protocol} protocol, on {chosen.broker}"
    print(
        f"{title}: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
    )
    expected = read(chosen.suite, chosen.protocol)
    otherwise = differences(
        {n: e for n, e in expected.items() if not rest or n in came}, came, chosen.broker
    )
    for line in otherwise:
        print(f"OTHERWISE {line}")
    return int(bool(otherwise) or not came)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
