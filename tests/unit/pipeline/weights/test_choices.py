"""The choices between sources of a rate, a weight's group, and a run on Spark."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.weights import job, publish
from faust_assigner.pipeline.weights.drift import parse_share
from faust_assigner.pipeline.weights.job import LedgerSummary, Request, learn_on_spark
from faust_assigner.pipeline.weights.publish import NotPublished, write_file
from faust_assigner.pipeline.weights.rates import NO_DECAY, PartitionRate, rates_of, records_kept
from faust_assigner.pipeline.weights.weighing import weigh
from faust_assigner.weights.document import decode
from faust_assigner.weights.limits import Limits

NOON = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
WIDE = Limits(0.01, 100.0)


def rate(place: str, group: str = "g", **more: Any) -> PartitionRate:
    """Return the rate of a partition over one second."""
    topic, _, number = place.partition("/")
    return PartitionRate(group, topic, int(number), 3, 1_000.0, 7.0, 0.0, 0.0, 0, NOON)._replace(
        **more
    )


def sample(place: str, hour: int, records: int, end: int = 0, group: str = "g") -> dict[str, Any]:
    """Return a sample of an hour."""
    topic, _, number = place.partition("/")
    return {
        "group_id": group,
        "topic": topic,
        "partition": int(number),
        "ts": NOON + dt.timedelta(hours=hour),
        "records_in": records,
        "bytes_in": 0,
        "cpu_ms": 0.0,
        "state_bytes": 0,
        "end_offset": end,
    }


def test_records_arrive_by_the_offsets_if_an_offset_grew_else_by_the_consumption() -> None:
    """An end offset that grew in a hole alone brings no counted record."""
    assert rate("t/0", moved=30, arrived=0.0).arrived_per_s == 0.0
    assert rate("t/0", moved=30, arrived=5.0).arrived_per_s == 5.0
    assert rate("t/0", moved=0, arrived=9.0).arrived_per_s == 7.0


def test_the_error_of_a_share_is_of_the_hours_in_which_the_partition_has_samples() -> None:
    """Arrived records count if they are more than the consumed ones; groups do not mix."""
    mine = [
        sample("t/0", 0, 10, 100),
        sample("t/0", 1, 20, 130),
        sample("t/1", 0, 10),
        sample("t/1", 1, 10),
        sample("t/1", 2, 50),
    ]
    theirs = [sample("a/0", hour, count, group="f") for hour, count in enumerate((5, 80, 7))]
    theirs += [sample("a/1", hour, count, group="f") for hour, count in enumerate((50, 8, 9))]
    found = rates_of(mine, half_life_s=NO_DECAY)
    assert [(each.hours, each.partition) for each in found] == [(2, 0), (3, 1)]
    assert found[0].error == pytest.approx(1 / 6)
    others = rates_of(theirs, half_life_s=NO_DECAY)
    assert rates_of([*mine, *theirs], half_life_s=NO_DECAY) == [*others, *found]


def test_only_a_topic_whose_name_ends_so_is_a_changelog() -> None:
    """A topic of another purpose has no state to replay."""
    assert records_kept(rate("a-changelog-copy/0", end_offset=9)) == 0.0
    assert records_kept(rate("a-changelog/0", end_offset=9)) == 9.0


def test_a_topic_without_offsets_is_weighed_by_its_consumption_beside_one_with_offsets() -> None:
    """The day of all weights is that of the group's newest sample."""
    old = NOON - dt.timedelta(days=2)
    rates = [
        rate("a/0", moved=10, arrived=10.0, records_in=99.0, newest=old),
        rate("a/1", moved=20, arrived=20.0, records_in=98.0),
        rate("b/0", records_in=30.0, arrived=1.0, newest=old),
        rate("b/1", records_in=40.0),
        rate("b/2", records_in=20.0, arrived=2.0),
    ]
    _, rows = weigh(rates, computed_at=NOON, by="records", limits=WIDE)
    assert [row.weight for row in rows] == [0.5, 1.0, 1.5, 2.0, 1.0]
    assert {row.dt for row in rows} == {"2026-11-21"}


def test_a_fraction_of_a_record_has_its_own_cost() -> None:
    """An old sample's weight makes its records fewer than one."""
    amounts = {0: (0.5, 3.0), 1: (10.0, 10.0), 2: (20.0, 40.0)}
    rates = [rate(f"t/{n}", records_in=count, cpu_ms=cpu) for n, (count, cpu) in amounts.items()]
    _, rows = weigh(rates, computed_at=NOON, by="cpu", limits=WIDE)
    assert [row.weight for row in rows] == [0.3, 1.0, 4.0]


