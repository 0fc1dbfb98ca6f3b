"""Publishing weights: the file is always whole, and a broker accepts the records."""

from __future__ import annotations

import os
import resource
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.weights import job, publish
from faust_assigner.pipeline.weights.job import LedgerSummary, Request
from faust_assigner.pipeline.weights.publish import NotPublished, write_file
from faust_assigner.pipeline.weights.rates import NO_DECAY, PartitionRate, rates_of
from faust_assigner.pipeline.weights.weighing import weigh
from faust_assigner.weights.document import MAX_AGE_S, decode

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def rate(partition: int, *, newest: datetime = NOW, records: int = 10) -> PartitionRate:
    """Return the rate of a sampled partition."""
    return PartitionRate("g", "t", partition, 2, 60_000.0, records, 1_000, 5.0, 0, newest)


def learned(*rates: PartitionRate) -> LedgerSummary:
    """Return the results of a run."""
    return LedgerSummary(rates or (rate(0), rate(1)), (), 0)


def test_a_reader_finds_the_old_file_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old bytes stay until the last step; a failed write leaves no draft."""
    path = tmp_path / "weights.json"
    write_file(path, b"old")
    seen: list[bytes] = []
    replace = os.replace

    def watched(source: Any, target: Any) -> None:
        seen.append(path.read_bytes())
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    write_file(path, b"new")
    assert (seen, path.read_bytes()) == ([b"old"], b"new")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(NotPublished):
        write_file(path, b"newer")
    assert [each.name for each in tmp_path.iterdir()] == ["weights.json"]
    assert path.read_bytes() == b"new"


def test_a_document_too_large_for_a_record_is_said_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error has the group and both sizes."""
    sent: list[object] = []
    monkeypatch.setattr(publish, "MAX_RECORD_BYTES", 10)
    monkeypatch.setattr(publish, "_send", lambda *given: sent.append(given))
    monkeypatch.setattr(publish, "run_request", lambda *_: None)
    monkeypatch.setattr(job, "published", lambda *_: [])
    request = Request(["somewhere"], NOW, None, Cluster("a:1"), "weights")
    with pytest.raises(NotPublished, match="group 'g'"):
        job._finish(request, learned(), Progress())
    assert sent == []


def test_a_document_of_exactly_the_largest_size_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte more is refused."""
    sent: list[dict[str, bytes]] = []
    monkeypatch.setattr(publish, "_send", lambda _, topic, records, __: sent.append(records))
    monkeypatch.setattr(publish, "run_request", lambda *_: None)
    version, rows = weigh((rate(0), rate(1)), computed_at=NOW)

    def published() -> int:
        return publish.publish(Cluster("a:1"), "w", rows, version=version, computed_at=NOW)

    assert published() == 1
    (value,) = sent.pop().values()
    monkeypatch.setattr(publish, "MAX_RECORD_BYTES", len(value))
    assert published() == 1
    monkeypatch.setattr(publish, "MAX_RECORD_BYTES", len(value) - 1)
    with pytest.raises(NotPublished):
        published()
    assert sent == [{"g": value}]


def test_each_groups_record_has_the_time_of_its_newest_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Assignors compute the weights' age from this time, not from the run's time."""
    sent: list[dict[str, bytes]] = []
    monkeypatch.setattr(publish, "_send", lambda _, topic, records, __: sent.append(records))
    monkeypatch.setattr(publish, "run_request", lambda *_: None)
    monkeypatch.setattr(job, "published", lambda *_: [])
    old, older = NOW - timedelta(hours=1), NOW - timedelta(hours=2)
    rates = (
        rate(0, newest=older),
        rate(1, newest=old),
        rate(0, newest=older)._replace(group_id="h"),
    )
    job._finish(
        Request(["somewhere"], NOW, None, Cluster("a:1"), "weights"), learned(*rates), Progress()
    )
    documents = {group_id: decode(value) for group_id, value in sent[0].items()}
    assert {name: found.sampled_at for name, found in documents.items()} == {
        "g": {"g": old},
        "h": {"h": older},
    }


def test_weights_that_no_assignor_would_take_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are decoded before the publication."""
    monkeypatch.setattr(job, "encode", lambda *_, **__: b"{oops")
    with pytest.raises(Exception, match=r"."):
        job._finish(Request(["somewhere"], NOW, str(tmp_path / "w")), learned(), Progress())
    assert not (tmp_path / "w").exists()


def test_samples_that_are_too_old_to_count_are_told(tmp_path: Path) -> None:
    """The newest sample decides."""
    old = NOW - timedelta(seconds=MAX_AGE_S + 1)
    request = Request(["somewhere"], NOW, str(tmp_path / "w"))
    stale = job._finish(request, learned(rate(0, newest=old), rate(1, newest=old)), Progress())
    fresh = job._finish(request, learned(rate(0, newest=old), rate(1)), Progress())
    assert (stale["stale_samples"], fresh["stale_samples"]) == (True, False)


def test_of_a_state_its_latest_size_counts() -> None:
    """The order of samples does not matter; arrivals are summed."""
    sample = {
        "group_id": "g",
        "topic": "t",
        "partition": 0,
        "records_in": 1,
        "bytes_in": 1,
        "cpu_ms": 1.0,
    }
    samples = [{**sample, "ts": NOW + timedelta(minutes=minute), "state_bytes": size, "end_offset": size}
               for minute, size in ((2, 20), (0, 500), (1, 90))]  # fmt: skip
    (found,) = rates_of(samples, half_life_s=NO_DECAY)
    assert (found.state_bytes, found.end_offset, found.records_in) == (20, 20, 3)


def test_a_cost_that_nobody_measured_takes_no_part_in_the_blend() -> None:
    """Without bytes, the weights are those of records and processor time."""
    rates = [rate(n, records=records)._replace(bytes_in=0, cpu_ms=records / 2)
             for n, records in enumerate((10, 30))]  # fmt: skip
    _, rows = weigh(rates, computed_at=NOW)
    assert [row.weight for row in rows] == [0.5, 1.5]


def test_a_file_named_by_url_is_replaced_in_one_step_too(tmp_path: Path) -> None:
    """A full disk during the write keeps the old file."""
    path = tmp_path / "weights.json"
    write_file(f"file://{path}", b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        with pytest.raises(NotPublished):
            write_file(f"file://{path}", bytes(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["weights.json"]


@pytest.mark.parametrize("path", ["nonsense://weights", "file:///proc/none/weights"])
def test_a_place_that_cannot_be_written_is_named(path: str) -> None:
    """A scheme without a file system is an error of the caller, not a bug."""
    with pytest.raises(NotPublished, match=f"^{path}: "):
        write_file(path, b"new")
