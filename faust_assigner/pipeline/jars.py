"""The jars of Spark's Kafka connector, by Maven; the versions stand in spark-pom.xml."""

from __future__ import annotations

from pathlib import Path

from faust_assigner.pipeline.maven import cache_dir, fetch_jars

POM = Path(__file__).with_name("spark-pom.xml")
SPARK_VERSION = "4.2.0"
CACHE_NAME = f"spark-{SPARK_VERSION}-kafka"

#: The artifacts the connector needs beside what Spark brings, as the jars' name prefixes.
ARTIFACTS = (
    "spark-sql-kafka-0-10_2.13",
    "spark-token-provider-kafka-0-10_2.13",
    "kafka-clients",
    "commons-pool2",
)


def connector_jars() -> list[Path]:
    """The connector's jars for ``spark.jars``, fetched when missing (one Maven run, about 5 s)."""
    return sorted(fetch_jars(POM, CACHE_NAME).glob("*.jar"))


def cached_connector_jars() -> list[Path]:
    """The connector's jars already in the cache; empty when they were never fetched."""
    folder = cache_dir() / CACHE_NAME
    return sorted(folder.glob("*.jar")) if (folder / ".complete").exists() else []


if __name__ == "__main__":
    print("\n".join(map(str, connector_jars())))