def test_a_file_system_without_its_package_is_an_error_of_the_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message has the reason."""

    def missing(_url: str) -> Any:
        raise ImportError("install s3fs")

    monkeypatch.setattr(publish, "file_system", missing)
    with pytest.raises(NotPublished, match=r"^s3://b/w: install s3fs"):
        write_file("s3://b/w", b"new")


def test_each_record_has_the_rows_of_its_group_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection, the topic and the number of replicas are the caller's."""
    sent: list[Any] = []
    monkeypatch.setattr(publish, "_send", lambda *given: sent.append(given) or "sending")
    monkeypatch.setattr(publish, "run_request", lambda *given: sent.append(given))
    rates = (rate("a/0"), rate("a/1"), rate("b/0", group="h"))
    version, rows = weigh(rates, computed_at=NOON)
    cluster = Cluster("a:1", {"request.timeout.ms": "77"})
    count = publish.publish(cluster, "w", rows, version=version, computed_at=NOON, replication=2)
    connection, topic, records, replication = sent[0]
    assert (count, connection, topic, replication) == (2, cluster.connection(), "w", 2)
    assert sent[1] == (connection, "sending")
    places = {
        group: [(row["group_id"], row["topic"], row["partition"]) for row in decode(value).rows]
        for group, value in records.items()
    }
    assert places == {"g": [("g", "a", 0), ("g", "a", 1)], "h": [("h", "b", 0)]}


@pytest.mark.parametrize(("text", "share"), [("100%", 1.0), ("1", 1.0), (" 50% ", 0.5), ("0%", 0)])
def test_the_whole_is_the_largest_share(text: str, share: float) -> None:
    """Blanks around a share do not matter; a number above 1 needs a percent sign."""
    assert parse_share(text) == share
    with pytest.raises(ConfigError):
        parse_share("2")


def test_a_group_has_the_median_of_its_confidences(tmp_path: Any) -> None:
    """The lowest is beside it."""
    rates = [rate(f"t/{n}", error=error) for n, error in enumerate((0.1, 0.5, 0.2))]
    found: Any = job._finish(
        Request(["l"], NOON, str(tmp_path / "w")), LedgerSummary(rates, (), 0), Progress()
    )
    (group,) = found["groups"]
    assert (group["confidence_median"], group["confidence_lowest"]) == (0.608, 0.02)


@pytest.mark.parametrize("shadow", [True, False])
def test_a_run_on_spark_passes_all_options(monkeypatch: pytest.MonkeyPatch, shadow: bool) -> None:
    """The groups' states are collected only for their score."""
    root = "faust_assigner.pipeline"
    asked: list[Any] = []
    refused = Refused(50, 6)

    def noted(name: str, answer: Any) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            asked.append((name, progress.stage, given, more))
            return answer

        return call

    monkeypatch.setattr(f"{root}.ledgers.sources.read_checked", noted("read", ("parsed", refused)))
    monkeypatch.setattr(f"{root}.ledgers.sources.rows_of", noted("rows", "samples"))
    monkeypatch.setattr(f"{root}.weights.on_spark.collect_rates", noted("rates", ["rate"]))
    monkeypatch.setattr(f"{root}.ledgers.current.current_on_spark", noted("current", ["state"]))
    monkeypatch.setattr(job, "_finish", noted("finish", {"a": "report"}))
    progress = Progress()
    spark: Any = SimpleNamespace()
    period = Period(since=NOON)
    request = Request(
        ["l"],
        NOON,
        "out",
        shadow=shadow,
        max_refused=Tolerance(most=9),
        properties={"a": "b"},
        period=period,
        half_life_s=77.0,
        decisions=5,
    )
    assert learn_on_spark(spark, request, progress) == {"a": "report"}
    current = [("current", "computing rates", ("parsed", 5), {})] if shadow else []
    states: Any = ["state"] if shadow else ()
    assert asked == [
        (
            "read",
            "reading the lines",
            (spark, ["l"], Tolerance(most=9), {"a": "b"}, period),
            {"now": NOON},
        ),
        ("rows", "computing rates", ("parsed", "partition_sample"), {}),
        ("rates", "computing rates", ("samples",), {"half_life_s": 77.0}),
        *current,
        ("finish", "computing rates", (request, LedgerSummary(["rate"], states, 6), progress), {}),
    ]
    assert progress.lines is refused
