"""Options that several commands share."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from faust_assigner.pipeline.cluster import Cluster


class Number(click.FloatRange):
    """An option's finite number in a range. click's own FloatRange accepts NaN within any bounds."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number. Raises BadParameter if it is not finite or not in the range."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return found


config_option = click.option(
    "--config",
    metavar="FILE",
    help="Kafka's client properties (security.protocol=SASL_SSL ...), in the format of Kafka's own tools. "
    "The environment's FAUST_ASSIGNER_KAFKA_X_Y has priority over the file.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
master_option = click.option(
    "--master", default="local[*]", show_default=True, help="Spark's master."
)
no_spark_option = click.option(
    "--no-spark", is_flag=True, help="Run in this process, for ledgers that fit in memory."
)
packages_option = click.option(
    "--packages",
    default="",
    metavar="A:B:C[,...]",
    help="Maven packages for Spark, in the format of spark-submit.",
)
max_refused_option = click.option(
    "--max-refused",
    metavar="N|P%",
    help="The allowed number of refused lines; above, the command fails without output.",
)
fail_if_empty_option = click.option(
    "--fail-if-empty/--allow-empty",
    default=None,
    help="Fail without output if no line is accepted.  [default: if the output already exists]",
)


def properties(config: str | None) -> dict[str, str]:
    """Return the properties of ``--config`` and the environment. Raises ConfigError for a bad file."""
    from faust_assigner.pipeline.cluster import client_properties

    return client_properties(config, os.environ)


def cluster(bootstrap: str | None, config: str | None) -> Cluster:
    """Return the cluster of ``--bootstrap`` and ``--config``. Raises ConfigError without brokers."""
    from faust_assigner.pipeline.cluster import cluster_of

    return cluster_of(bootstrap, properties(config))
