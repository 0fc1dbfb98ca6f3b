"""From samples to rates and weights in plain Python, and the command."""

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
from faust_assigner.pipeline.weights.rates import (
    NO_DECAY,
    NOMINAL_RECORD_BYTES,
    rates_of,
    records_kept,
)
from faust_assigner.pipeline.weights.weighing import weigh
from faust_assigner.weights.document import decode
from faust_assigner.weights.document import encode as encode_weights
from faust_assigner.weights.limits import Limits

WIDE = Limits(0.02, 50)
NOON = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)


def sample(
    partition: int, at_s: float, records: int, topic: str = "orders", **more: Any
) -> dict[str, Any]:
    """Return a worker's sample of a partition, with 100 bytes a record."""
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
    (found,) = rates_of(
        (sample(0, 60.0 * number, 600) for number in range(3)), half_life_s=NO_DECAY
    )
    assert (found.samples, found.covered_ms, found.records_in) == (3, 180_000.0, 1_800)


@pytest.mark.parametrize("days", [200, 600, 700_000])
def test_a_topic_whose_samples_are_very_old_keeps_its_rate(days: int) -> None:
    """Its weight among all samples is next to nothing; its own samples are compared with each other."""
    old = [
        sample(3, 60.0 * number - 86_400.0 * days, 600, "gone", cpu_ms=60.0) for number in range(3)
    ]
    gone, now = rates_of([*old, *(sample(0, 60.0 * number, 1_200) for number in range(3))])
    assert (gone.topic, gone.arrived_per_s) == ("gone", pytest.approx(10.0))
    assert (now.topic, now.arrived_per_s) == ("orders", pytest.approx(20.0))
    _, rows = weigh([gone, now], computed_at=NOON, by="records")
    assert [(row.topic, row.weight, row.record_rate) for row in rows] == [
        ("gone", 0.666667, 10.0),
        ("orders", 1.333333, 20.0),
    ]


def test_order_and_duplicates_change_nothing() -> None:
    """The samples are shuffled and repeated three times."""
    samples = [
        sample(partition, 60.0 * number, 10 * partition + number)
        for partition in range(4)
        for number in range(5)
    ]
    mixed = samples * 3
    random.Random(4).shuffle(mixed)
    assert rates_of(mixed) == rates_of(samples)


def test_of_two_samples_of_one_moment_the_larger_counts() -> None:
    """During a hand-over two workers write samples; the load is not doubled."""
    (found,) = rates_of(
        [sample(0, 0, 10), sample(0, 60, 600), sample(0, 60, 3)], half_life_s=NO_DECAY
    )
    assert found.records_in == 610


def test_a_hole_covers_one_interval_not_hours() -> None:
    """A three-hour gap has no samples: the rate covers only the sampled time."""
    regular = [sample(1, 60.0 * number, 60) for number in range(10)]
    holed = [sample(0, at, 60) for at in (0, 60, 120, 10_920, 10_980)]
    by_partition = {
        rate.partition: rate for rate in rates_of(regular + holed, half_life_s=NO_DECAY)
    }
    assert by_partition[0].covered_ms == 5 * 60_000.0


def test_a_counter_that_was_reset_counts_as_nothing() -> None:
    """A negative amount never lowers a rate."""
    (found,) = rates_of(
        [sample(0, 0, 60), sample(0, 60, -1_000_000), sample(0, 120, 60)], half_life_s=NO_DECAY
    )
    assert (found.records_in, found.bytes_in) == (120, 12_000)


def test_a_sample_counts_half_for_each_half_life_of_its_age() -> None:
    """One partition is loaded for a week, another for a day: the day weighs more."""
    hours = [sample(n, 3600.0 * h, 1_000) for n in (1, 2, 3) for h in range(8 * 24)]
    hours += [sample(0, 3600.0 * h, 10_000 if h < 7 * 24 else 1_000) for h in range(8 * 24)]
    hours += [sample(5, 3600.0 * h, 1_000 if h < 7 * 24 else 10_000) for h in range(8 * 24)]

    def found(half_life_s: float) -> dict[int, float]:
        _, rows = weigh(
            rates_of(hours, half_life_s=half_life_s), computed_at=NOON, limits=Limits(0.02, 50)
        )
        return {row.partition: row.weight for row in rows}

    assert found(43_200.0)[5] == pytest.approx(7.75, abs=0.01)
    assert found(43_200.0)[0] == pytest.approx(3.25, abs=0.01)
    assert found(NO_DECAY)[0] > 8 > 3 > found(NO_DECAY)[5]


