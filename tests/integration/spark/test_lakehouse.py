"""``history --format`` in a session without the format's jars; ``make spark-matrix`` writes real tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.history.job import run
from faust_assigner.pipeline.history.options import HistoryOptions

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize(
    ("kind", "package"),
    [
        ("delta", "io.delta:delta-spark_4.2_2.13"),
        ("iceberg", "org.apache.iceberg:iceberg-spark-runtime-4.2_2.13"),
    ],
)
def test_a_session_without_the_package_is_refused_before_a_line_is_read(
    spark: SparkSession, tmp_path: Path, kind: str, package: str
) -> None:
    """The error has the option and the package for this Spark; no file is written."""
    options = HistoryOptions((str(tmp_path),), str(tmp_path / "out"), format=kind)
    with pytest.raises(ConfigError, match=re.escape(f"--packages {package}:")):
        run(spark, options)
    assert not (tmp_path / "out").exists()
