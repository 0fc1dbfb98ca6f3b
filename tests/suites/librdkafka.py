"""librdkafka's own test runner, built in a copy of its checkout; each test is a process.

Its README: ``./configure && make && make -C tests``, then ``TESTS=0030 ./run-test.sh -p1 -Q``
beside a ``test.conf`` with the brokers. Some tests call Kafka's scripts below KAFKA_PATH, made here
of Kafka's jars.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from faust_assigner.pipeline.maven import cache_dir
from faust_assigner.testing.kafka import KAFKA_VERSION, kafka_jars
from tests.suites.catalogue import Suite

PATIENCE_S = 400.0
AT_ONCE = 3
WORDS = {"PASSED": "passed", "SKIPPED": "skipped", "DNS": "skipped"}  # others: failed
KNOWN_ISSUES = ("0028_long_topicnames",)  # the suite marks these: they run only on request
SCRIPTS: Mapping[str, str] = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-run-class.sh": "",
}


def built(suite: Suite, sources: Path) -> Path:
    """Return the folder ``tests`` of a cached built copy; the first build takes minutes."""
    home = cache_dir() / "suites" / re.sub(r"\W+", "-", suite.revision)
    if not (home / "ready").exists():
        print(f"Building {home}", flush=True)
        shutil.rmtree(home, ignore_errors=True)
        built_before = shutil.ignore_patterns(".git", "*.o", "*.a", "*.so", "*.so.1", "test-runner")
        shutil.copytree(sources, home, ignore=built_before)
        jobs, quiet = f"-j{os.cpu_count()}", subprocess.DEVNULL
        configure = ["./configure", "--disable-gssapi", "--disable-curl"]
        subprocess.run(configure, cwd=home, check=True, stdout=quiet)
        for what in (["libs"], ["-C", "tests", "test-runner"]):
            subprocess.run(["make", jobs, *what], cwd=home, check=True, stdout=quiet, stderr=quiet)
        (home / "ready").touch()
    return home / "tests"


def kafka_path(folder: Path) -> Path:
    """Make the folder for KAFKA_PATH: ``bin`` has the called scripts, ``libs`` Kafka's jars."""
    (folder / "bin").mkdir()
    (folder / "libs").symlink_to(kafka_jars())
    for name, main_class in SCRIPTS.items():
        script = folder / "bin" / name
        script.write_text(
            f'#!/bin/sh\nexec java -Xmx256m -cp "$CLASSPATH:{kafka_jars()}/*" {main_class} "$@"\n'
        )
        script.chmod(0o755)
    return folder


def reported(text: str) -> dict[str, str]:
    """Return name -> passed, failed or skipped from a report, which may be broken JSON."""
    states = re.findall(r'"name": "(\d{4}_\w+)", "state": "(\w+)"', text)
    return {name: WORDS.get(state, "failed") for name, state in states}


def one(runner: Path, item: str, suite: Suite, variables: Mapping[str, str], folder: Path) -> str:
    """Return the outcome of a test (NAME or NAME/SUBTEST); a test without a report has failed."""
    name, _, subtest = item.partition("/")
    report = folder / (item.replace("/", "-") + ".json")
    chosen = {**variables, "TESTS": name[:4], "TEST_REPORT": str(report)}
    if subtest:
        chosen["SUBTESTS"] = f"{subtest}:"
    command = ["./test-runner", "-p1", *suite.arguments, *(["-k"] if name in KNOWN_ISSUES else [])]
    with open(folder / (report.stem + ".log"), "wb") as log:
        running = subprocess.Popen(
            command,
            cwd=runner,
            env=chosen,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            running.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            # including its children, started for Kafka's scripts
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    came = (
        reported(report.read_text(errors="replace")).get(name, "failed")
        if report.exists()
        else "failed"
    )
    print(f"{came:8} {item}", flush=True)
    return came


def run(
    names: Iterable[str], suite: Suite, sources: Path, bootstrap: str, protocol: str, logs: Path
) -> dict[str, str]:
    """Return the outcome of each named test; ``logs`` keeps the output."""
    runner = built(suite, sources)
    with tempfile.TemporaryDirectory() as scratch:
        folder = logs.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        conf = Path(scratch) / "test.conf"
        conf.write_text(f"bootstrap.servers={bootstrap}\nbroker.address.family=v4\n")
        home = Path(scratch) / "kafka"
        home.mkdir()
        variables = {
            **os.environ,
            "RDKAFKA_TEST_CONF": str(conf),
            "TEST_KAFKA_VERSION": KAFKA_VERSION,
            "TEST_CONSUMER_GROUP_PROTOCOL": protocol,
            "BROKERS": bootstrap,
            "KAFKA_PATH": str(kafka_path(home)),
            "LD_LIBRARY_PATH": f"{runner.parent}/src:{runner.parent}/src-cpp",
        }
        items = list(names)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            came = pool.map(lambda item: one(runner, item, suite, variables, folder), items)
            return dict(zip(items, came, strict=True))