def test_the_age_of_a_sample_counts_from_the_newest_of_its_group() -> None:
    """A partition quiet for a half-life counts half, in any order of samples."""
    samples = [sample(0, 43_200, 100), sample(1, 0, 100)]
    for some in (samples, samples[::-1]):
        assert [rate.records_in for rate in rates_of(some, half_life_s=43_200.0)] == [100, 50]


def test_records_whose_bytes_were_not_counted_have_the_usual_size() -> None:
    """The stored state is then converted with that size."""
    (found,) = rates_of([sample(0, 0, 10, bytes_in=0, state_bytes=5_000)])
    assert records_kept(found) == 5_000 / NOMINAL_RECORD_BYTES


def test_what_arrives_is_the_load_where_a_worker_is_overloaded() -> None:
    """Both partitions are consumed at the worker's limit; one has five times the arrivals."""
    rates = rates_of(
        sample(number, 60.0 * at, 100, end_offset=at * arrives, cpu_ms=10.0)
        for number, arrives in enumerate((100, 500, 100))
        for at in range(10)
    )
    for by in ("records", "bytes", "cpu", "blend"):
        weights = [row.weight for row in weigh(rates, computed_at=NOON, by=by, limits=WIDE)[1]]
        assert weights == pytest.approx([1.0, 4.6, 1.0], abs=0.1), by


def test_a_backlog_that_is_caught_up_with_is_no_load() -> None:
    """Many records are consumed but none arrive: the partition is as quiet as its arrivals."""
    rates = rates_of(
        sample(number, 60.0 * at, consumed, end_offset=at * arrives)
        for number, (consumed, arrives) in enumerate(((1_000, 0), (100, 100), (100, 100)))
        for at in range(1, 10)
    )
    weights = [row.weight for row in weigh(rates, computed_at=NOON, limits=WIDE)[1]]
    assert weights[0] < 1.2


def test_a_partition_that_nobody_consumes_costs_what_its_topic_does() -> None:
    """Its owner is stuck; the waiting records will cost the same as other records."""
    rates = rates_of(
        sample(number, 60.0 * at, consumed, end_offset=at * 100, cpu_ms=consumed * 0.1)
        for number, consumed in enumerate((100, 100, 0))
        for at in range(10)
    )
    rows = weigh(rates, computed_at=NOON, by="cpu", limits=WIDE)[1]
    assert [row.weight for row in rows] == pytest.approx([1.0, 1.0, 0.9], abs=0.15)


@pytest.mark.parametrize(("gap_s", "covered_s"), [(600, 600), (601, 60)])
def test_a_hole_is_longer_than_ten_intervals(gap_s: int, covered_s: int) -> None:
    """A wait of exactly ten intervals counts as one interval."""
    moments = (0, 60, 120, 180, 180 + gap_s)
    [rate] = rates_of([sample(0, at, 60) for at in moments], half_life_s=NO_DECAY)
    assert rate.covered_ms == (4 * 60 + covered_s) * 1_000.0


def test_a_hole_takes_the_share_of_what_came_in_it_that_its_time_counts() -> None:
    """The rate stays after three hours without samples at the same rate."""
    moments = (0, 60, 120, 10_920, 10_980)
    holed = rates_of([sample(0, at, 0, end_offset=at * 5) for at in moments], half_life_s=NO_DECAY)
    # the first sample has no earlier offset
    assert holed[0].arrived_per_s == pytest.approx(5 * 4 / 5)


def test_a_topic_that_was_made_anew_takes_nothing_away() -> None:
    """The end steps back, so that interval is ignored."""
    ends = (1_000, 1_100, 50, 150)
    (found,) = rates_of(
        [sample(0, 60.0 * at, 100, end_offset=end) for at, end in enumerate(ends)],
        half_life_s=NO_DECAY,
    )
    assert found.arrived == 300


def test_weights_are_relative_to_the_median_and_clamped() -> None:
    """Loads of 1, 10, 10, 10 and 1000 give weights of 0.25, 1, 1, 1 and 4."""
    rates = rates_of(
        sample(partition, 60.0 * at, records)
        for partition, records in enumerate([1, 10, 10, 10, 1_000])
        for at in range(2)
    )
    _, rows = weigh(rates, computed_at=NOON)
    assert [row.weight for row in rows] == [0.25, 1.0, 1.0, 1.0, 4.0]


