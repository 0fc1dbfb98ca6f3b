"""From samples to rates to weights, in plain Python; and the command around it."""

from __future__ import annotations

import datetime as dt
import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from faust_assigner.cli import main
from faust_assigner.errors import ConfigError
from faust_assigner.ledger import encode
from faust_assigner.pipeline.weights.rates import rates_of, weigh
from faust_assigner.weights.document import decode

NOON = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)


def sample(
    partition: int, at_s: float, records: int, topic: str = "orders", **more: Any
) -> dict[str, Any]:
    """What one worker says of one partition: 100 bytes a record."""
    return {
        "group_id": "shop",
        "ts": NOON + dt.timedelta(seconds=at_s),
        "topic": topic,
        "partition": partition,
        "end_offset": 0,
        "committed_offset": 0,
        "bytes_in": records * 100,
        "records_in": records,
        "cpu_ms": 0.0,
        "state_bytes": 0,
        **more,
    }


def test_a_rate_is_what_came_in_over_the_time_the_samples_cover() -> None:
    """Three samples a minute apart cover three minutes."""
    (found,) = rates_of(sample(0, 60.0 * number, 600) for number in range(3))
    assert (found.samples, found.covered_ms, found.records_in) == (3, 180_000.0, 1_800)


def test_order_and_duplicates_change_nothing() -> None:
    """Shuffled, every sample three times: the same rates."""
    samples = [
        sample(partition, 60.0 * number, 10 * partition + number)
        for partition in range(4)
        for number in range(5)
    ]
    mixed = samples * 3
    random.Random(4).shuffle(mixed)
    assert rates_of(mixed) == rates_of(samples)


def test_of_two_samples_of_one_moment_the_larger_counts() -> None:
    """Two workers during a hand-over: a hand-over is no doubling."""
    (found,) = rates_of([sample(0, 0, 10), sample(0, 60, 600), sample(0, 60, 3)])
    assert found.records_in == 610


def test_a_hole_covers_one_interval_not_hours() -> None:
    """Nobody sampled for three hours: the rate is of the time that was seen."""
    regular = [sample(1, 60.0 * number, 60) for number in range(10)]
    holed = [sample(0, at, 60) for at in (0, 60, 120, 10_920, 10_980)]
    by_partition = {rate.partition: rate for rate in rates_of(regular + holed)}
    assert by_partition[0].covered_ms == 5 * 60_000.0


def test_a_counter_that_was_reset_counts_as_nothing() -> None:
    """A negative amount never lowers a rate."""
    (found,) = rates_of([sample(0, 0, 60), sample(0, 60, -1_000_000), sample(0, 120, 60)])
    assert (found.records_in, found.bytes_in) == (120, 12_000)


def test_weights_are_relative_to_the_median_and_clamped() -> None:
    """Loads 1, 10, 10, 10, 1000: a quarter, one, and four at the most."""
    rates = rates_of(
        sample(partition, 60.0 * at, records)
        for partition, records in enumerate([1, 10, 10, 10, 1_000])
        for at in range(2)
    )
    _, rows = weigh(rates, computed_at=NOON)
    assert [row.weight for row in rows] == [0.25, 1.0, 1.0, 1.0, 4.0]


def test_the_blend_takes_what_was_measured() -> None:
    """Equal records, unequal CPU: by records all are alike, by CPU and in the blend they are not."""
    rates = rates_of(
        sample(partition, 60, 100, cpu_ms=cpu) for partition, cpu in enumerate([1.0, 1.0, 3.0])
    )
    weights = {
        by: [row.weight for row in weigh(rates, computed_at=NOON, by=by)[1]]
        for by in ("records", "cpu", "blend")
    }
    assert weights["records"] == [1.0, 1.0, 1.0]
    assert weights["cpu"] == [1.0, 1.0, 3.0]
    assert 1.0 < weights["blend"][2] < 3.0
    with pytest.raises(ConfigError, match="weights by 'luck'"):
        weigh(rates, computed_at=NOON, by="luck")


def test_the_same_samples_give_the_same_version() -> None:
    """The version is the newest sample's time; a later sample makes a later version."""
    rates = rates_of([sample(0, 0, 1), sample(0, 60, 1)])
    first, _ = weigh(rates, computed_at=NOON)
    again, _ = weigh(rates, computed_at=NOON + dt.timedelta(days=1))
    later, _ = weigh(rates_of([sample(0, 0, 1), sample(0, 61, 1)]), computed_at=NOON)
    assert first == again < later


def test_the_time_to_recover_is_estimated_from_the_state() -> None:
    """370,000 records of 100 bytes at 3,700 records/s: 100 s."""
    _, (row,) = weigh(rates_of([sample(0, 0, 10, state_bytes=37_000_000)]), computed_at=NOON)
    assert row.recovery_s_est == pytest.approx(100.0)


