"""The ``snapshot`` job: options, session and run; for the command line and ``jobs.py``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.progress import Progress, ui_of
from faust_assigner.snapshots.catalog import is_topic
from faust_assigner.snapshots.compaction import DEFAULT_MEMORY_BYTES
from faust_assigner.snapshots.json_rows import AUTO
from faust_assigner.snapshots.layers import DEFAULT_MAX_LAYERS
from faust_assigner.snapshots.manifest import Manifest

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class SnapshotOptions:
    """The options of ``faust-assigner snapshot``."""

    cluster: Cluster
    topic: str
    to: str
    previous: bool = False
    no_spark: bool = False
    connector: str = "auto"
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    codecs: tuple[str, str] = (AUTO, AUTO)
    max_layers: int = DEFAULT_MAX_LAYERS


def run(
    options: SnapshotOptions, master: str | None, progress: Progress | None = None
) -> list[Manifest]:
    """Take the snapshot in a Spark session, or in this process with ``no_spark``."""
    from faust_assigner.pipeline.snapshots.run import take_snapshot

    progress = progress or Progress()
    if not is_topic(options.topic):
        raise ConfigError(f"{options.topic!r} is not a valid name of a Kafka topic")
    take = partial(
        take_snapshot,
        options.cluster,
        options.topic,
        options.to,
        connector=options.connector,
        previous=options.previous,
        memory_bytes=options.memory_bytes,
        codecs=options.codecs,
        max_layers=options.max_layers,
        progress=progress,
    )
    if options.no_spark:
        return take()
    from faust_assigner.pipeline.jars import cached_connector_jars, connector_jars
    from faust_assigner.pipeline.session import release, spark_session

    # Maven runs only if the user asks for Spark's connector; "auto" uses the jars in the cache.
    jars = {"spark": connector_jars, "auto": cached_connector_jars, "python": list}[
        options.connector
    ]()
    progress.enter("starting Spark")
    spark = spark_session(master, f"faust-assigner snapshot {options.topic}", jars=jars)
    progress.ui = ui_of(spark)
    try:
        return take(spark=spark)
    finally:
        release(spark)


def duration_ms(text: str) -> int:
    """Parse ``7d``, ``36h``, ``90m``, ``30s``, ``500ms`` or plain seconds into milliseconds.

    >>> duration_ms("36h"), duration_ms("90")
    (129600000, 90000)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", text.strip())
    if found is None:
        raise ConfigError(f"{text!r} is not a duration; write 7d, 36h, 90m, 30s or 500ms")
    return round(float(found[1]) * _UNITS_MS[found[2] or "s"])
