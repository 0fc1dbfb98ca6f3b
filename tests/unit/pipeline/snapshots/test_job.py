"""The base of a snapshot, its published parts, and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.snapshots import run as snapshot_run
from faust_assigner.pipeline.snapshots import spans, writer
from faust_assigner.pipeline.snapshots.job import SnapshotOptions, duration_ms, run
from faust_assigner.pipeline.snapshots.run import refuse_recreated, take_snapshot
from faust_assigner.pipeline.snapshots.spans import Job, Part, Span, publish
from faust_assigner.pipeline.snapshots.writer import SpanWriter
from faust_assigner.snapshots.catalog import SnapshotCorruptError
from faust_assigner.snapshots.changelog import Changelog, Extent
from faust_assigner.snapshots.lease import lease_paths
from faust_assigner.snapshots.manifest import SnapshotError
from faust_assigner.snapshots.storage import LocalStorage

CLUSTER = Cluster("a:1")


def job(folder: Path, *ends: int) -> Job:
    """Return a job with a span from 0 to each end."""
    numbered = tuple(Span(number, 0, end) for number, end in enumerate(ends))
    return Job("t", str(folder), numbered, 1_000, topic_id="id-1")


def log(topic_id: str | None = "id-1", end: int = 5) -> Changelog:
    """Return a changelog with one partition."""
    found: Any = SimpleNamespace(topic="t", topic_id=topic_id, extents={0: Extent(0, end)})
    return found  # type: ignore[no-any-return]


def written(given: Job, partition: int) -> Part:
    """Return a part with one record."""
    with SpanWriter(given, given.spans[partition]) as writer:
        writer.add([b"k"], [b"v"], first_offset=0, last_offset=0)
        return writer.finish()


def test_records_that_come_twice_or_from_beyond_are_an_error(tmp_path: Path) -> None:
    """Offsets must ascend without repeats, below the end."""
    given = job(tmp_path, 5)
    for first, last in ((0, 1), (1, 1), (1, 2), (1, 0), (3, 5)):
        with SpanWriter(given, given.spans[0]) as writer:
            writer.add([b"k", b"k"], [b"v", b"w"], first_offset=0, last_offset=1)
            with pytest.raises(SnapshotError):
                writer.add([b"k"], [b"v"], first_offset=first, last_offset=last)


def test_a_snapshot_has_the_types_of_its_base_too() -> None:
    """The snapshot includes the base's rows, whatever records follow."""
    assert writer._merged_types(frozenset({"str"}), ("int",)) == ("int", "str")
    assert writer._merged_types(None, ("int",)) is None


def test_every_span_is_published_once_and_with_its_topics_id(tmp_path: Path) -> None:
    """A partition read by two tasks cannot be merged; a missing partition is a hole."""
    given = job(tmp_path, 5, 5)
    parts = [written(given, number) for number in (1, 0)]
    for wrong in (parts[:1], [*parts, parts[0]]):
        with pytest.raises(SnapshotError):
            publish(given, wrong)
    assert [(each.partition, each.topic_id) for each in publish(given, parts)] == [
        (0, "id-1"),
        (1, "id-1"),
    ]


def test_a_snapshot_that_is_not_trusted_is_not_built_upon() -> None:
    """The next older trusted snapshot is the base, if any."""
    judge: Any = SimpleNamespace(log=log())
    fields = {"start_offset": 0, "keys": 1, "key_types": ("str",), "value_types": None}
    manifests = [SimpleNamespace(snapshot_id=number, **fields) for number in range(3)]
    judge.verdicts = lambda _: [
        (manifests[0], "too old"),
        (manifests[1], None),
        (manifests[2], None),
    ]
    assert spans._base(judge, 0, ("auto", "raw"), False) is manifests[1]
    assert spans._base(judge, 0, ("auto", "json"), False) is None
    judge.verdicts = lambda _: [(manifests[0], "too old")]
    assert spans._base(judge, 0, ("auto", "raw"), False) is None


