"""The complete output of the pipeline's commands, and the doctor's findings."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import asdict
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from faust_assigner.pipeline import console, doctor, jars, session
from faust_assigner.pipeline.console import (
    show,
    show_findings,
    show_history,
    show_manifests,
    show_removals,
    show_verdicts,
)
from faust_assigner.pipeline.doctor import FAILED, INSTALL, OK, WARNING, Finding
from faust_assigner.pipeline.history.report import REPORTED, About, Report
from faust_assigner.pipeline.jars import SPARK_RANGE, SPARK_VERSION
from faust_assigner.snapshots.manifest import Manifest
from faust_assigner.snapshots.retention import Removal
from faust_assigner.snapshots.verification import Verdict


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the printed lines."""
    return capsys.readouterr().out.splitlines()


# -- tables ---------------------------------------------------------------------------------------


def test_columns_are_as_wide_as_their_widest_cell(capsys: pytest.CaptureFixture[str]) -> None:
    """No line ends with blanks; a table without rows has its heads."""
    show("Title", ("a", "long head", "c"), [("wide cell", "b", ""), ("x", "y", "z")])
    show("Empty", ("a", "b"), [])
    assert lines(capsys) == [
        "Title",
        "a          long head  c",
        "wide cell  b",
        "x          y          z",
        "Empty",
        "a  b",
    ]


def day(number: int, **more: Any) -> dict[str, Any]:
    """Return a row of a daily table."""
    return {"group_id": "g", "dt": date(2026, 11, number), **more}


def test_names_with_brackets_and_colons_are_shown_as_they_are_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In rich's markup ``[/b]`` ends a style, and ``:key:`` is a picture; both occur in ledgers."""
    out = io.StringIO()
    made: list[dict[str, Any]] = []

    def plain(**options: Any) -> Console:
        made.append(options)
        return Console(file=out, force_terminal=True, width=60, **options)

    monkeypatch.setattr(console, "Console", plain)
    show("Refused [lines]", ("where",), [("orders[test]",), ("a[/b]",), ("a:key:b",)])
    assert made == [{"highlight": False, "markup": False, "emoji": False}]
    assert all(
        name in out.getvalue() for name in ("Refused [lines]", "orders[test]", "a[/b]", "a:key:b")
    )


def test_the_whole_text_of_a_history(capsys: pytest.CaptureFixture[str]) -> None:
    """The text has the summary, headline, ordered tables, first refused lines and the folder."""
    tables: dict[str, Any] = {name: [] for name in REPORTED}
    counts = {"decisions": 3, "assigned": 12, "moved": 5, "cold_moves": 1, "standby_hits": 2}
    tables["movement"] = [day(20, policy="p", **counts)]
    spread = {"max_spread": None, "mean_spread": 0.5, "idle_members": 4}
    tables["balance"] = [day(21, policy="q", **spread)]
    took = {"recoveries": 6, "records": 70, "p50_s": 1.0, "p90_s": 2.25, "max_s": 3.0}
    tables["recovery"] = [day(22, source="local", **took)]
    tables["quarantine"] = [
        {"file": "f", "line": number, "reason": f"why {number}"} for number in range(1, 26)
    ]
    report = Report(tables, refused=1_234, about=About(version="1"))
    show_history(report, "out")
    told = lines(capsys)
    assert told[:4] == ["The history has no line.", "", "History", "what" + " " * 29 + "value"]
    headline = [f"{name:31}  {value}" for name, value in report.headline()]
    assert told[4 : 4 + len(headline)] == headline
    assert told[4 + len(headline) :] == [
        "",
        "Movement, in topic partitions",
        "group_id  dt          policy  decisions  assigned  moved  cold_moves  standby_hits",
        "g         2026-11-20  p       3          12        5      1           2",
        "",
        "Balance, in topic partitions",
        "group_id  dt          policy  max_spread  mean_spread  idle_members",
        "g         2026-11-21  q       -           0.500        4",
        "",
        "Recovery",
        "group_id  dt          source  recoveries  records  p50_s  p90_s  max_s",
        "g         2026-11-22  local   6           70       1.000  2.250  3.000",
        "",
        "Refused lines (1,234 in all)",
        "where  why",
        *(f"f:{number}".ljust(5) + f"  why {number}" for number in range(1, 21)),
        "",
        "Written to out: report.html, report.json, and a Parquet folder for each table",
    ]


