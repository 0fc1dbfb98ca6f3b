"""One way to get a Spark session, on a laptop, under ``spark-submit`` and in tests.

PySpark is imported inside the functions, so that ``spark doctor`` can tell what is missing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faust_assigner.pipeline.shipping import ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG4J = Path(__file__).with_name("log4j2.xml")

#: What every session of ours relies on, wherever it runs.
SETTINGS: Mapping[str, str] = {
    # Days (``dt``) are UTC days on every machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Timestamps are written the way pandas and pyarrow read them without a legacy switch.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

#: What only a session on one machine wants: no page, loopback only, tasks as wide as the cores.
LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
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
    """The running session, or a new one on ``master`` (None: as ``spark-submit`` says; ``sc://…``: Connect).

    ``jars`` are files, ``packages`` Maven coordinates that Spark itself resolves; both count only
    when the session starts. Cost of a start: 3-8 s.
    """
    if _held:
        return _held[-1]
    # Workers must run this very interpreter; on a cluster the submitter names its own.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    if master is not None and master.startswith("sc://"):
        return _connected(builder.remote(master))
    if master is not None:
        builder = builder.master(master)
    wanted = dict(SETTINGS)
    if master is not None and master.startswith("local"):
        wanted |= LOCAL_SETTINGS
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        wanted["spark.sql.shuffle.partitions"] = str(_local_width(master))
    wanted |= settings or {}
    if jar_list := [str(jar) for jar in jars]:
        wanted["spark.jars"] = ",".join(jar_list)
    if packages:
        wanted["spark.jars.packages"] = ",".join(packages)
    wanted = {**s3_settings(os.environ), **wanted}
    for key, value in wanted.items():
        builder = builder.config(key, value)
    # py4j says every call at DEBUG and every broken pipe at INFO; neither helps a reader.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    spark: SparkSession = builder.getOrCreate()
    if not (spark.conf.get("spark.master", "") or "").startswith("local"):
        ship(spark)
    return spark


#: Sessions that outlive the command that asked for one.
_held: list[SparkSession] = []


@contextlib.contextmanager
def held_session(
    master: str | None, app_name: str, jars: Iterable[str | Path], packages: Sequence[str]
) -> Iterator[SparkSession]:
    """One session for all commands that ask for one inside the block."""
    spark = spark_session(master, app_name, jars=jars, packages=packages)
    _held.append(spark)
    try:
        yield spark
    finally:
        _held.remove(spark)
        spark.stop()


def release(spark: SparkSession) -> None:
    """Stop a session, unless it is held for others."""
    if spark not in _held:
        spark.stop()


def _connected(builder: Any) -> SparkSession:
    """A session of a Spark Connect server; what only a server's start can set is the server's own."""
    spark: SparkSession = builder.getOrCreate()
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    ship(spark)
    return spark


def width(spark: SparkSession) -> int:
    """How many tasks the session runs at once, as far as its settings tell; 2 where they do not."""
    master = spark.conf.get("spark.master", "") or ""
    if master.startswith("local"):
        return _local_width(master)
    executors = int(spark.conf.get("spark.executor.instances", "2") or 2)
    return executors * int(spark.conf.get("spark.executor.cores", "1") or 1)


def s3_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What Hadoop's S3 client does not read from the environment as all others do: endpoint and region."""
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    found: dict[str, str] = {}
    if endpoint:
        # A server of one's own has no bucket in its host name.
        found |= {
            "spark.hadoop.fs.s3a.endpoint": endpoint,
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }
    if region:
        found["spark.hadoop.fs.s3a.endpoint.region"] = region
    return found


def _local_width(master: str) -> int:
    """How many tasks ``local[N]`` runs at once."""
    inside = master.partition("[")[2].partition("]")[0].partition(",")[0]
    if inside.isdigit():
        return max(1, int(inside))
    return os.cpu_count() or 1 if inside == "*" else 1