def test_the_blend_takes_what_was_measured() -> None:
    """Records are equal and CPU is not: CPU and the blend differ, records do not."""
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
    """370,000 records of 100 bytes at 3,700 records/s take 100 s."""
    _, (row,) = weigh(rates_of([sample(0, 0, 10, state_bytes=37_000_000)]), computed_at=NOON)
    assert row.recovery_s_est == pytest.approx(100.0)


def test_the_records_to_replay_come_from_the_changelogs_offset() -> None:
    """The changelog's offset is exact; a source without state has no records to replay."""
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
    """Quiet topics travel with a busy one: the tasks differ by a fifth, and so do the weights."""
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
    """Loads add up: a task with two busy topics weighs twice a task with one."""
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


def test_a_busy_topic_of_another_count_is_work_of_its_own() -> None:
    """Only the partition number is shared: task 0 of the other topic keeps its weight."""
    samples = [
        sample(partition, at, count, topic)
        for at in (0, 60)
        for topic, loads in (("orders", (100, 100, 100)), ("audit", (300,)))
        for partition, count in enumerate(loads)
    ]
    _, rows = weigh(rates_of(samples), computed_at=NOON)
    weights = {(row.topic, row.partition): row.weight for row in rows}
    assert [weights["orders", number] for number in range(3)] == [1.0, 1.0, 1.0]
    assert weights["audit", 0] == 3.0


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Eight partitions with Zipf loads, two counting members, and a broken line."""
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
                {**sample(partition, at, 4_000 // (partition + 1)), "ts": NOON.timestamp() + at},
            )
            for at in (0, 30)
        ]
    (tmp_path / "w.jsonl").write_bytes(b"".join([*lines, b"{\n"]))
    return tmp_path


def test_the_command_writes_a_document_and_scores_it(ledger: Path, tmp_path: Path) -> None:
    """The file decodes; the report counts the broken line and has the heaviest member."""
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
        (["--bootstrap", "h:1", "--out", "w.json"], 2, "require each other"),
        (["--out", "w.json", "--clamp", "4"], 2, "LOWEST:HIGHEST"),
        (["--out", "w.json", "--by", "luck"], 2, "luck"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    """The command gives a reason and writes no file: 2 for usage, 1 without samples."""
    (tmp_path / "empty.jsonl").write_bytes(b"")
    with CliRunner().isolated_filesystem(tmp_path):
        done = CliRunner().invoke(
            main, ["weights", "--ledger", str(tmp_path), "--no-spark", *arguments]
        )
        assert not Path("w.json").exists()
    assert (done.exit_code, said in done.output) == (code, True), done.output


def test_the_command_learns_from_a_period_and_the_document_is_as_old_as_its_samples(
    tmp_path: Path,
) -> None:
    """The samples are a month old: the assignor uses 1.0 for a file written just now."""
    now = dt.datetime.now(dt.UTC)
    lines = [
        encode("partition_sample", {**sample(n, 0, load), "ts": now.timestamp() - days * 86_400})
        for days, loads in ((40, (100, 1)), (30, (1, 100)))
        for n, load in enumerate(loads)
    ]
    (tmp_path / "w.jsonl").write_bytes(b"".join(lines))
    out, since = tmp_path / "weights.json", (now - dt.timedelta(days=35)).isoformat()
    done = CliRunner().invoke(
        main,
        ["weights", "--ledger", str(tmp_path), "--out", str(out), "--no-spark", "--since", since],
    )
    assert done.exit_code == 0, done.output
    found = decode(out.read_bytes())
    assert [row["weight"] for row in found.rows] == sorted(row["weight"] for row in found.rows)
    assert found.for_group("shop", now=now).code == "stale"
    young = found.for_group("shop", now=now, max_age_s=31 * 86_400.0)
    assert young.in_force
    refused = CliRunner().invoke(
        main, ["weights", "--ledger", str(tmp_path), "--out", str(out), "--half-life", "0s"]
    )
    assert (refused.exit_code, "half-life" in refused.output) == (2, True), refused.output


def test_an_end_that_falls_back_brings_no_records() -> None:
    """After a recreation the lost records are no arrivals, but the new records are."""
    ends = (100, 10, 30)
    [rate] = rates_of(
        [sample(0, 60 * number, 0, end_offset=end) for number, end in enumerate(ends)],
        half_life_s=NO_DECAY,
    )
    assert rate.arrived == 20.0


def test_a_task_weighs_what_its_topics_weigh_together() -> None:
    """The topics' names do not matter."""
    for quiet, busy in (("a", "b"), ("b", "a")):
        samples = [
            sample(partition, 60 * number, records, topic=topic)
            for topic, amounts in ((busy, (600, 600, 6_000)), (quiet, (6, 6, 6)))
            for partition, records in enumerate(amounts)
            for number in range(3)
        ]
        rates = rates_of(samples, half_life_s=NO_DECAY)
        _, rows = weigh(rates, computed_at=NOON, by="records", limits=WIDE)
        weights = {(row.topic, row.partition): row.weight for row in rows}
        for partition in range(3):
            assert weights[busy, partition] == weights[quiet, partition]
        assert weights[busy, 2] == pytest.approx(6_006 / 606, rel=1e-3)