MANIFEST = Manifest(
    topic="log", partition=3, snapshot_id="00042", next_offset=42, keys=1_000, bytes=2_048,
    sha256="x", created_at="2026-11-21T00:00:00Z", files=("a", "b"), layers=(1, 1), new_bytes=512,
)  # fmt: skip


def test_snapshots_are_shown_with_their_layers_and_new_bytes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A whole snapshot has one layer; without partitions there is no topic."""
    plain = Manifest(**{**asdict(MANIFEST), "partition": 4, "layers": None, "new_bytes": None})
    show_manifests([MANIFEST, plain], "somewhere")
    show_manifests([], "somewhere")
    assert lines(capsys) == [
        "Snapshots of log",
        "partition  next_offset  keys   bytes  new_bytes  layers  snapshot_id",
        "3          42           1,000  2,048  512        2       00042",
        "4          42           1,000  2,048  0          1       00042",
        "",
        "Written to somewhere",
        "No partitions",
        "partition  next_offset  keys  bytes  new_bytes  layers  snapshot_id",
        "",
        "Written to somewhere",
    ]
    show_manifests([MANIFEST], "somewhere", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads(json.dumps([asdict(MANIFEST)]))


def test_verdicts_and_removals_as_tables_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Both forms have all facts."""
    verdicts = [Verdict("a", MANIFEST, None), Verdict("b", None, "no manifest")]
    removals = [
        Removal(path="x/1.sst", size=1_024, reason="old"),
        Removal(path="x/2.sst", size=0, reason="left over"),
    ]
    show_verdicts(verdicts)
    show_removals(removals, dry_run=True)
    show_removals(removals[:1], dry_run=False)
    assert lines(capsys) == [
        "Snapshots",
        "snapshot  state       why",
        "a         ok",
        "b         unfinished  no manifest",
        "Would remove 2",
        "path     bytes  why",
        "x/1.sst  1,024  old",
        "x/2.sst  0      left over",
        "Removed 1",
        "path     bytes  why",
        "x/1.sst  1,024  old",
    ]
    show_verdicts(verdicts, as_json=True)
    assert json.loads(capsys.readouterr().out) == [
        {"snapshot": "a", "visible": True, "problem": None},
        {"snapshot": "b", "visible": False, "problem": "no manifest"},
    ]
    show_removals(removals, dry_run=True, as_json=True)
    assert json.loads(capsys.readouterr().out) == [asdict(each) for each in removals]


