"""The pipeline on each supported Spark: ``make spark-matrix``, SPARKS="3.5 connect" for some.

For each version this module installs PySpark into a folder below build/ and starts a session there.
It compares the history, two visits of a stream, the weights and a snapshot with a run without
Spark. ``connect`` uses a local Spark Connect server, ``standalone`` a cluster of a master and two
workers on loopback whose Python lacks this package. ``delta`` and ``iceberg`` compare the tables of
``--format``, with the format's jars by Maven. Prints a table and exits with 1 if an entry differs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from faust_assigner.pipeline.jars import installed
from faust_assigner.pipeline.maven import fetch_jars
from faust_assigner.testing.ports import free_port

ROOT = Path(__file__).parents[2]
HOME = ROOT / "build" / "spark"
VERSIONS = ("3.5", "4.0", "4.1", "4.2")
#: Entry -> the version of Spark, the format, and the format's jars without Spark's own.
LAKEHOUSES = {
    "delta": (
        "4.2",
        "delta",
        (
            "io.delta:delta-spark_4.2_2.13:4.4.0",
            "io.delta:delta-storage:4.4.0",
            "io.delta:delta-kernel-api:4.4.0",
            "io.delta:delta-kernel-defaults:4.4.0",
        ),
    ),
    "delta-3.5": (
        "3.5",
        "delta",
        ("io.delta:delta-spark_2.12:3.3.2", "io.delta:delta-storage:3.3.2"),
    ),
    "iceberg": ("4.0", "iceberg", ("org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1",)),
    "iceberg-3.5": (
        "3.5",
        "iceberg",
        ("org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.1",),
    ),
}
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>faust-assigner</groupId>
  <artifactId>lakehouse</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version><exclusions>"
    "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
)
#: Packages that Spark Connect's client needs beside the extra's packages.
CONNECT = ("grpcio-status", "googleapis-common-protos", "zstandard")
#: A cluster on two cores of a busy machine takes 12 minutes or more.
DEADLINE_S = 1800
#: Hides this package from the workers' Python if a checkout is installed in place.
HIDE = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in str(f).lower()]
sys.path[:] = [p for p in sys.path if p != {root!r}]
"""


def main(wanted: list[str]) -> int:
    """Run the given entries, or all; return the exit code."""
    outcomes = []
    for name in wanted or (*VERSIONS, "connect", "standalone", *LAKEHOUSES):
        version, said, seconds = _entry(name)
        print(f"{name:<11} {version:<8} {said:<60} {seconds:>5.0f} s", flush=True)
        outcomes.append(said)
    return 0 if all(said == "equal" for said in outcomes) else 1


