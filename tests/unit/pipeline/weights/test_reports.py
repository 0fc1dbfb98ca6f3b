"""Whole rows of rates and weights, the report of a run, and the run's steps."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.model import Member
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.ledgers.current import GroupState
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.refusals import Tolerance, TooManyRefused
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.weights import drift as drift_module
from faust_assigner.pipeline.weights import job
from faust_assigner.pipeline.weights.drift import DriftedTooFar, check, published
from faust_assigner.pipeline.weights.job import (
    LedgerSummary,
    NothingToLearn,
    Request,
    half_life_s,
    learn_here,
)
from faust_assigner.pipeline.weights.rates import PartitionRate, rates_of, records_kept
from faust_assigner.pipeline.weights.weighing import weigh
from faust_assigner.weights.document import WeightRow, compress, decode, encode
from faust_assigner.weights.limits import Limits
from tests.integration.spark.ledgers import ASSIGNMENT, DECISION, SAMPLE, Ledger, bad, good, stamp

NOON = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)


def after(seconds: float) -> dt.datetime:
    """Return a time after noon."""
    return NOON + dt.timedelta(seconds=seconds)


def sample(place: str, at_s: float, *amounts: float, group: str = "g") -> dict[str, Any]:
    """Return a sample: records, bytes, CPU time, bytes of state, end offset."""
    topic, _, partition = place.partition("/")
    names = ("records_in", "bytes_in", "cpu_ms", "state_bytes", "end_offset")
    told = {"group_id": group, "topic": topic, "partition": int(partition), "ts": after(at_s)}
    return {**told, **dict(zip(names, amounts, strict=True))}


def test_the_whole_rates_of_two_groups() -> None:
    """Each group has its own interval; ages count from its own newest sample."""
    samples = [
        sample("t/0", 120, 40, 400, 4.0, 9, 120),
        sample("t/0", 0, 10, 100, 1.0, 5, 100),
        sample("t/0", 60, 20, 300, 2.0, 7, 130),
        sample("t/1", 60, 8, 80, 0.5, 0, 50),
        sample("u/0", 600, 6, 60, 0.25, 3, 70, group="h"),
    ]
    assert rates_of(samples, half_life_s=60.0) == [
        PartitionRate(
            *("g", "t", 0, 3, 105_000.0, 52.5, 575.0, 5.25, 9, after(120), 120, 17.5, 30, 1)
        ),
        PartitionRate(*("g", "t", 1, 1, 30_000.0, 4.0, 40.0, 0.25, 0, after(60), 50, 4.0, 0, 1)),
        PartitionRate(*("h", "u", 0, 1, 60_000.0, 6.0, 60.0, 0.25, 3, after(600), 70, 6.0, 0, 1)),
    ]


def rate(place: str, **more: Any) -> PartitionRate:
    """Return a partition with ten minutes of samples and 6,000 arrived records."""
    topic, _, partition = place.partition("/")
    base = PartitionRate(
        "g", topic, int(partition), 10, 600_000.0, 3_000.0, 60_000.0, 90.0, 0, NOON, 0, 6_000.0, 5
    )
    return base._replace(**{"hours": 2, "error": 0.25, **more})


def test_a_whole_weight_has_its_rates_per_second_and_its_source() -> None:
    """Bytes and CPU time are consumed, records arrived; the version is the newest sample's time."""
    rates = [
        rate("t/1", arrived=12_000.0, newest=after(-60)),
        rate("t/0"),
        rate("t/0", group_id="h", newest=after(5), state_bytes=7_400_000),
    ]
    version, rows = weigh(rates, computed_at=after(90), by="records", limits=Limits(0.5, 1.25))
    newest = int(after(5).timestamp() * 1000)
    assert version == newest
    common = (newest, after(90), "t")
    rest = (100.0, 10.0, 0.15)
    assert rows == [
        WeightRow("g", "2026-11-21", *common, 0, 0.666667, *rest, 0, 0.0, 10, NOON, 0.51),
        WeightRow(
            "g", "2026-11-21", *common, 1, 1.25, 100.0, 20.0, 0.15, 0, 0.0, 10, after(-60), 0.51
        ),
        WeightRow("h", "2026-11-21", *common, 0, 1.0, *rest, 7_400_000, 100.0, 10, after(5), 0.51),
    ]
    assert weigh([], computed_at=NOON) == (0, [])


