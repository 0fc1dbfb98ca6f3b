"""The jars of Spark's Kafka connector, fetched by Maven; spark-pom.xml names their versions."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from faust_assigner.pipeline.maven import cache_dir, fetch_jars

POM = Path(__file__).with_name("spark-pom.xml")
#: The version of Spark to which the jars of spark-pom.xml belong.
SPARK_VERSION = "4.2.0"
#: The supported versions of Spark: from the first (included) to the second (excluded).
SPARK_RANGE = (3, 5), (4, 3)
CACHE_NAME = f"spark-{SPARK_VERSION}-kafka"

#: The name prefixes of the jars that the connector needs and Spark does not contain.
ARTIFACTS = (
    "spark-sql-kafka-0-10_2.13",
    "spark-token-provider-kafka-0-10_2.13",
    "kafka-clients",
    "commons-pool2",
)


def installed(package: str) -> str | None:
    """Return the installed version of a package; None if the package is missing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def connector_package(version: str) -> str:
    """Return the Maven coordinates of the connector for ``version`` of Spark.

    >>> connector_package("3.5.6")
    'org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.6'
    """
    scala = "2.12" if version.startswith("3.") else "2.13"
    return f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{version}"


def connector_jars() -> list[Path]:
    """Return the connector's jars for ``spark.jars``; fetch missing jars (one Maven run, about 5 s)."""
    return sorted(fetch_jars(POM, CACHE_NAME).glob("*.jar"))


def cached_connector_jars() -> list[Path]:
    """Return the connector's cached jars; empty before a fetch, or if another PySpark is installed."""
    if installed("pyspark") != SPARK_VERSION:
        return []
    folder = cache_dir() / CACHE_NAME
    return sorted(folder.glob("*.jar")) if (folder / ".complete").exists() else []


if __name__ == "__main__":
    print("\n".join(map(str, connector_jars())))
