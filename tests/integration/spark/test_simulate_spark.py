"""Simulation on Spark: the same numbers as without Spark, from the same functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from faust_assigner.ledger import columns, encode
from faust_assigner.pipeline.ledgers.rows import accepted_rows
from faust_assigner.pipeline.ledgers.sources import read_ledger
from faust_assigner.pipeline.schema import DAY, GROUP, arrow_schema, spark_schema
from faust_assigner.pipeline.simulate.events import event_rows
from faust_assigner.pipeline.simulate.facts import facts_of
from faust_assigner.pipeline.simulate.job import simulate_here, simulate_on_spark
from faust_assigner.pipeline.simulate.on_spark import facts_on_spark
from faust_assigner.pipeline.simulate.recorded import week
from faust_assigner.pipeline.simulate.request import Request
from faust_assigner.pipeline.simulate.run import Run, play_on_spark

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def in_order(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of ``sim_result`` by scenario and arm."""
    rows: list[dict[str, Any]] = pq.read_table(folder / "sim_result").to_pylist()
    return sorted(rows, key=lambda row: (row["scenario_id"], row["policy"], row["standbys"]))


def test_spark_and_plain_python_give_identical_rows_and_reports(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Rows, percentiles and recommendations are equal bit by bit; old output is replaced."""
    asked = {
        "scenarios": 12,
        "seed": 8,
        "policies": ("ours+static", "stock", "stock+static"),
        "replicas": (0, 1),
    }
    here, there = tmp_path / "here", tmp_path / "there"
    plain = simulate_here(Request(out=str(here), **asked))
    simulate_here(Request(out=str(there), **{**asked, "seed": 9}))
    sparked = simulate_on_spark(spark, Request(out=str(there), **asked))
    assert sparked == plain
    assert plain["sim_settings"][0]["instead_of"].startswith("stock+static, standbys ")
    assert in_order(there) == in_order(here)
    assert len(in_order(there)) == 12 * 6
    assert json.loads((there / "report.json").read_text()) == json.loads(
        (here / "report.json").read_text()
    )


#: The published table ``sim_result``.
SIM_RESULT = (
    GROUP,
    DAY,
    *columns(
        "scenario_id string, seed long, members int, partitions int, standbys int, "
        "policy string, moved int, imbalance double, unavailable_s double"
    ),
)


def test_the_rows_begin_with_the_table_sim_result(spark: SparkSession, tmp_path: Path) -> None:
    """One schema, in Spark and in the plain file: the pipeline's table, then explaining columns."""
    wanted = spark_schema(SIM_RESULT)
    frame = play_on_spark(spark, Run(1), 2)
    assert frame.schema.fields[: len(wanted.fields)] == wanted.fields
    simulate_here(Request(1, 1, str(tmp_path), policies=("ours",), replicas=(0,)))
    plain = pq.read_schema(next((tmp_path / "sim_result").iterdir()))
    assert list(plain)[: len(SIM_RESULT)] == list(arrow_schema(SIM_RESULT))


def test_scenarios_are_spread_over_several_tasks_per_core(spark: SparkSession) -> None:
    """mapInPandas over ranges: four tasks per core, and at most one per scenario."""
    assert play_on_spark(spark, Run(1), 1_000).rdd.getNumPartitions() == 8
    assert play_on_spark(spark, Run(1), 3).rdd.getNumPartitions() == 3


@pytest.mark.slow
def test_a_recorded_week_is_the_same_week_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Facts from SQL equal facts from single lines, duplicates and bad lines included."""
    lines = []
    for number, (at, members) in enumerate(
        [(0.0, "abc"), (60.5, "ab"), (100.25, "abc"), (5_000.0, "abcd")]
    ):
        lines.append(
            encode(
                "decision",
                {
                    "group_id": "shop",
                    "decision_id": f"d{number}",
                    "ts": 1.7e9 + at,
                    "generation": number,
                    "trigger": "join",
                    "policy": "ours",
                    "config": {"weightless": "lead", "replicas": "2"},
                    "solve_ms": 1.0,
                    "members": [
                        {"member_id": name, "rack": "r" + name, "capacity": 1.0, "epoch": number}
                        for name in members
                    ],
                },
            )
        )
        lines += [
            encode(
                "assignment",
                {
                    "group_id": "shop",
                    "decision_id": f"d{number}",
                    "topic": topic,
                    "partition": partition,
                    "role": "standby" if topic == "counts" else "active",
                    "member_id": "a",
                    "prev_member_id": None,
                    "moved": number == 1 and partition < 3,
                    "standby_hit": False,
                    "cold": partition == 0,
                },
            )
            for topic, count in {"orders": 6, "counts": 6, "lead": 1}.items()
            for partition in range(count)
        ]
    lines += [
        encode(
            "partition_sample",
            {
                "group_id": "shop",
                "ts": 1.7e9 + at,
                "topic": "orders",
                "partition": partition,
                "end_offset": 1,
                "committed_offset": 1,
                "bytes_in": 70 * partition,
                "records_in": partition,
                "cpu_ms": 1.0,
                "state_bytes": 1000,
            },
        )
        for at in (10.0, 40.0)
        for partition in range(6)
    ]
    lines += [
        encode(
            "recovery",
            {
                "group_id": "shop",
                "decision_id": "d1",
                "member_id": member,
                "topic": "counts",
                "partition": partition,
                "started": 1.7e9 + began,
                "ended": 1.7e9 + ended,
                "start_offset": 0,
                "end_offset": 10,
                "records": 10,
                "bytes": 100,
                "source": source,
            },
        )
        for member, partition, began, ended, source in (
            ("a", 0, 61.0, 63.5, "replay"),
            ("a", 1, 62.0, 66.25, "standby"),
            ("b", 2, 61.5, 62.0, "standby"),
        )
    ]
    (tmp_path / "week.jsonl").write_bytes(b"".join([*lines, *lines[:9], lines[-1], b"{}\n"]))

    here = facts_of(accepted_rows([str(tmp_path)]))
    there = facts_on_spark(read_ledger(spark, [str(tmp_path)]))
    assert there.recoveries == here.recoveries
    assert [(fact.seconds, fact.records, fact.cold) for fact in here.recoveries] == [
        (5.25, 20, True),
        (0.5, 10, False),
    ]
    assert there.outcomes == here.outcomes == {("shop", "d1"): (3, 1)}
    told = [event_rows(Run(1, week(facts)), facts, "ours") for facts in (here, there)]
    assert told[0] == told[1] != []
    assert {row["standbys"] for row in told[0]} == {2}
    for scenario_id in (0, 5):
        one, other = (week(facts).scenario(scenario_id, 99) for facts in (here, there))
        assert (one.events, one.workers, one.groups) == (other.events, other.workers, other.groups)
        assert [group.topic for group in one.groups] == ["orders"]
        assert (one.rates.tolist(), one.records.tolist()) == (
            other.rates.tolist(),
            other.records.tolist(),
        )
