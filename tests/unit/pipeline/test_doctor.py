"""The doctor's findings with remedies, and the commands' one-line errors and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from faust_assigner.cli import main
from faust_assigner.pipeline import doctor
from faust_assigner.pipeline.doctor import FAILED, OK, WARNING, Finding


def by_code(findings: list[Finding]) -> dict[str, Finding]:
    """Return the findings by code."""
    return {finding.code: finding for finding in findings}


def versions(monkeypatch: pytest.MonkeyPatch, **found: str | None) -> None:
    """Pretend that these versions are installed."""
    monkeypatch.setattr(doctor, "installed", lambda name: found.get(name, "1.0"))


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_java_versions_old_and_new(said: str, version: int | None) -> None:
    """Java 8's version is 1.8."""
    assert doctor.java_version(said) == version


def test_machine_without_java_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Java may be on PATH or in JAVA_HOME."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = doctor.check_java()
    assert finding.status == FAILED
    assert "openjdk" in finding.fix
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor.check_java().status == FAILED


def test_old_java_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark 4 needs Java 17."""
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    finding = doctor.check_java()
    assert (finding.status, "Java 11" in finding.found) == (FAILED, True)


@pytest.mark.parametrize(
    ("found", "code", "fix"),
    [
        ({"pyspark": None}, "pyspark", "faust-assigner[spark]"),
        ({"pyspark": "4.3.0"}, "pyspark", "pyspark>=3.5,<4.3"),
        ({"pyspark": "3.4.4"}, "pyspark", "pyspark>=3.5,<4.3"),
        ({"pandas": "3.0.1"}, "pandas", "<3"),
        ({"pandas": None}, "pandas", "faust-assigner[spark]"),
        ({"jinja2": None}, "jinja2", "faust-assigner[spark]"),
    ],
)
def test_each_wrong_package_has_its_fix(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, str | None], code: str, fix: str
) -> None:
    """The package makes the machine unfit."""
    versions(monkeypatch, **{"pyspark": "4.2.0", "pandas": "2.3.3", **found})
    findings = doctor.examine()
    assert by_code(findings)[code].status == FAILED
    assert fix in by_code(findings)[code].fix
    assert not doctor.is_fit(findings)


def test_missing_jars_are_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Topics can still be read through aiokafka."""
    monkeypatch.setenv("FAUST_ASSIGNER_CACHE", str(tmp_path))
    finding = doctor.check_connector()
    assert finding.status == WARNING
    assert "faust_assigner.pipeline.jars" in finding.fix
    assert doctor.is_fit([finding])


def test_workers_python_must_be_the_drivers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark refuses mixed versions; a broken python counts as missing."""
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.9\n")
    other.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    finding = doctor.check_python()
    assert (finding.status, "3.9" in finding.found) == (FAILED, True)
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "nothing"))
    assert doctor.check_python().status == FAILED
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert doctor.check_python().status == OK


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (RuntimeError(), "RuntimeError"),
        (OSError("\n"), "OSError"),
        (RuntimeError("\nJava gateway process exited\nwith 1"), "Java gateway process exited"),
    ],
)
def test_a_failed_session_names_its_error(
    monkeypatch: pytest.MonkeyPatch, error: Exception, found: str
) -> None:
    """The finding is the first line of the error's text, or the error's type if there is no text."""
    pytest.importorskip("pyspark")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("faust_assigner.pipeline.session.spark_session", fail)
    finding = doctor.check_session()
    assert (finding.status, finding.found) == (FAILED, found)


def test_command_prints_plain_lines_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal no boxes are printed; the exit code is 1 after a failed check, else 0."""
    versions(monkeypatch, pyspark="4.2.0", pandas="3.0.0")
    plain = CliRunner().invoke(main, ["spark", "doctor"])
    assert plain.exit_code == 1
    assert "pandas 3.0.0" in plain.output
    assert not set("│┃━") & set(plain.output)
    versions(monkeypatch, pyspark="4.2.0", pandas="2.3.3")
    told = CliRunner().invoke(main, ["spark", "doctor", "--json"])
    assert told.exit_code == 0
    assert {"code", "status", "found", "fix"} == set(json.loads(told.output)[0])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--ledger", "/no/such/ledger", "--out", "x"], 2, "no such ledger: /no/such/ledger"),
        (["--ledger", "kafka://host", "--out", "x"], 2, "is not kafka://"),
        (["--out", "x"], 2, "Missing option '--ledger'"),
        (["--ledger", "/tmp", "--out", "x", "--every", "5"], 2, "--every requires --stream"),
    ],
)
def test_wrong_arguments_are_one_line_before_spark_starts(
    arguments: list[str], code: int, said: str
) -> None:
    """The exit code is 2."""
    result = CliRunner().invoke(main, ["history", *arguments])
    assert result.exit_code == code
    assert said in result.output
    assert "Traceback" not in result.output


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without PySpark the command names the extra to install and exits with 1."""
    import sys

    # Other tests import both with PySpark; a module left in sys.modules would be found, and start
    # PySpark. Their packages have them as attributes too; both are restored at the end.
    for name in [n for n in sys.modules if n.startswith(("pyspark.", "faust_assigner.pipeline."))]:
        package, _, module = name.rpartition(".")
        if package in sys.modules:
            monkeypatch.delattr(sys.modules[package], module, raising=False)
    for name in [n for n in sys.modules if n.startswith(("pyspark.", "faust_assigner.pipeline."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    result = CliRunner().invoke(main, ["history", "--ledger", str(tmp_path), "--out", "x"])
    assert result.exit_code == 1
    assert "faust-assigner[spark]" in result.output