def test_findings_are_followed_by_their_fixes(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a fix there is no second table."""
    good, bad = Finding("java", OK, "Java 17"), Finding("pandas", FAILED, "none", "install it")
    show_findings([good, bad])
    show_findings([good])
    assert lines(capsys) == [
        "Spark on this machine",
        "check   status  found",
        "java    ok      Java 17",
        "pandas  failed  none",
        "",
        "What to do",
        "check   fix",
        "pandas  install it",
        "Spark on this machine",
        "check  status  found",
        "java   ok      Java 17",
    ]


# -- the doctor -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fails", "starts", "sessions"), [(False, True, 1), (True, True, 0), (False, False, 0)]
)
def test_all_checks_run_in_their_order_and_a_session_only_after_good_ones(
    monkeypatch: pytest.MonkeyPatch, fails: bool, starts: bool, sessions: int
) -> None:
    """The session also needs a request."""
    names = ("java", "pyspark", "pandas", "python", "connector")
    for name in names:
        status = FAILED if fails and name == "python" else WARNING
        monkeypatch.setattr(
            doctor, f"check_{name}", lambda name=name, status=status: Finding(name, status, "")
        )
    monkeypatch.setattr(doctor, "check_package", lambda name: Finding(name, OK, ""))
    monkeypatch.setattr(doctor, "check_session", lambda: Finding("session", OK, ""))
    found = doctor.examine(start=starts)
    packages = ["pyarrow", "matplotlib", "jinja2", "fsspec"]
    wanted = ["java", "pyspark", "pandas", *packages, "python", "connector"]
    assert [each.code for each in found] == wanted + ["session"] * sessions
    assert doctor.is_fit(found) is not fails


def test_each_finding_about_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java may be on PATH or in JAVA_HOME; each failure has the same fix."""
    said = ['openjdk version "17.0.15" 2025-04-15']
    asked: list[Any] = []

    def run(command: list[str], **more: Any) -> Any:
        asked.append(command)
        if said[0] == "hangs":
            raise subprocess.TimeoutExpired("java", 30)
        return SimpleNamespace(stderr=said[0])

    monkeypatch.setattr(doctor.subprocess, "run", run)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert doctor.check_java() == Finding("java", OK, "Java 17 at /usr/bin/java")
    monkeypatch.setenv("JAVA_HOME", "/opt/jdk")
    assert doctor.check_java() == Finding("java", OK, "Java 17 at /opt/jdk/bin/java")
    assert asked == [["/usr/bin/java", "-version"], ["/opt/jdk/bin/java", "-version"]]
    found = []
    for said[0] in ('java version "16.0.1"', "x" * 90, "hangs"):
        found.append(doctor.check_java())
    assert [(each.status, each.found) for each in found[:2]] == [
        (FAILED, "Java 16 at /opt/jdk/bin/java"),
        (FAILED, f"/opt/jdk/bin/java says {'x' * 80!r}"),
    ]
    assert found[2].found.startswith("/opt/jdk/bin/java: ")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    found.append(doctor.check_java())
    assert found[3].found == "no java on PATH and no JAVA_HOME"
    assert len({each.fix for each in found}) == 1
    assert found[0].fix.startswith("install a JDK >= 17 ")


LEAST, BEYOND = SPARK_RANGE
WANTED = f">={LEAST[0]}.{LEAST[1]},<{BEYOND[0]}.{BEYOND[1]}"


@pytest.mark.parametrize(
    ("version", "finding"),
    [
        (None, Finding("pyspark", FAILED, "not installed", INSTALL)),
        (SPARK_VERSION, Finding("pyspark", OK, f"pyspark {SPARK_VERSION}")),
        (
            f"{BEYOND[0]}.{BEYOND[1]}.0",
            Finding(
                "pyspark",
                FAILED,
                f"pyspark {BEYOND[0]}.{BEYOND[1]}.0; not {WANTED}",
                f"pip install 'pyspark{WANTED}'",
            ),
        ),
        (
            f"{LEAST[0]}.{LEAST[1]}.0.dev1",
            Finding(
                "pyspark",
                WARNING,
                f"pyspark {LEAST[0]}.{LEAST[1]}.0.dev1; this release is tested on {SPARK_VERSION}",
                f"pip install 'pyspark=={SPARK_VERSION}'",
            ),
        ),
    ],
)
def test_each_finding_about_pyspark(
    monkeypatch: pytest.MonkeyPatch, version: str | None, finding: Finding
) -> None:
    """The range includes its lowest version and excludes its highest."""
    monkeypatch.setattr(doctor, "installed", lambda _: version)
    assert doctor.check_pyspark() == finding


def test_each_finding_about_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """pandas 3 is too new."""
    found: dict[str, str | None] = {"pandas": "2.9.1", "pyarrow": "19"}
    monkeypatch.setattr(doctor, "installed", lambda name: found.get(name))
    assert doctor.check_pandas() == Finding("pandas", OK, "pandas 2.9.1")
    assert doctor.check_package("pyarrow") == Finding("pyarrow", OK, "pyarrow 19")
    assert doctor.check_package("x") == Finding("x", FAILED, "not installed", INSTALL)
    found["pandas"] = None
    assert doctor.check_pandas() == Finding("pandas", FAILED, "not installed", INSTALL)
    found["pandas"] = "3.0"
    fix = "pip install 'pandas>=2.2,<3'"
    assert doctor.check_pandas() == Finding("pandas", FAILED, "pandas 3.0; PySpark needs < 3", fix)


def test_each_finding_about_the_workers_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is read from the workers' Python."""
    here = ".".join(map(str, sys.version_info[:2]))
    said = [f"{here}\n"]
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=said[0]))
    monkeypatch.setenv("PYSPARK_PYTHON", "/py")
    told = f"Python {here} for driver and workers"
    assert doctor.check_python() == Finding("python", OK, f"{told} (/py)")
    fix = f"unset PYSPARK_PYTHON, or export PYSPARK_PYTHON={sys.executable}"
    for said[0], shown in (("", "no Python"), ("3.9\n", "3.9")):
        text = f"PYSPARK_PYTHON=/py is {shown}, this is {here}"
        assert doctor.check_python() == Finding("python", FAILED, text, fix)
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert doctor.check_python() == Finding("python", OK, told)