def test_a_span_upon_a_snapshot_remembers_where_the_whole_log_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The span starts at the snapshot's end; the snapshot's rows reach back to the log's start."""
    base: Any = SimpleNamespace(next_offset=7)
    monkeypatch.setattr(spans, "_base", lambda *_: base)
    given = Changelog("t", {0: Extent(2, 9)}, 1_000, "id-1")
    for previous, start in ((True, 7), (False, 2)):
        [span] = spans.plan_job(given, str(tmp_path), created_ms=1, previous=previous).spans
        assert (span.start, span.end, span.log_start) == (start, 9, 2)


def test_a_snapshot_upon_another_has_the_types_and_the_time_of_its_own(tmp_path: Path) -> None:
    """Rows of the first snapshot are in the second, so key and value types are joined."""

    def taken(given: Job, key: bytes, value: bytes, offset: int) -> Any:
        with SpanWriter(given, given.spans[0]) as writer:
            writer.add([key], [value], first_offset=offset, last_offset=offset)
            [manifest] = publish(given, [writer.finish()])
            return manifest

    first = replace(job(tmp_path, 1), codecs=("json", "json"), created_ms=1_700_000_000_000)
    base = taken(first, b'"k"', b"1", 0)
    second = replace(first, spans=(Span(0, 1, 2, base),), created_ms=1_700_000_001_000)
    found = taken(second, b'"l"', b"2.5", 1)
    assert (set(found.key_types), set(found.value_types)) == ({"str"}, {"int", "float"})
    assert [each.created_ms for each in (base, found)] == [1_700_000_000_000, 1_700_000_001_000]


@pytest.mark.parametrize(("unreadable", "is_published"), [(5, True), (6, False)])
def test_up_to_half_of_the_records_of_all_partitions_may_be_unreadable(
    tmp_path: Path, unreadable: int, is_published: bool
) -> None:
    """Beyond that limit the table has another serializer, and all rows would be lost."""
    given = job(tmp_path, 5, 5)
    parts = [
        replace(written(given, 0), records=4, unreadable=4),
        replace(written(given, 1), records=6, unreadable=unreadable - 4),
    ]
    if is_published:
        assert len(publish(given, parts)) == 2
    else:
        with pytest.raises(SnapshotError, match="6 of 10 records"):
            publish(given, parts)
        assert spans.Catalog(spans.open_storage(str(tmp_path))).snapshots("t", 0) == []


@pytest.mark.parametrize(("keys", "codecs"), [(0, ("json", "json")), (1, ("raw", "raw"))])
def test_an_empty_base_says_nothing_of_the_codecs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: int, codecs: tuple[str, str]
) -> None:
    """A base with rows requires its codecs: rows of both kinds cannot be mixed."""
    seen: list[Any] = []
    compactor = writer.Compactor

    def noted(*arguments: Any, **more: Any) -> Any:
        seen.append(more["codecs"])
        return compactor(*arguments, **more)

    monkeypatch.setattr(writer, "Compactor", noted)
    monkeypatch.setattr(writer, "_on_this_machine", lambda *_: None)
    base: Any = SimpleNamespace(keys=keys, key_types=None, value_types=None)
    given = replace(job(tmp_path, 5), codecs=("json", "json"))
    with SpanWriter(given, replace(given.spans[0], base=base)):
        assert seen == [codecs]


@pytest.mark.parametrize(("start", "built_upon"), [(None, False), (3, False), (4, True)])
def test_a_base_has_no_rows_of_records_that_retention_removed(
    start: int | None, built_upon: bool
) -> None:
    """A base without a start is unknown; a base older than the changelog has more rows."""
    manifest: Any = SimpleNamespace(start_offset=start, keys=1, key_types=None, value_types=None)
    assert (spans._unfit(manifest, 4, ("auto", "auto")) is None) == built_upon


def test_a_codec_that_does_not_fit_is_named_and_nothing_is_published(tmp_path: Path) -> None:
    """Most records are not JSON: the remaining rows would be a small part of the table."""
    given = replace(job(tmp_path, 5), codecs=("json", "json"))
    part = written(given, 0)
    with pytest.raises(SnapshotError, match="--value-codec raw"):
        publish(given, [part])


def test_a_manifest_is_not_written_without_its_files(tmp_path: Path) -> None:
    """The files were removed between their upload and the end of the run."""
    given = job(tmp_path, 5)
    part = written(given, 0)
    [path] = tmp_path.rglob("*.sst")
    path.unlink()
    with pytest.raises(SnapshotError, match="gone since they were uploaded"):
        publish(given, [part])
    assert not list(tmp_path.rglob("manifest.json"))


