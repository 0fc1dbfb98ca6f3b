"""The plans of the main jobs; the page for clusters states their shuffles, broadcasts, Python stages."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from faust_assigner.pipeline.history.merge import DayChanges
from faust_assigner.pipeline.history.on_spark import OnSpark
from faust_assigner.pipeline.history.store import Manifest
from faust_assigner.pipeline.ledgers.sources import rows_of
from faust_assigner.pipeline.schema import parsed_schema
from faust_assigner.pipeline.simulate.run import Run, play_on_spark
from faust_assigner.pipeline.snapshots.run import PART_SCHEMA, RECORD, compact_records
from faust_assigner.pipeline.snapshots.spans import Job, Span
from faust_assigner.pipeline.weights.on_spark import rates

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "spark.md"
_PYTHON = re.compile(
    r"(MapInArrow|MapInPandas|FlatMap\w*In(Pandas|Arrow)|\w*EvalPython|\w*InPython)\b"
)


def plan(frame: DataFrame) -> list[str]:
    """Return the nodes of the physical plan without nodes below the cache."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        frame.explain()
    nodes, cached = [], None
    for line in told.getvalue().splitlines():
        depth = len(line) - len(line.lstrip(" :+-*("))
        node = line[depth:]
        if cached is not None and depth > cached:
            continue
        cached = depth if node.startswith("InMemoryRelation") else None
        nodes.append(re.sub(r"^\d+\) ", "", node))
    return nodes


def counts(frame: DataFrame) -> tuple[int, int, int]:
    """Return the numbers of shuffles, broadcasts and Python stages."""
    nodes = plan(frame)
    return (
        sum(node.startswith("Exchange ") for node in nodes),
        sum(node.startswith("BroadcastExchange") for node in nodes),
        sum(bool(_PYTHON.match(node)) for node in nodes),
    )


def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Replace the reader of ledgers: the plan has a Python stage, and no line is read."""
    yield from ()


@pytest.fixture
def jobs(spark: SparkSession) -> Iterator[dict[str, DataFrame]]:
    """The frame of each main job, over lines read in two tasks."""
    lines = spark.range(0, 2, 1, 2).mapInArrow(read, parsed_schema())
    # a plan other than the cached one
    fresh = spark.range(0, 3, 1, 2).mapInArrow(read, parsed_schema())
    work = OnSpark.__new__(OnSpark)
    held: Any = work
    held._spark, held._parsed = spark, lines.persist()
    merged = work._merged("unused", Manifest(), {("g", "d"): "2026-11-21"}, DayChanges())
    # The connector's frame has these columns and one task per partition of the topic.
    records = spark.range(0, 2, 1, 2).selectExpr(
        "int(id) as partition", "id as offset", "binary('k') as key", "binary('v') as value"
    )
    snapshot = Job("t", "unused", (Span(0, 0, 1), Span(1, 0, 1)), created_ms=0)
    yield {
        "read the lines": fresh,
        "`history`: merge the days": merged,
        "`weights`: rates": rates(rows_of(held._parsed, "partition_sample")),
        "`simulate`: play": play_on_spark(spark, Run(1), 100),
        "`snapshot`: compact": records.select(*RECORD).mapInArrow(
            compact_records(snapshot), PART_SCHEMA
        ),
    }
    held._parsed.unpersist()


def test_the_page_states_the_plans_of_the_main_jobs(jobs: dict[str, DataFrame]) -> None:
    """The page must state each further shuffle or Python stage, because it is a cost."""
    table = PAGE.read_text(encoding="utf-8").partition("| job | shuffles")[2]
    stated = {
        name: tuple(map(int, found))
        for name, *found in re.findall(
            r"^\| (.+?) \| (\d+) \| (\d+) \| (\d+) \|", table, re.MULTILINE
        )
    }
    assert {name: counts(frame) for name, frame in jobs.items()} == stated


def test_built_in_functions_compute_the_rates(jobs: dict[str, DataFrame]) -> None:
    """Rows of a sample do not leave the JVM after they are read."""
    assert counts(jobs["`weights`: rates"])[2] == 0