def test_a_group_has_the_day_of_its_own_newest_sample() -> None:
    """A group that stopped a day ago is dated to its last day."""
    rates = [
        rate("t/0", newest=after(-86_400)),
        rate("t/1", newest=after(-90_000)),
        rate("t/0", group_id="h"),
    ]
    _, rows = weigh(rates, computed_at=NOON)
    assert [row.dt for row in rows] == ["2026-11-20", "2026-11-20", "2026-11-21"]


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({"state_bytes": 4_000, "end_offset": 70}, 70.0),
        ({"state_bytes": 4_000}, 200.0),
        ({"state_bytes": 4_000, "records_in": 0}, 40.0),
        ({"state_bytes": 4_000, "bytes_in": 0}, 40.0),
        ({"end_offset": 70}, 0.0),
        ({"topic": "t-changelog", "end_offset": 70}, 70.0),
        ({"topic": "t-changelog"}, 0.0),
    ],
)
def test_records_of_a_state(more: dict[str, Any], kept: float) -> None:
    """The offset decides, else the bytes of a consumed record, else 100 bytes a record."""
    assert records_kept(rate("t/0", **more)) == kept


# -- the drift ------------------------------------------------------------------------------------


def document(group: str, *weights: float) -> bytes:
    """Return a published document."""
    rows = [
        WeightRow(group, "2026-11-21", 1, NOON, "t", n, weight, 0.0, 0.0, 0.0, 0, 0.0, 9)
        for n, weight in enumerate(weights)
    ]
    return encode(rows, version=1, computed_at=NOON)


def test_the_worst_group_above_the_limit_is_named() -> None:
    """Of two equal groups the last by name is named; a group at the limit passes."""
    found = {"a": 0.5, "c": 0.75, "d": 0.75, "b": 0.6}
    with pytest.raises(DriftedTooFar) as refused:
        check(found, 0.7)
    assert str(refused.value).startswith(
        "not published: 75% of the weight of group 'd' would lie on other partitions than in the "
        "published version, the limit is 70%;"
    )
    check(found, 0.75)
    check({}, 0.0)


