"""Create a Spark session, on a laptop, under ``spark-submit`` and in tests.

PySpark is imported inside the functions, so that ``spark doctor`` can report a missing package.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from faust_assigner.pipeline.shipping import ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG4J = Path(__file__).with_name("log4j2.xml")

#: The settings of each session, local or on a cluster.
SETTINGS: Mapping[str, str] = {
    # Days (``dt``) are UTC days on every machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # pandas and pyarrow read timestamps of this type without a legacy switch.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

#: The settings of a local session: web page and ports on loopback only, no kill buttons.
LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.ui.port": "0",
    "spark.ui.killEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG4J}",
}


def spark_session(
    master: str | None = "local[*]",
    app_name: str = "faust-assigner",
    *,
    jars: Iterable[str | Path] = (),
    packages: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the session of :func:`held_session` if there is one, else a session on ``master``.

    ``master``: None if ``spark-submit`` sets the master, ``sc://…`` for a Spark Connect server.
    ``jars`` are files; ``packages`` are Maven coordinates that Spark itself resolves. Both have an effect
    only when a session starts. Cost of a start: 3-8 s.
    """
    if _held:
        return _held[-1]
    # Local workers must run this interpreter; on a cluster the submitter may set a different interpreter.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    if master is not None and master.startswith("sc://"):
        return _connected(builder.remote(master))
    if master is not None:
        builder = builder.master(master)
    if master is not None and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    wanted = _settings(master, jars, packages, settings or {})
    for key, value in wanted.items():
        builder = builder.config(key, value)
    # py4j logs each call at DEBUG and each broken pipe at INFO; neither is useful here.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    spark: SparkSession = builder.getOrCreate()
    if not (spark.conf.get("spark.master", "") or "").startswith("local"):
        ship(spark)
    return spark


def _settings(
    master: str | None,
    jars: Iterable[str | Path],
    packages: Sequence[str],
    given: Mapping[str, str],
) -> dict[str, str]:
    """Merge a new session's settings: ``given`` overrides the defaults, which override the environment."""
    wanted = {**s3_settings(os.environ), **SETTINGS}
    if master is not None and master.startswith("local"):
        wanted |= LOCAL_SETTINGS
        wanted["spark.sql.shuffle.partitions"] = str(_local_width(master))
    wanted |= given
    if jar_list := [str(jar) for jar in jars]:
        wanted["spark.jars"] = ",".join(jar_list)
    if packages:
        wanted["spark.jars.packages"] = ",".join(packages)
    return wanted


#: Sessions of :func:`held_session`, which several commands share.
_held: list[SparkSession] = []


@contextlib.contextmanager
def held_session(
    master: str | None,
    jars: Iterable[str | Path],
    packages: Sequence[str],
    settings: Mapping[str, str],
) -> Iterator[SparkSession]:
    """Yield a session that all commands inside the block share; stop it at the end of the block."""
    name = "faust-assigner pipeline"
    spark = spark_session(master, name, jars=jars, packages=packages, settings=settings)
    _held.append(spark)
    try:
        yield spark
    finally:
        _held.remove(spark)
        spark.stop()


def release(spark: SparkSession) -> None:
    """Stop a session, unless :func:`held_session` holds it."""
    if spark not in _held:
        spark.stop()


def _connected(builder: SparkSession.Builder) -> SparkSession:
    """Return a session of a Spark Connect server; set only settings that can change at run time."""
    spark: SparkSession = builder.getOrCreate()
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    ship(spark)
    return spark


def width(spark: SparkSession) -> int:
    """Return the number of concurrent tasks that the settings allow; 2 if a cluster has no such settings."""
    master = spark.conf.get("spark.master", "") or ""
    if master.startswith("local"):
        return _local_width(master)
    executors = int(spark.conf.get("spark.executor.instances", "2") or 2)
    return executors * int(spark.conf.get("spark.executor.cores", "1") or 1)


def s3_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return settings with S3's endpoint and region: Hadoop does not read them from the environment."""
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    found: dict[str, str] = {}
    if endpoint:
        # The host name of a private S3 server does not contain the bucket.
        found |= {
            "spark.hadoop.fs.s3a.endpoint": endpoint,
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }
    if region:
        found["spark.hadoop.fs.s3a.endpoint.region"] = region
    return found


def _local_width(master: str) -> int:
    """Return the number of concurrent tasks of the master ``local[N]``."""
    inside = master.partition("[")[2].partition("]")[0].partition(",")[0]
    if inside.isdigit():
        return max(1, int(inside))
    return os.cpu_count() or 1 if inside == "*" else 1