def test_each_finding_about_the_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only jars for this Spark version count; missing jars are named with a remedy."""
    version: list[str | None] = ["3.5.6"]
    monkeypatch.setattr(doctor, "installed", lambda _: version[0])
    there: list[Path] = []
    monkeypatch.setattr(doctor, "cached_connector_jars", lambda: there)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert doctor.check_connector() == Finding(
        "kafka-connector",
        WARNING,
        f"fetched for pyspark {SPARK_VERSION} only; aiokafka reads topics",
        "--packages org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.6",
    )
    names = [f"{artifact}-1.jar" for artifact in jars.ARTIFACTS]
    for found in (SPARK_VERSION, None):
        version[0] = found
        there[:] = [Path("/c", name) for name in names[:2]]
        missing = ", ".join(jars.ARTIFACTS[2:])
        command = "python -m faust_assigner.pipeline.jars"
        assert doctor.check_connector() == Finding(
            "kafka-connector",
            WARNING,
            f"not fetched: {missing}; aiokafka reads topics",
            f"{command} (install Maven first: apt-get install maven)",
        )
        there[:] = [Path("/c", name) for name in names]
        assert doctor.check_connector() == Finding("kafka-connector", OK, ", ".join(names))
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/mvn")
    there.clear()
    assert doctor.check_connector().fix == command


@pytest.mark.parametrize(
    ("outcome", "finding"),
    [
        (3, Finding("session", OK, "started, ran a job in Python workers, stopped")),
        (
            2,
            Finding(
                "session", FAILED, "a job of 3 rows gave 2", "see the lines Java printed above"
            ),
        ),
        (
            RuntimeError("Java gateway\nmore"),
            Finding("session", FAILED, "Java gateway", "see the lines Java printed above"),
        ),
    ],
)
def test_a_session_of_the_doctor_is_stopped_whatever_its_job_does(
    monkeypatch: pytest.MonkeyPatch, outcome: Any, finding: Finding
) -> None:
    """The session runs one task on this machine."""
    calls: list[Any] = []

    def count() -> int:
        if isinstance(outcome, Exception):
            raise outcome
        return int(outcome)

    frame = SimpleNamespace(mapInArrow=lambda task, schema: SimpleNamespace(count=count))
    spark = SimpleNamespace(range=lambda n: frame, stop=lambda: calls.append("stopped"))
    monkeypatch.setattr(session, "spark_session", lambda *given: calls.append(given) or spark)
    assert doctor.check_session() == finding
    assert calls == [("local[1]", "faust-assigner doctor"), "stopped"]


def test_a_terminal_shows_a_table_in_a_box_and_no_cell_as_markup() -> None:
    """The title is at the left, above the heads."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=40, color_system=None, highlight=False)
    show("Title", ("a", "head"), [("long cell", "x"), ("", "y")], console)
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        "Title",
        "┏━━━━━━━━━━━┳━━━━━━┓",
        "┃ a         ┃ head ┃",
        "┡━━━━━━━━━━━╇━━━━━━┩",
        "│ long cell │ x    │",
        "│           │ y    │",
        "└───────────┴──────┘",
    ]
