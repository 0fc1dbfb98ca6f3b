"""Options that several commands share, and what they mean."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from faust_assigner.pipeline.cluster import Cluster

config_option: Callable[[Any], Any] = click.option(
    "--config",
    metavar="FILE",
    help="Kafka's client properties (security.protocol=SASL_SSL ...), as Kafka's own tools take them. "
    "The environment's FAUST_ASSIGNER_KAFKA_X_Y goes before it.",
)

packages_option: Callable[[Any], Any] = click.option(
    "--packages",
    default="",
    metavar="A:B:C[,...]",
    help="Maven packages for Spark, as spark-submit takes them "
    "(results on s3:// need org.apache.hadoop:hadoop-aws:3.5.0).",
)
max_refused_option: Callable[[Any], Any] = click.option(
    "--max-refused",
    metavar="N|P%",
    help="Fail, and write nothing, when more lines are refused than this.",
)
fail_if_empty_option: Callable[[Any], Any] = click.option(
    "--fail-if-empty/--allow-empty",
    default=None,
    help="Fail, and write nothing, when no line counts.  [default: where the output exists already]",
)


def properties(config: str | None) -> dict[str, str]:
    """The properties of ``--config`` and of the environment; ConfigError for a file that cannot be read."""
    from faust_assigner.pipeline.cluster import client_properties

    return client_properties(config, os.environ)


def cluster(bootstrap: str | None, config: str | None) -> Cluster:
    """The cluster that ``--bootstrap`` and ``--config`` describe; ConfigError where neither names brokers."""
    from faust_assigner.pipeline.cluster import cluster_of

    return cluster_of(bootstrap, properties(config))