def test_the_published_weights_are_the_files_or_else_the_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All readable documents of a topic count; an unreadable document is left out."""
    asked: list[Any] = []
    documents = [document("g", 1.0, 3.0), b"{oops", compress(document("h", 2.0))]
    monkeypatch.setattr(
        drift_module,
        "published_records",
        lambda cluster, topic: asked.append((cluster, topic)) or documents,
    )
    cluster, path = Cluster("a:1"), tmp_path / "weights.json"

    def told(*given: Any) -> list[tuple[str, int, float]]:
        rows = published(*given)
        return [(row["group_id"], row["partition"], row["weight"]) for row in rows]

    assert told(str(path), cluster, "w") == [("g", 0, 1.0), ("g", 1, 3.0), ("h", 0, 2.0)]
    assert asked == [(cluster, "w")]
    path.write_bytes(document("f", 4.0))
    for place in (str(path), f"file://{path}"):
        assert told(place, cluster, "w") == [("f", 0, 4.0)]
    assert asked == [(cluster, "w")]
    assert told(None, None, "w") == told(f"file://{path}.gone", cluster, None) == []


# -- the report -----------------------------------------------------------------------------------


def current(decision_id: str) -> GroupState:
    """Return two members, one with both partitions."""
    members = (Member("a", ["t"], actives={"t": [0, 1]}, generation=1), Member("b", ["t"]))
    return GroupState("g", decision_id, members, {"t": 2}, (), (), NOON)


def test_the_whole_report_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two groups one was published before; the report has the file, topic and both scores."""
    sent: list[Any] = []

    def publish_(*given: Any, **more: Any) -> int:
        sent.append((*given[:2], len(given[2]), more))
        return 2

    monkeypatch.setattr(job, "publish", publish_)
    out = tmp_path / "weights.json"
    out.write_bytes(document("g", 1.0, 1.0))
    rates = [
        rate("t/0", samples=4, error=0.1),
        rate("t/1", samples=5, arrived=18_000.0, newest=after(-30), error=0.3),
        rate("u/0", group_id="h", newest=after(-7_200)),
    ]
    request = Request(
        ["somewhere"],
        after(60),
        str(out),
        Cluster("a:1"),
        "weights",
        by="records",
        limits=Limits(0.25, 4.0),
        replicas=0,
        max_drift=0.25,
    )
    shown = Progress()
    stages: list[str] = []
    monkeypatch.setattr(shown, "enter", stages.append)
    learned = LedgerSummary(rates, (current("d2"), current("d1")), 7)
    found = job._finish(request, learned, shown)
    shadow = found.pop("shadow")
    version = int(NOON.timestamp() * 1000)
    assert found == {
        "version": version,
        "computed_at": "2026-11-21T12:01:00+00:00",
        "by": "records",
        "limits": [0.25, 4.0],
        "out": str(out),
        "topic": "weights",
        "records_published": 2,
        "quarantined": 7,
        "newest_sample": "2026-11-21T12:00:00+00:00",
        "stale_samples": False,
        "groups": [
            {
                "group_id": "g",
                "partitions": 2,
                "samples": 9,
                "lowest": 0.5,
                "highest": 1.5,
                "heaviest_partition": "t/1",
                "confidence_median": pytest.approx((0.804 + 0.412) / 2),
                "confidence_lowest": 0.412,
                "oldest_s": 30.0,
                "drift": 0.25,
            },
            {
                "group_id": "h",
                "partitions": 1,
                "samples": 10,
                "lowest": 1.0,
                "highest": 1.0,
                "heaviest_partition": "u/0",
                "confidence_median": 0.51,
                "confidence_lowest": 0.51,
                "oldest_s": 0.0,
                "drift": None,
            },
        ],
    }
    names = [(each["group_id"], each["decision_id"], each["ts"]) for each in shadow]
    assert names == [("g", name, "2026-11-21T12:00:00+00:00") for name in ("d2", "d1")]
    assert [(each["before"], each["counted_moves"]) for each in shadow] == [(2.0, 1), (2.0, 1)]
    assert stages == ["publishing the weights", "scoring 2 decisions"]
    newest = {"g": NOON, "h": after(-7_200)}
    more = {"version": version, "computed_at": after(60), "sampled_at": newest}
    assert sent == [(Cluster("a:1"), "weights", 3, more)]
    written = decode(out.read_bytes())
    assert (written.version, written.sampled_at) == (version, newest)


