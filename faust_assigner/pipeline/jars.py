"""The jars of Spark's Kafka connector, by Maven; the versions stand in spark-pom.xml."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from faust_assigner.pipeline.maven import cache_dir, fetch_jars

POM = Path(__file__).with_name("spark-pom.xml")
#: The Spark that the jars of spark-pom.xml are for.
SPARK_VERSION = "4.2.0"
#: The versions of Spark that the pipeline runs on: from the first on, before the second.
SPARK_RANGE = (3, 5), (4, 3)
CACHE_NAME = f"spark-{SPARK_VERSION}-kafka"

#: The artifacts the connector needs beside what Spark brings, as the jars' name prefixes.
ARTIFACTS = (
    "spark-sql-kafka-0-10_2.13",
    "spark-token-provider-kafka-0-10_2.13",
    "kafka-clients",
    "commons-pool2",
)


def installed_spark() -> str | None:
    """The version of PySpark that is installed."""
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return None


def connector_package(version: str) -> str:
    """The connector for ``version`` of Spark, as Maven knows it.

    >>> connector_package("3.5.6")
    'org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.6'
    """
    scala = "2.12" if version.startswith("3.") else "2.13"
    return f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{version}"


def connector_jars() -> list[Path]:
    """The connector's jars for ``spark.jars``, fetched when missing (one Maven run, about 5 s)."""
    return sorted(fetch_jars(POM, CACHE_NAME).glob("*.jar"))


def cached_connector_jars() -> list[Path]:
    """The connector's jars in the cache; none where they were never fetched or are for another Spark."""
    if installed_spark() != SPARK_VERSION:
        return []
    folder = cache_dir() / CACHE_NAME
    return sorted(folder.glob("*.jar")) if (folder / ".complete").exists() else []


if __name__ == "__main__":
    print("\n".join(map(str, connector_jars())))
