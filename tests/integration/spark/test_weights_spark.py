"""Weights on Spark compared with the same steps in plain Python."""

from __future__ import annotations

import datetime as dt
import json
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from faust_assigner.ledger import encode
from faust_assigner.pipeline.schema import TABLES, spark_schema
from faust_assigner.pipeline.weights.job import Request, learn_here, learn_on_spark
from faust_assigner.pipeline.weights.on_spark import collect_rates
from faust_assigner.pipeline.weights.rates import rates_of
from faust_assigner.pipeline.weights.weighing import weigh
from faust_assigner.weights.document import WeightRow

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOON = dt.datetime(2026, 11, 21, 12, 0, 0, 123_000, tzinfo=dt.UTC)


def messy_samples(seed: int) -> list[dict[str, object]]:
    """Two groups, three topics; late, duplicated, disagreeing, negative and missing samples."""
    draw = random.Random(seed)
    rows: list[dict[str, object]] = []
    for group in ("shop", "bank"):
        for topic, partitions in (("orders", 6), ("customers", 6), ("rare", 2)):
            for partition in range(partitions):
                at = NOON + dt.timedelta(milliseconds=draw.randrange(10_000))
                for _ in range(draw.randrange(1, 9)):
                    at += dt.timedelta(
                        milliseconds=draw.choice([29_990, 30_000, 30_017, 4_000_000])
                    )
                    records = draw.choice([-5, 0, draw.randrange(1_000 * (partition + 1))])
                    rows.append(
                        {
                            "group_id": group,
                            "ts": at,
                            "topic": topic,
                            "partition": partition,
                            "end_offset": draw.choice([0, 10, draw.randrange(10**5)]),
                            "committed_offset": 9,
                            "bytes_in": records * 87,
                            "records_in": records,
                            "cpu_ms": records * 0.37,
                            "state_bytes": draw.randrange(10**9),
                        }
                    )
    rows += draw.sample(rows, len(rows) // 4)
    rows += [{**row, "records_in": 17, "state_bytes": 3} for row in draw.sample(rows, 5)]
    # A topic without samples for so long that they count for next to nothing.
    rows += [
        {**row, "topic": "gone", "partition": 0, "ts": row["ts"] - dt.timedelta(days=600)}  # type: ignore[operator]
        for row in rows[:3]
    ]
    draw.shuffle(rows)
    return rows


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_spark_and_plain_python_learn_the_same_weights(spark: SparkSession, seed: int) -> None:
    """Rates agree up to the rounding of sums; the table's rows are equal."""
    rows = messy_samples(seed)
    columns = [column.name for column in TABLES["partition_sample"]]
    frame = spark.createDataFrame(
        [tuple(row[name] for name in columns) for row in rows],
        spark_schema(TABLES["partition_sample"]),
    )

    on_spark, here = collect_rates(frame.repartition(3)), rates_of(rows)

    sums = dict.fromkeys(
        ("covered_ms", "records_in", "bytes_in", "cpu_ms", "arrived", "error"), 0.0
    )
    assert [rate._replace(**sums) for rate in on_spark] == [rate._replace(**sums) for rate in here]
    for name in sums:
        told = [getattr(rate, name) for rate in here]
        assert [getattr(rate, name) for rate in on_spark] == pytest.approx(told, abs=1e-6), name
    spark_version, spark_rows = weigh(on_spark, computed_at=NOON)
    version, python_rows = weigh(here, computed_at=NOON)
    assert spark_version == version
    assert [row.weight for row in spark_rows] == [row.weight for row in python_rows]


def test_the_whole_job_gives_the_same_document_and_score_on_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Three decisions and a broken line: files, shadow scores and counts are equal."""
    at = NOON.timestamp()
    lines = [b"{ broken"]
    for number, members in enumerate(("a", "b", "ab")):
        lines.append(
            encode(
                "decision",
                {
                    "group_id": "shop",
                    "decision_id": f"d{number}",
                    "ts": at + number,
                    "generation": number,
                    "trigger": "join",
                    "policy": "ours",
                    "config": {},
                    "solve_ms": 1.0,
                    "members": [
                        {"member_id": name, "rack": None, "capacity": 1.0, "epoch": number}
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
                    "topic": "orders",
                    "partition": partition,
                    "role": "active",
                    "member_id": members[partition * len(members) // 6],
                    "prev_member_id": None,
                    "moved": False,
                    "standby_hit": False,
                    "cold": False,
                },
            )
            for partition in range(6)
        ]
    lines += [
        encode("partition_sample", {**row, "ts": row["ts"].timestamp()})  # type: ignore[attr-defined]
        for row in messy_samples(3)
    ]
    # The newest decision is repeated a moment later with its placements; it stays one decision.
    decision, *placements = (line for line in lines if b'"d2"' in line)
    lines += [encode("decision", {**json.loads(decision), "ts": at + 9.0}), *placements]
    (tmp_path / "shop.jsonl").write_bytes(b"\n".join(line.rstrip(b"\n") for line in lines))

    def asked(name: str) -> Request:
        return Request([str(tmp_path)], NOON, str(tmp_path / name), shadow=True, decisions=2)

    here = learn_here(asked("here.json"))
    there = learn_on_spark(spark, asked("there.json"))
    assert {**there, "out": here["out"]} == here
    assert here["quarantined"] == 1
    assert [found["decision_id"] for found in here["shadow"]] == ["d2", "d1"]
    assert (tmp_path / "there.json").read_bytes() == (tmp_path / "here.json").read_bytes()


def test_the_documents_rows_are_the_partition_weight_table() -> None:
    """The document has the published columns in their order."""
    assert " ".join(WeightRow._fields) == (
        "group_id dt version computed_at topic partition weight bytes_rate record_rate cpu_rate "
        "state_bytes recovery_s_est samples sampled_at confidence"
    )