def test_the_records_to_replay_come_from_the_changelogs_offset() -> None:
    """Known to the record; a source that keeps nothing has nothing to replay."""
    samples = [
        sample(0, 0, 10, "shop-totals-changelog", end_offset=37_000, state_bytes=500_000_000),
        sample(0, 0, 10, end_offset=9_000_000),
    ]
    _, rows = weigh(rates_of(samples), computed_at=NOON)
    assert {row.topic: row.recovery_s_est for row in rows} == {
        "shop-totals-changelog": pytest.approx(10.0),
        "orders": 0.0,
    }


def test_a_task_is_weighed_by_all_that_travels_with_it() -> None:
    """A quiet topic and changelogs beside the busy one: the tasks differ by a fifth, and so do weights."""
    busy = [100, 110, 90, 120, 100, 80, 105, 95, 100, 100, 115, 85]
    samples = [
        sample(partition, at, count, topic)
        for partition, load in enumerate(busy)
        for at in (0, 60)
        for topic, count in (
            ("orders", load),
            ("customers", 1),
            ("shop-totals-changelog", load),
            ("shop-rates-changelog", 0),
        )
    ]
    samples += [sample(0, at, 0, "shop-__assignor-__leader") for at in (0, 60)]
    _, rows = weigh(rates_of(samples), computed_at=NOON)
    weights = {(row.topic, row.partition): row.weight for row in rows}
    for number, load in enumerate(busy):
        [task] = {
            weights[topic, number]
            for topic in ("orders", "customers", "shop-totals-changelog", "shop-rates-changelog")
        }
        assert task == pytest.approx(load / 100, abs=0.02)


def test_two_busy_topics_that_travel_together_are_twice_the_work() -> None:
    """Their loads are added up: where both are busy, a task weighs twice as much as where one is."""
    samples = [
        sample(partition, at, count, topic)
        for at in (0, 60)
        for topic, loads in (("orders", (100, 100, 100)), ("customers", (1, 100, 1)))
        for partition, count in enumerate(loads)
    ]
    _, rows = weigh(rates_of(samples), computed_at=NOON)
    weights = {(row.topic, row.partition): row.weight for row in rows}
    assert weights["orders", 0] == weights["customers", 2] == 1.0
    assert weights["orders", 1] == weights["customers", 1] == pytest.approx(2.0, abs=0.05)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Eight partitions under a Zipf law, owned by two members that count; one line is broken."""
    lines = [
        encode(
            "decision",
            {
                "group_id": "shop",
                "decision_id": "d",
                "ts": NOON.timestamp(),
                "generation": 1,
                "trigger": "first",
                "policy": "ours",
                "config": {},
                "solve_ms": 1.0,
                "members": [
                    {"member_id": name, "rack": None, "capacity": 1.0, "epoch": 1} for name in "ab"
                ],
            },
        )
    ]
    for partition in range(8):
        lines.append(
            encode(
                "assignment",
                {
                    "group_id": "shop",
                    "decision_id": "d",
                    "topic": "orders",
                    "partition": partition,
                    "role": "active",
                    "member_id": "a" if partition < 4 else "b",
                    "prev_member_id": None,
                    "moved": False,
                    "standby_hit": False,
                    "cold": False,
                },
            )
        )
        lines += [
            encode(
                "partition_sample",
                {
                    **sample(partition, at, 4_000 // (partition + 1)),
                    "ts": NOON.timestamp() + at,
                },
            )
            for at in (0, 30)
        ]
    (tmp_path / "w.jsonl").write_bytes(b"".join([*lines, b"{\n"]))
    return tmp_path


def test_the_command_writes_a_document_and_scores_it(ledger: Path, tmp_path: Path) -> None:
    """The file decodes, the report counts the broken line and shows what the heaviest member carries."""
    out = tmp_path / "out" / "weights.json"
    done = CliRunner().invoke(
        main,
        ["weights", "--ledger", str(ledger), "--out", str(out), "--no-spark", "--shadow", "--json"],
    )
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert report["quarantined"] == 1
    assert report["groups"][0]["heaviest_partition"] == "orders/0"
    assert report["shadow"][0]["before"] > 1.3
    found = decode(out.read_bytes())
    assert found.version == report["version"]
    assert [row["partition"] for row in found.rows] == list(range(8))
    assert [file.name for file in out.parent.iterdir()] == ["weights.json"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--out", "w.json"], 1, "no partition_sample"),
        ([], 2, "--out FILE"),
        (["--topic", "t"], 2, "no brokers"),
        (["--bootstrap", "h:1", "--out", "w.json"], 2, "go together"),
        (["--out", "w.json", "--clamp", "4"], 2, "LOWEST:HIGHEST"),
        (["--out", "w.json", "--by", "luck"], 2, "luck"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    """A reason, and no file; 2 for what was asked, 1 for a ledger without samples."""
    (tmp_path / "empty.jsonl").write_bytes(b"")
    with CliRunner().isolated_filesystem(tmp_path):
        done = CliRunner().invoke(
            main, ["weights", "--ledger", str(tmp_path), "--no-spark", *arguments]
        )
        assert not Path("w.json").exists()
    assert (done.exit_code, said in done.output) == (code, True), done.output
