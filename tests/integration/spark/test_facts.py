"""What Spark computes from a messy ledger, as a whole, beside the same functions over single lines."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from faust_assigner.ledger import TABLES, Row
from faust_assigner.pipeline.ledgers.current import GroupState, current_here, current_on_spark
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance
from faust_assigner.pipeline.ledgers.rows import accepted_rows, read_here
from faust_assigner.pipeline.ledgers.sources import read_checked, read_ledger, refused_of, rows_of
from faust_assigner.pipeline.simulate.facts import facts_of
from faust_assigner.pipeline.simulate.on_spark import facts_on_spark
from faust_assigner.pipeline.weights.rates import PartitionRate
from tests.integration.spark.ledgers import START, Ledger, Line, bad_lines, good, random_rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: The fields of a rate that are sums of fractions.
SUMS = ("covered_ms", "records_in", "bytes_in", "cpu_ms", "arrived", "error")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Three groups with idle topics, session timeouts, standbys and warm-ups; lines repeated and late."""
    draw = random.Random(5)
    lines: list[Line] = []
    for seed in range(3):
        for line in random_rows(f"group-{seed}", seed):
            row = dict(line.row or {})
            if row.get("table") == "decision":
                idle = draw.choice(["", "audit", "nothing audit"]) if seed != 1 else ""
                config = {"weightless": idle, "replicas": str(seed), "deploy": "x"}
                row |= {"config": {name: value for name, value in config.items() if value}}
                row |= {"session_timeout_s": draw.choice([None, 45.5, 60.0])}
            if row.get("table") == "assignment":
                row |= {"role": draw.choice(["active", "active", "standby", "warmup"])}
            lines.append(good(row))
    late = [line for line in lines if line.row and line.row["table"] == "decision"][::2]
    lines += [good({**dict(line.row or {}), "ts": "2026-11-29T00:00:00.001Z"}) for line in late]
    lines += [*draw.sample(lines, len(lines) // 5), *bad_lines()]
    draw.shuffle(lines)
    found = Ledger(tmp_path_factory.mktemp("ledger"))
    found.write("a.jsonl", lines[::2])
    found.write("b.jsonl.gz", lines[1::2])
    return found


@pytest.fixture(scope="module")
def parsed(spark: SparkSession, ledger: Ledger) -> DataFrame:
    """The ledger's parsed lines."""
    return read_ledger(spark, [str(ledger.folder)]).persist()


@pytest.fixture(scope="module")
def read(ledger: Ledger) -> tuple[list[Row], Refused]:
    """The accepted lines, and the counts of all lines."""
    refused = Refused(keep=1_000)
    return list(accepted_rows([str(ledger.folder)], refused)), refused


def exact(rates: tuple[PartitionRate, ...]) -> list[PartitionRate]:
    """Return the rates without their rounded sums."""
    return [rate._replace(**dict.fromkeys(SUMS, 0.0)) for rate in rates]


def test_the_whole_facts_of_a_simulation_are_those_of_the_lines(
    parsed: DataFrame, read: tuple[list[Row], Refused]
) -> None:
    """All groups, decisions, topics, rates, recoveries, last samples, outcomes and halves."""
    here, there = facts_of(read[0]), facts_on_spark(parsed)
    wanted = ("group_id", "decision_id", "ts", "trigger", "session_timeout_s", "members")
    kept = ("weightless", "replicas")
    for told, lines in zip(there.decisions, here.decisions, strict=True):
        assert [told[name] for name in wanted] == [lines.get(name) for name in wanted]  # type: ignore
        assert told["config"] == {n: lines["config"][n] for n in kept if n in lines["config"]}
    for name in ("topics", "recoveries", "last_seen", "outcomes"):
        assert getattr(there, name) == getattr(here, name) != (), name
    for name in ("rates", "before", "after"):
        told, lines = getattr(there, name), getattr(here, name)
        assert exact(told) == exact(lines) != []
        for field in SUMS:
            values = [getattr(rate, field) for rate in lines]
            assert [getattr(rate, field) for rate in told] == pytest.approx(values, abs=1e-6)


@pytest.mark.parametrize("days", [-9, 1])
def test_a_period_and_a_clock_leave_the_same_lines_and_counts(
    spark: SparkSession, ledger: Ledger, days: int
) -> None:
    """Lines outside the period count as read; lines after the clock count if there are no others."""
    ledgers, period = [str(ledger.folder)], Period(since=START + timedelta(hours=9))
    now = START + timedelta(days=days)
    rows, here = read_here(ledgers, Tolerance(), period, now=now)
    parsed, there = read_checked(spark, ledgers, Tolerance(), {}, period, now=now)
    assert (there.accepted, there.lines) == (here.accepted, here.lines)
    assert here.accepted > len(rows)
    counts = {table: rows_of(parsed, table).count() for table in TABLES}
    assert counts == Counter(row.table for row in rows)


def plain(group: GroupState) -> tuple[Any, ...]:
    """Return a group's state as plain values."""

    def claims(held: Mapping[str, Any]) -> dict[str, list[int]]:
        return {topic: sorted(map(int, numbers)) for topic, numbers in sorted(held.items())}

    members = [
        (
            member.member_id,
            tuple(member.topics),
            claims(member.actives),
            claims(member.standbys),
            member.generation,
            member.rack_id,
            member.instance_id,
            member.capacity,
        )
        for member in group.members
    ]
    return members, replace(group, members=())


@pytest.mark.parametrize("count", [1, 3])
def test_the_newest_states_of_all_groups_are_those_of_the_lines(
    parsed: DataFrame, read: tuple[list[Row], Refused], count: int
) -> None:
    """A repeated decision has its later time; each state has its own placements."""
    here, there = current_here(read[0], count), current_on_spark(parsed, count)
    assert [plain(group) for group in there] == [plain(group) for group in here]
    assert len(here) == 3 * count


def test_the_counts_of_all_lines_and_the_first_refusal(
    parsed: DataFrame, read: tuple[list[Row], Refused]
) -> None:
    """The first refusal in the order of files and reasons is named."""
    refused = read[1]
    found = refused_of(parsed)
    assert (found.accepted, found.lines) == (refused.accepted, refused.lines)
    assert found.first == min(f"{file}: {reason}" for file, _, reason in refused.kept)


@pytest.mark.parametrize(
    "bounds", [("2026-11-22", "2026-11-24"), ("2026-11-23", None), (None, "2026-11-23")]
)
def test_the_rows_of_a_period_are_those_of_the_lines(
    parsed: DataFrame, read: tuple[list[Row], Refused], bounds: tuple[str | None, str | None]
) -> None:
    """A placement has the time of its decision; the refused lines are kept."""
    period = Period.parse(*bounds, now=datetime(2026, 12, 1, tzinfo=UTC))
    cut = period.on_spark(parsed).persist()
    key = ("group_id", "decision_id", "topic", "partition", "member_id", "role")
    wanted = Counter(
        (row.table, *(row.values.get(name) for name in key)) for row in period.rows(read[0])
    )
    found: Counter[tuple[Any, ...]] = Counter()
    for table in TABLES:
        for row in rows_of(cut, table).collect():
            values = row.asDict()
            found[(table, *(values.get(name) for name in key))] += 1
    assert found == wanted
    assert {table for table, *_ in wanted} == set(TABLES)
    assert cut.where("reason is not null").count() == read[1].lines
    cut.unpersist()