@pytest.mark.parametrize(
    ("cluster", "topic"), [(Cluster("a:1"), None), (None, "weights"), (None, None)]
)
def test_a_run_without_a_cluster_and_a_topic_sends_no_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster | None, topic: str | None
) -> None:
    """A run without decisions has no score either."""
    monkeypatch.setattr(job, "publish", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(job, "published", lambda *_: [])
    request = Request(["l"], NOON, str(tmp_path / "w.json"), cluster, topic)
    shown = Progress()
    found = job._finish(request, LedgerSummary([rate("t/0")], (), 0), shown)
    assert (found["records_published"], found["shadow"]) == (0, [])
    assert shown.stage == "publishing the weights"


def test_a_score_has_the_weights_and_the_topics_of_its_own_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another group may have a topic of the same name; the weights are within the limits."""
    asked: list[Any] = []

    def score(*given: Any, **more: Any) -> Any:
        asked.append((*given, more))
        return SimpleNamespace(report=lambda: {"score": 1})

    monkeypatch.setattr(job, "score", score)
    members = (Member("a", ["t", "c", "lead"]),)
    partitions = {"c": 2, "lead": 1, "t": 2}
    current_ = GroupState("g", "d", members, partitions, ("c",), ("lead",), None)
    rates = [rate("t/0"), rate("t/1", arrived=18_000.0)]
    rates += [rate("t/0", group_id="h", arrived=9_000.0), rate("t/1", group_id="h")]
    request = Request(
        ["l"], NOON, str(tmp_path / "w.json"), by="records", replicas=3, limits=Limits(0.75, 1.25)
    )
    found = job._finish(request, LedgerSummary(rates, (current_,), 0), Progress())
    assert found["shadow"] == [{"group_id": "g", "decision_id": "d", "ts": None, "score": 1}]
    weights = {("t", 0): 0.75, ("t", 1): 1.25}
    more = {"replicas": 3, "changelogs": ("c",), "weightless": ("lead",)}
    assert asked == [(members, partitions, weights, more)]


def test_a_run_that_publishes_to_a_topic_alone_is_compared_with_the_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Too high a drift sends no record."""
    asked: list[Any] = []
    monkeypatch.setattr(job, "publish", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(
        drift_module,
        "published_records",
        lambda *place: asked.append(place) or [document("g", 3.0, 1.0)],
    )
    cluster = Cluster("a:1")
    request = Request(["l"], NOON, None, cluster, "weights", by="records", max_drift=0.2)
    with pytest.raises(DriftedTooFar):
        job._finish(request, LedgerSummary([rate("t/0"), rate("t/1")], (), 0), Progress())
    assert asked == [(cluster, "weights")]


def test_topics_travel_together_by_their_highest_sampled_number() -> None:
    """A partition without a sample does not make a topic of another count."""
    rates = [rate("t/0"), rate("t/2"), rate("u/0"), rate("u/1", arrived=12_000.0), rate("u/2")]
    _, rows = weigh(rates, computed_at=NOON, by="records")
    assert [row.weight for row in rows] == [1.0] * 5


def test_a_run_reads_its_ledgers_with_the_clients_properties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger may be a topic of a secured cluster."""
    asked: list[Any] = []

    def read_here(*given: Any, refused: Any, now: Any) -> Any:
        asked.extend([*given, now])
        return [], refused

    monkeypatch.setattr(job, "read_here", read_here)
    period, most = Period(NOON), Tolerance(most=3)
    request = Request(
        ["l"],
        NOON,
        str(tmp_path / "w.json"),
        max_refused=most,
        properties={"a": "b"},
        period=period,
    )
    with pytest.raises(NothingToLearn):
        learn_here(request)
    assert asked == [["l"], most, period, {"a": "b"}, NOON]


def test_of_equal_weights_the_last_partition_is_the_heaviest(tmp_path: Path) -> None:
    """The order is by topic and number; the age is that of the oldest sample, here 25 hours."""
    rates = [rate("t/0"), rate("t/1", newest=after(-90_009)), rate("s/1", newest=after(-5))]
    rates.append(rate("s/0"))
    found = job._finish(
        Request(["l"], NOON, str(tmp_path / "w.json")), LedgerSummary(rates, (), 0), Progress()
    )
    (told,) = found["groups"]
    assert (told["heaviest_partition"], told["oldest_s"], told["partitions"]) == (
        "t/1",
        90_009.0,
        4,
    )


@pytest.mark.parametrize(("late_s", "stale"), [(0, False), (1, True)])
def test_samples_are_stale_beyond_their_age(tmp_path: Path, late_s: int, stale: bool) -> None:
    """Samples at the limit still count."""
    request = Request(["l"], after(job.MAX_AGE_S + late_s), str(tmp_path / "w.json"))
    found = job._finish(request, LedgerSummary([rate("t/0")], (), 0), Progress())
    assert found["stale_samples"] is stale


def test_nothing_is_learned_without_a_sample(tmp_path: Path) -> None:
    """The error names the ledgers and the refused lines."""
    request = Request(["one", "two"], NOON, str(tmp_path / "w.json"))
    with pytest.raises(
        NothingToLearn, match=r"no partition_sample in one, two \(3 lines refused\)"
    ):
        job._finish(request, LedgerSummary([], (), 3), Progress())


def test_a_run_reads_the_samples_of_its_period_with_its_half_life(tmp_path: Path) -> None:
    """Refused lines are counted; decisions are read only for a score."""
    lines = [
        good({**SAMPLE, "partition": n, "ts": stamp(after(at)), "records_in": records})
        for n, at, records in ((0, 0, 10), (0, 60, 10), (1, 0, 40), (1, 60, 10), (1, -9_000, 999))
    ]
    ledger = Ledger(tmp_path / "ledger")
    member = [{"member_id": "m", "rack": None, "capacity": 1.0, "epoch": 1}]
    decided = [
        good({**DECISION, "decision_id": name, "ts": stamp(after(at)), "members": member})
        for name, at in (("old", 1), ("new", 3), ("middle", 2))
    ]
    placed = [good({**ASSIGNMENT, "decision_id": name}) for name in ("old", "new", "middle")]
    ledger.write("w.jsonl", [*lines, bad(b"x", "JSON"), *decided, *placed])
    request = Request(
        [str(ledger.folder)],
        after(60),
        str(tmp_path / "w.json"),
        by="records",
        limits=Limits(0.02, 50),
        period=Period(after(-1)),
        half_life_s=60.0,
        decisions=2,
        max_drift=1.0,
    )
    shown = Progress()
    found = learn_here(request, shown)
    assert shown.lines is not None
    assert (shown.lines.accepted, shown.lines.lines, found["quarantined"]) == (11, 1, 1)
    assert (found["groups"][0]["samples"], found["shadow"]) == (4, [])
    # The older sample of partition 1 counts half: 20 + 10 records against 5 + 10.
    rows = json.loads((tmp_path / "w.json").read_bytes())["partition_weight"]
    assert [row["weight"] for row in rows] == [pytest.approx(2 / 3, abs=1e-6), 1.333333]
    scored = learn_here(Request(**{**vars(request), "shadow": True}))
    assert [each["decision_id"] for each in scored["shadow"]] == ["new", "middle"]
    with pytest.raises(TooManyRefused):
        learn_here(Request(**{**vars(request), "max_refused": Tolerance(most=0)}))


def test_a_sample_of_a_clock_that_is_ahead_is_no_measure_of_age(tmp_path: Path) -> None:
    """Next to a sample of the future all other samples would be equally old, and the version would stay."""
    lines = [
        good({**SAMPLE, "partition": n, "ts": stamp(after(60.0 * at)), "records_in": records})
        for n in (0, 1)
        for at, records in ((0, 10), (1, 10 + 90 * n))
    ]
    ahead = good({**SAMPLE, "ts": "2040-01-01T00:00:00.000Z", "records_in": 5})
    found = []
    for name, written in (("right", lines), ("ahead", [*lines, ahead])):
        ledger = Ledger(tmp_path / name)
        ledger.write("w.jsonl", written)
        out = tmp_path / f"{name}.json"
        told = learn_here(Request([str(ledger.folder)], after(60), str(out), half_life_s=60.0))
        found.append((told["version"], out.read_bytes()))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("text", "seconds"), [("12h", 43_200.0), ("500ms", 0.5), ("2d", 172_800.0)]
)
def test_a_half_life_is_a_duration(text: str, seconds: float) -> None:
    """The duration is in seconds."""
    assert half_life_s(text) == seconds
