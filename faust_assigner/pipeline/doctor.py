"""Check whether this machine can run the pipeline, and name the fix for each failed check."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from faust_assigner.pipeline.jars import (
    ARTIFACTS,
    SPARK_RANGE,
    SPARK_VERSION,
    cached_connector_jars,
    connector_package,
    installed,
)

#: The lowest version of Java that Spark 4 runs on; Java 21 and later need no further settings.
JAVA_AT_LEAST = 17
INSTALL = "pip install 'faust-assigner[spark]'"

JAVA_SAID = "see the lines Java printed above"
OK, WARNING, FAILED = "ok", "warning", "failed"


@dataclass(frozen=True)
class Finding:
    """The result of one check: a stable code, the status, the observation, and the fix, if needed."""

    code: str
    status: str
    found: str
    fix: str = ""


def examine(*, start: bool = False) -> list[Finding]:
    """Run all checks in order; with ``start``, also start a session and run one Spark job (10 s)."""
    checks: list[Callable[[], Finding]] = [
        check_java,
        check_pyspark,
        check_pandas,
        *(
            lambda name=name: check_package(name)
            for name in ("pyarrow", "matplotlib", "jinja2", "fsspec")
        ),
        check_python,
        check_connector,
    ]
    findings = [check() for check in checks]
    if start and not any(finding.status == FAILED for finding in findings):
        findings.append(check_session())
    return findings


def is_fit(findings: Sequence[Finding]) -> bool:
    """Return whether all checks passed; after a warning, jobs run, but a feature is missing or untested."""
    return all(finding.status != FAILED for finding in findings)


def check_java() -> Finding:
    """Check that JAVA_HOME or PATH has Java in a sufficient version."""
    fix = f"install a JDK >= {JAVA_AT_LEAST} (apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        return Finding("java", FAILED, "no java on PATH and no JAVA_HOME", fix)
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("java", FAILED, f"{java}: {error}", fix)
    version = java_version(said)
    if version is None:
        return Finding("java", FAILED, f"{java} says {said[:80]!r}", fix)
    if version < JAVA_AT_LEAST:
        return Finding("java", FAILED, f"Java {version} at {java}", fix)
    return Finding("java", OK, f"Java {version} at {java}")


def java_version(said: str) -> int | None:
    """Return the major version in the output of ``java -version``; None if it contains no version.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_402"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else None


def check_pyspark() -> Finding:
    """Check that PySpark has a version that the pipeline supports."""
    version = installed("pyspark")
    if version is None:
        return Finding("pyspark", FAILED, "not installed", INSTALL)
    least, beyond = SPARK_RANGE
    if not least <= tuple(int(part) for part in version.split(".")[:2]) < beyond:
        wanted = f">={least[0]}.{least[1]},<{beyond[0]}.{beyond[1]}"
        return Finding(
            "pyspark", FAILED, f"pyspark {version}; not {wanted}", f"pip install 'pyspark{wanted}'"
        )
    if version != SPARK_VERSION:
        return Finding(
            "pyspark",
            WARNING,
            f"pyspark {version}; this release is tested on {SPARK_VERSION}",
            f"pip install 'pyspark=={SPARK_VERSION}'",
        )
    return Finding("pyspark", OK, f"pyspark {version}")


def check_pandas() -> Finding:
    """Check that pandas has a version that Spark's Arrow code supports."""
    version = installed("pandas")
    if version is None:
        return Finding("pandas", FAILED, "not installed", INSTALL)
    if int(version.partition(".")[0]) >= 3:
        return Finding(
            "pandas", FAILED, f"pandas {version}; PySpark needs < 3", "pip install 'pandas>=2.2,<3'"
        )
    return Finding("pandas", OK, f"pandas {version}")


def check_package(name: str) -> Finding:
    """Check that the package ``name``, a part of the ``spark`` extra, is installed."""
    version = installed(name)
    return (
        Finding(name, FAILED, "not installed", INSTALL)
        if version is None
        else Finding(name, OK, f"{name} {version}")
    )


def check_python() -> Finding:
    """Check that Spark's workers run this Python version: Spark refuses different versions."""
    here = ".".join(map(str, sys.version_info[:2]))
    worker = os.environ.get("PYSPARK_PYTHON")
    if worker is None:
        return Finding("python", OK, f"Python {here} for driver and workers")
    ask = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    try:
        there = subprocess.run(
            [worker, "-c", ask], capture_output=True, text=True, timeout=30
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        there = str(error)
    if there != here:
        return Finding(
            "python",
            FAILED,
            f"PYSPARK_PYTHON={worker} is {there or 'no Python'}, this is {here}",
            f"unset PYSPARK_PYTHON, or export PYSPARK_PYTHON={sys.executable}",
        )
    return Finding("python", OK, f"Python {here} for driver and workers ({worker})")


def check_connector() -> Finding:
    """Check for the jars of Spark's Kafka connector; without these jars, aiokafka reads the topics."""
    version = installed("pyspark")
    if version not in (None, SPARK_VERSION):
        return Finding(
            "kafka-connector",
            WARNING,
            f"fetched for pyspark {SPARK_VERSION} only; aiokafka reads topics",
            f"--packages {connector_package(str(version))}",
        )
    names = [jar.name for jar in cached_connector_jars()]
    missing = [
        artifact for artifact in ARTIFACTS if not any(name.startswith(artifact) for name in names)
    ]
    if not missing:
        return Finding("kafka-connector", OK, ", ".join(names))
    maven = "" if shutil.which("mvn") else " (install Maven first: apt-get install maven)"
    return Finding(
        "kafka-connector",
        WARNING,
        f"not fetched: {', '.join(missing)}; aiokafka reads topics",
        f"python -m faust_assigner.pipeline.jars{maven}",
    )


def check_session() -> Finding:
    """Start a session and run a job in its Python workers."""
    from pyspark.errors import PySparkException

    from faust_assigner.pipeline.session import spark_session

    try:
        spark = spark_session("local[1]", "faust-assigner doctor")
        try:
            counted = spark.range(3).mapInArrow(lambda batches: batches, "id long").count()
        finally:
            spark.stop()
    except (PySparkException, OSError, RuntimeError) as error:
        found = str(error).strip() or type(error).__name__
        return Finding("session", FAILED, found.splitlines()[0], JAVA_SAID)
    if counted != 3:
        return Finding("session", FAILED, f"a job of 3 rows gave {counted}", JAVA_SAID)
    return Finding("session", OK, "started, ran a job in Python workers, stopped")
