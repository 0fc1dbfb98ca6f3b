"""``history --format delta`` in a session without Delta; ``make spark-matrix`` writes real Delta tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.history.delta import DELTA
from faust_assigner.pipeline.history.job import HistoryOptions, run

pytestmark = pytest.mark.spark


def test_a_session_without_the_package_is_refused_before_a_line_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The error names the option and the package of this Spark; nothing is written."""
    options = HistoryOptions((str(tmp_path),), str(tmp_path / "out"), format=DELTA)
    with pytest.raises(ConfigError, match=r"--packages io\.delta:delta-spark_4\.2_2\.13:"):
        run(spark, options)
    assert not (tmp_path / "out").exists()