def _entry(name: str) -> tuple[str, str, float]:
    """Return (version, "equal" or the error, seconds)."""
    began = time.monotonic()
    version = name if name in VERSIONS else LAKEHOUSES.get(name, VERSIONS[-1:])[0]
    folders = [_spark(version)]
    if name == "connect":
        folders.append(_installed(*CONNECT, at=HOME / "connect"))
    path = os.pathsep.join([*map(str, folders), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
    with _cluster(folders[0], environment) if name == "standalone" else _own(name) as master:
        command = [sys.executable, "-m", "tests.support.spark_matrix", "--one", master]
        if name in LAKEHOUSES:
            _, kind, jars = LAKEHOUSES[name]
            command[2:] = ["tests.support.lakehouse", kind, _jars(name, jars)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                env=environment,
                cwd=ROOT,
                timeout=DEADLINE_S,
            )
        except subprocess.TimeoutExpired:
            return version, f"no result within {DEADLINE_S} s", time.monotonic() - began
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        words = (done.stderr.strip().splitlines() or ["no word"])[-1]
        return version, words[:60], time.monotonic() - began
    told = json.loads(lines[-1])
    return str(told["version"]), str(told["said"]), time.monotonic() - began


@contextlib.contextmanager
def _own(name: str) -> Iterator[str]:
    yield "connect" if name == "connect" else "local[1]"


def _jars(name: str, wanted: tuple[str, ...]) -> str:
    """Return the files of the jars ``wanted``, in the notation of ``spark.jars``."""
    versions = "-".join(sorted({coordinates.rpartition(":")[2] for coordinates in wanted}))
    dependencies = "".join(DEPENDENCY.format(*coordinates.split(":")) for coordinates in wanted)
    with tempfile.TemporaryDirectory(prefix="spark-matrix-") as folder:
        pom = Path(folder) / "pom.xml"
        pom.write_text(POM.format(dependencies=dependencies))
        return ",".join(map(str, sorted(fetch_jars(pom, f"{name}-{versions}").glob("*.jar"))))


def _spark(version: str) -> Path:
    """Return the folder of that PySpark: this environment's, or one below build/."""
    if (installed("pyspark") or "").startswith(f"{version}."):
        (own,) = importlib.util.find_spec("pyspark").submodule_search_locations  # type: ignore[union-attr, misc]
        return Path(own).parent
    return _installed(f"pyspark=={version}.*", at=HOME / version)


def _installed(*packages: str, at: Path) -> Path:
    if not (at / ".complete").exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade"]
        if packages[0].startswith("pyspark"):
            subprocess.run([*pip, "--target", str(at), packages[0]], check=True)
            subprocess.run([*pip, "--target", str(at), _py4j(at)], check=True)
        else:
            subprocess.run([*pip, "--target", str(at), *packages], check=True)
        (at / ".complete").touch()
    return at


def _py4j(at: Path) -> str:
    """Return the exact py4j requirement of this PySpark."""
    (metadata,) = at.glob("pyspark-*.dist-info/METADATA")
    line = next(x for x in metadata.read_text().splitlines() if x.startswith("Requires-Dist: py4j"))
    return line.removeprefix("Requires-Dist: ").replace("(", "").replace(")", "").partition(";")[0]


@contextlib.contextmanager
def _cluster(at: Path, environment: dict[str, str]) -> Iterator[str]:
    """A master and two workers; the Python of their executors does not have this package."""
    with tempfile.TemporaryDirectory(prefix="spark-cluster-") as folder:
        (Path(folder) / "sitecustomize.py").write_text(HIDE.format(root=str(ROOT)))
        python = Path(folder) / "python"
        python.write_text(
            f'#!/bin/sh\nexport PYTHONPATH="{folder}:$PYTHONPATH"\nexec {sys.executable} "$@"\n'
        )
        python.chmod(0o755)
        port = free_port()
        spark, kind = str(at / "pyspark" / "bin" / "spark-class"), "org.apache.spark.deploy"
        own = {k: v for k, v in environment.items() if k != "PYTHONPATH"} | {
            "SPARK_NO_DAEMONIZE": "1"
        }
        master = f"spark://127.0.0.1:{port}"
        commands = [
            [spark, f"{kind}.master.Master", "--host", "127.0.0.1", "--port", str(port),
             "--webui-port", str(free_port())],
            *([spark, f"{kind}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g",
               "--webui-port", str(free_port()), "--work-dir", f"{folder}/work-{n}", master]
              for n in range(2)),
        ]  # fmt: skip
        with contextlib.ExitStack() as held, open(f"{folder}/log", "wb") as log:
            for command in commands:
                process = subprocess.Popen(command, stdout=log, stderr=log, env=own, cwd=folder)
                held.callback(process.wait)
                held.callback(process.kill)
                time.sleep(3)
            environment["PYSPARK_PYTHON"] = str(python)
            yield master


def one(master: str) -> dict[str, Any]:
    """Compare on the session of ``master``; return "version" and "said"."""
    import pyspark

    from faust_assigner.pipeline.session import spark_session
    from tests.integration.spark.ledgers import Ledger, bad_lines, expected, random_rows

    if master == "connect":
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.remote("local[1]").getOrCreate()
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    else:
        small = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2"}
        spark = spark_session(master, "spark-matrix", settings=small)
    with tempfile.TemporaryDirectory(prefix="spark-matrix-") as folder:
        ledger = Ledger(Path(folder) / "ledger")
        lines = [line for seed in range(2) for line in random_rows(f"g{seed}", seed)] + bad_lines()
        random.Random(1).shuffle(lines)
        half = len(lines) // 2
        ledger.write("a.jsonl", lines[:half])
        said = _history(spark, ledger, Path(folder), lines[half:])
        assert expected(ledger.lines)["movement"]
        said = said or _weights(spark, ledger) or _snapshots(spark, Path(folder))
    spark.stop()
    return {"version": pyspark.__version__, "said": said or "equal"}


def _history(spark: Any, ledger: Any, folder: Path, rest: list[Any]) -> str:
    """Two visits of a stream and one run over everything; return "" or the one that differs."""
    from faust_assigner.pipeline.history import plots
    from faust_assigner.pipeline.history.job import run, run_here
    from faust_assigner.pipeline.history.options import HistoryOptions

    plots.draw = lambda report: {}  # type: ignore[assignment]

    def options(name: str, *, stream: bool = False) -> HistoryOptions:
        return HistoryOptions((str(ledger.folder),), str(folder / name), stream=stream)

    run(spark, options("stream", stream=True))
    ledger.write("b.jsonl", rest)
    wanted = run_here(options("here")).tables
    if run(spark, options("stream", stream=True)).tables != wanted:
        return "the stream differs"
    return "" if run(spark, options("whole")).tables == wanted else "the history differs"


def _weights(spark: Any, ledger: Any) -> str:
    from faust_assigner.pipeline.weights.job import Request, learn_here, learn_on_spark

    now = datetime(2026, 12, 1, tzinfo=UTC)
    reports = []
    for name, learn in (("here", learn_here), ("spark", lambda r: learn_on_spark(spark, r))):
        out = str(ledger.folder.parent / f"{name}.json")
        learn(Request((str(ledger.folder),), now, out))
        told = json.loads(Path(out).read_text())
        reports.append(json.dumps(_rounded(told), sort_keys=True))
    return "" if reports[0] == reports[1] else "the weights differ"


def _snapshots(spark: Any, folder: Path) -> str:
    """Compact a changelog of two partitions in tasks and in this process; compare the bytes."""
    from benchmarks.compaction import TOPIC, changelog
    from faust_assigner.pipeline.snapshots.run import PART_SCHEMA, RECORD, collect, compact_records
    from faust_assigner.pipeline.snapshots.spans import Job, Span, publish
    from faust_assigner.pipeline.snapshots.writer import SpanWriter

    records = changelog(spark, keys=200, rounds=3, partitions=2).select(*RECORD)
    spans = (Span(0, 0, 300), Span(1, 0, 300))
    jobs = [Job(TOPIC, str(folder / name), spans, created_ms=0) for name in ("there", "here")]
    parts = collect(records.mapInArrow(compact_records(jobs[0]), PART_SCHEMA))
    rows = sorted(records.collect(), key=lambda row: (row.partition, row.offset))
    here = []
    for span in spans:
        with SpanWriter(jobs[1], span) as writer:
            own = [row for row in rows if row.partition == span.partition]
            keys, values = ([bytes(row[name]) for row in own] for name in ("key", "value"))
            writer.add(keys, values, first_offset=0, last_offset=299)
            here.append(writer.finish())
    return "" if publish(jobs[0], parts) == publish(jobs[1], here) else "the snapshots differ"


def _rounded(value: Any) -> Any:
    """Round doubles, whose sums depend on their order in the last bits."""
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, 9) if isinstance(value, float) else value


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(sys.argv[2])))
    else:
        sys.exit(main(sys.argv[1:]))