@pytest.mark.parametrize("now", [log("id-2"), log(end=4), log(None)])
def test_a_topic_that_was_made_anew_meanwhile_is_not_published(
    now: Changelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic has another id, or an end below the read offset."""
    monkeypatch.setattr(snapshot_run, "look_at", lambda *_: now)
    with pytest.raises(SnapshotError, match="recreated"):
        refuse_recreated(log(), CLUSTER)


def test_a_topic_that_only_grew_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is the usual case."""
    monkeypatch.setattr(snapshot_run, "look_at", lambda *_: log(end=9))
    refuse_recreated(log(), CLUSTER)


def test_a_damaged_base_is_passed_over_once_and_only_where_there_was_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second plan verifies bases; without --previous the error is raised."""
    tried: list[bool] = []

    def plan(*_: object, whole: bool = False, **__: object) -> Job:
        tried.append(whole)
        return job(tmp_path, 0)

    def damaged(*_: object) -> list[Part]:
        if not tried[-1]:
            raise SnapshotCorruptError("bytes differ")
        return []

    monkeypatch.setattr(snapshot_run, "look_at", lambda *_: log())
    monkeypatch.setattr(snapshot_run, "plan_job", plan)
    monkeypatch.setattr(snapshot_run, "_run", damaged)
    monkeypatch.setattr(snapshot_run, "publish", lambda *_: [])
    assert take_snapshot(CLUSTER, "t", str(tmp_path), previous=True) == []
    assert tried == [False, True]


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("7d", 604_800_000),
        ("36h", 129_600_000),
        ("90m", 5_400_000),
        ("1.5s", 1_500),
        ("5ms", 5),
        ("90", 90_000),
        (" 2 s ", 2_000),
        ("0.0016s", 2),
    ],
)
def test_durations_are_what_they_say(text: str, ms: int) -> None:
    """Any other text is refused."""
    assert duration_ms(text) == ms
    with pytest.raises(ConfigError):
        duration_ms(text + "x")


def test_a_name_that_no_topic_can_have_is_refused_before_anything_is_asked() -> None:
    """The name would be a path in the snapshot folder."""
    with pytest.raises(ConfigError, match="not a valid name of a Kafka topic"):
        run(SnapshotOptions(CLUSTER, "../t", "somewhere", no_spark=True), None)


def test_a_topic_that_was_made_anew_while_it_was_read_leaves_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the files would belong to the former topic; a lease covers the whole run."""
    looks = iter([log("id-1"), log("id-2")])
    steps: list[str] = []

    def leased(step: str) -> Job:
        steps.append(f"{step} {len(lease_paths(LocalStorage(tmp_path), 't'))}")
        return job(tmp_path, 5)

    monkeypatch.setattr(snapshot_run, "look_at", lambda *_: next(looks))
    monkeypatch.setattr(snapshot_run, "plan_job", lambda *_, **__: leased("plan"))
    monkeypatch.setattr(snapshot_run, "_run", lambda *_: leased("run"))
    monkeypatch.setattr(snapshot_run, "publish", lambda *_: leased("publish"))
    with pytest.raises(SnapshotError, match="recreated"):
        take_snapshot(CLUSTER, "t", str(tmp_path))
    assert steps == ["plan 1", "run 1"]
    assert lease_paths(LocalStorage(tmp_path), "t") == []


def test_a_run_that_fails_for_another_reason_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another read would not help, and would hide the reason for hours."""
    tries: list[None] = []

    def failing(*_: object) -> list[Part]:
        tries.append(None)
        raise SnapshotError("no space")

    monkeypatch.setattr(snapshot_run, "look_at", lambda *_: log())
    monkeypatch.setattr(snapshot_run, "plan_job", lambda *_, **__: job(tmp_path, 5))
    monkeypatch.setattr(snapshot_run, "_run", failing)
    with pytest.raises(SnapshotError, match="no space"):
        take_snapshot(CLUSTER, "t", str(tmp_path), previous=True)
    assert len(tries) == 1