def hourly(*loads: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return hourly samples: ``loads[partition][hour]`` records, without offsets."""
    return [
        {
            "group_id": "shop",
            "ts": NOON + dt.timedelta(hours=hour),
            "topic": "orders",
            "partition": partition,
            "end_offset": 0,
            "committed_offset": 0,
            "records_in": records,
            "bytes_in": records,
            "cpu_ms": 0.0,
            "state_bytes": 0,
        }
        for partition, mine in enumerate(loads)
        for hour, records in enumerate(mine)
    ]


def test_a_load_that_all_partitions_share_by_day_and_night_costs_no_confidence() -> None:
    """Each hour has ten times the load of the last; the shares stay 1:3."""
    found = rates_of(hourly((1, 10, 100), (3, 30, 300)), half_life_s=NO_DECAY)
    assert [rate.confidence for rate in found] == [pytest.approx(1.0), pytest.approx(1.0)]
    assert [rate.hours for rate in found] == [3, 3]


def test_a_share_that_differs_between_the_hours_costs_confidence() -> None:
    """The ratio estimate's residuals are 5 and -5 over 20 records of two hours."""
    (first, second) = rates_of(hourly((15, 5), (5, 15)), half_life_s=NO_DECAY)
    assert first.error == second.error == pytest.approx((2 * (25 + 25)) ** 0.5 / 20)
    assert first.confidence == pytest.approx(1 - 1.96 * 0.5)


def test_samples_of_one_hour_give_no_confidence() -> None:
    """The difference between hours is unknown for any number of samples."""
    (found,) = rates_of([{**row, "ts": NOON + dt.timedelta(minutes=n)} for n in range(30)
                         for row in hourly((5,))])  # fmt: skip
    assert (found.samples, found.hours, found.confidence) == (30, 1, 0.0)


def test_an_idle_partition_is_known_to_be_idle() -> None:
    """Two hours without a record are two equal hours."""
    (idle, _) = rates_of(hourly((0, 0), (5, 5)), half_life_s=NO_DECAY)
    assert idle.confidence == 1.0


def test_each_weight_has_its_own_newest_sample() -> None:
    """A partition without recent samples is older than its group."""
    rows = hourly((5, 5), (5, 5, 5))
    _, weights = weigh(rates_of(rows, half_life_s=NO_DECAY), computed_at=NOON)
    assert [row.sampled_at for row in weights] == [
        NOON + dt.timedelta(hours=1),
        NOON + dt.timedelta(hours=2),
    ]
    document = json.loads(encode_weights(weights, version=1, computed_at=NOON))
    assert [row["sampled_at"][11:16] for row in document["partition_weight"]] == ["13:00", "14:00"]
    assert document["partition_weight"][0]["confidence"] == 1.0


def test_a_single_record_in_two_hours_is_no_sure_share() -> None:
    """A sum of one record or less counts: only without any record is there no error."""
    loads = hourly((1, 0), (5, 5))
    (first, _) = rates_of(loads, half_life_s=NO_DECAY)
    assert first.error == pytest.approx((2 * (5 / 11) ** 2 + 2 * (5 / 11) ** 2) ** 0.5, rel=0.1)
    (old, _) = rates_of(loads, half_life_s=1_800.0)
    assert old.records_in < 1
    assert old.error > 0


def test_an_older_hour_counts_less_for_the_error_too() -> None:
    """7.5 and 5 of 10 and 20 records have residuals of 3.33 and -3.33 over 12.5 records."""
    (found, _) = rates_of(hourly((15, 5), (5, 15)), half_life_s=3_600.0)
    assert found.records_in == 12.5
    assert found.error == pytest.approx((2 * 2 * (10 / 3) ** 2) ** 0.5 / 12.5)
