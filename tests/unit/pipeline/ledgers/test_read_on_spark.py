"""Reading ledgers on Spark: the driver's plan and the function of each task, without a session."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.history import here
from faust_assigner.pipeline.ledgers import sources
from faust_assigner.pipeline.ledgers.chunks import Chunk
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.progress import OffsetSpan, Visit
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance, TooManyRefused
from faust_assigner.pipeline.ledgers.topic_source import TopicSource

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SOURCE = TopicSource(Cluster("a:1"), "t")


class Frame:
    """A DataFrame that records its operations as texts."""

    def __init__(self, *steps: Any) -> None:
        self.steps = steps

    def unionByName(self, other: Frame) -> Frame:  # noqa: N802 - Spark's
        """Return the union of both frames."""
        return Frame("union", self.steps, other.steps)

    def mapInArrow(self, task: Callable[..., Any], schema: Any) -> Frame:  # noqa: N802 - Spark's
        """Record the function by its name."""
        return Frame(*self.steps, "map", task.__name__, schema)


class Tasks:
    """A session whose ranges run their tasks at once, one batch of row numbers per partition."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, ...]] = []

    def range(self, *given: int) -> Tasks:
        """Record the range of the tasks."""
        self.ranges.append(given)
        return self

    def mapInArrow(self, task: Callable[..., Any], schema: Any) -> list[Any]:  # noqa: N802 - Spark's
        """Run a task for each partition."""
        start, end, step, parts = self.ranges[-1]
        numbers = list(range(start, end, step))
        assert parts == max(1, len(numbers))
        batches = [pa.record_batch({"id": pa.array([one], pa.int64())}) for one in numbers]
        return [row for batch in batches for row in task(iter([batch]))]

    def mapInPandas(self, task: Callable[..., Any], schema: str) -> Any:  # noqa: N802 - Spark's
        """Run one task over two frames."""
        start, end, step, _ = self.ranges[-1]
        numbers = list(range(start, end, step))
        half = len(numbers) // 2
        frames = [pd.DataFrame({"id": part}) for part in (numbers[:half], numbers[half:])]
        return schema, list(task(iter(frames)))


@pytest.mark.parametrize(
    ("spans", "chunks", "wanted", "loads"),
    [
        ((), (), ("chunks",), [1]),
        ((OffsetSpan(SOURCE, 0, 1, 2),), (), ("spans", "map", "parse_messages", "parsed"), []),
        ((), (Chunk("f", 0, 19),), ("chunks",), [2]),
        (
            (OffsetSpan(SOURCE, 0, 1, 2),),
            (Chunk("f", 0, 10), Chunk("g", 5, 25)),
            ("union", ("spans", "map", "parse_messages", "parsed"), ("chunks",)),
            [4],
        ),
    ],
)
def test_a_visit_reads_its_topics_and_then_its_files_in_tasks_of_equal_bytes(
    monkeypatch: pytest.MonkeyPatch,
    spans: tuple[OffsetSpan, ...],
    chunks: tuple[Chunk, ...],
    wanted: tuple[Any, ...],
    loads: list[int],
) -> None:
    """A visit without topics reads its files, even if it has none."""
    asked: list[Any] = []

    def read_spans(*given: Any, connector: str) -> Frame:
        asked.append((*given, connector))
        return Frame("spans")

    def pack(given: Any, tasks: int) -> str:
        asked.append((list(given), tasks))
        return "loads"

    def read_chunks(spark: Any, given: Any) -> Frame:
        asked.append((spark, given))
        return Frame("chunks")

    for function in (read_spans, pack, read_chunks):
        monkeypatch.setattr(sources, function.__name__, function)
    monkeypatch.setattr(sources, "parsed_schema", lambda: "parsed")
    monkeypatch.setattr(sources, "TASK_BYTES", 10)
    spark: Any = "spark"
    visit = Visit(list(chunks), list(spans))
    found: Any = sources.read_visit(spark, visit, connector="python")
    assert found.steps == wanted
    of_topics = [("spark", list(spans), "python")] * bool(spans)
    of_files = [each for tasks in loads for each in ((list(chunks), tasks), ("spark", "loads"))]
    assert asked == [*of_topics, *of_files]


def test_each_task_parses_its_own_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one row per task; without loads there is one task without rows."""
    monkeypatch.setattr(sources, "parse_chunks", lambda load: iter(load))
    monkeypatch.setattr(sources, "parsed_schema", lambda: "parsed")
    first, second, third = Chunk("a", 0, 9), Chunk("b", 0, 9), Chunk("a", 9, 12)
    tasks: Any = Tasks()
    read: Any = sources.read_chunks(tasks, [(first, third), (second,)])
    assert read == [first, third, second]
    assert sources.read_chunks(tasks, []) == []
    assert tasks.ranges == [(0, 2, 1, 2), (0, 0, 1, 1)]


def test_a_ledger_is_planned_read_and_cut_to_its_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are chosen by the same period and reached with the client's properties."""
    asked: list[Any] = []

    class Cut(Period):
        def on_spark(self, parsed: Any) -> Any:
            asked.append(("cut", parsed, self.since))
            return "cut"

    def whole(*given: Any) -> str:
        asked.append(given)
        return "visit"

    def read_visit(*given: Any, connector: str) -> str:
        asked.append((*given, connector))
        return "parsed"

    monkeypatch.setattr(sources, "plan_full_visit", whole)
    monkeypatch.setattr(sources, "read_visit", read_visit)
    spark: Any = "spark"
    period = Cut(since=NOON)
    properties = {"client.id": "me"}
    ledgers = ["a", "b"]
    found: Any = sources.read_ledger(
        spark, ledgers, connector="spark", properties=properties, period=period
    )
    assert found == "cut"
    assert asked == [
        (ledgers, period, properties),
        ("spark", "visit", "spark"),
        ("cut", "parsed", NOON),
    ]
    asked.clear()
    found = sources.read_ledger(spark, ledgers)
    assert found == "parsed"
    assert asked == [(ledgers, Period(), {}), ("spark", "visit", "auto")]


def test_a_checked_ledger_has_its_counts_or_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines outside the period count, as in one process; a refused line too many ends the run."""
    asked: list[Any] = []
    counts = Refused(90, 10, "f:1: why")

    class Cut(Period):
        def on_spark(self, parsed: Any) -> Any:
            return ("cut", parsed)

    monkeypatch.setattr(sources, "plan_full_visit", lambda *given: given)
    monkeypatch.setattr(sources, "read_visit", lambda *given: asked.append(given) or "lines")
    monkeypatch.setattr(sources, "refused_of", lambda lines: asked.append(lines) or counts)
    monkeypatch.setattr(sources, "without_future_on_spark", lambda *given: ("past", *given))
    spark: Any = "spark"
    period = Cut(until=NOON)
    found: Any = sources.read_checked(spark, ["a"], Tolerance(10), {"x": "y"}, period)
    assert found == (("cut", "lines"), counts)
    assert asked == [("spark", (["a"], period, {"x": "y"})), "lines"]
    found = sources.read_checked(spark, ["a"], Tolerance(10), {}, period, now=NOON)
    assert found == (("past", ("cut", "lines"), NOON), counts)
    with pytest.raises(TooManyRefused, match=r"^10 of 100 lines refused, the first: f:1: why"):
        sources.read_checked(spark, ["a"], Tolerance(9), {})


def test_a_process_without_spark_reads_files_and_then_each_span(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each span is read from its own offsets, and its messages are parsed."""
    monkeypatch.setattr(here, "parse_chunks", lambda chunks: iter([("files", *chunks)]))
    monkeypatch.setattr(here, "read_span", lambda *given: given)
    monkeypatch.setattr(here, "parse_messages", lambda span: iter([("messages", *span)]))
    chunk = Chunk("f", 0, 9)
    visit = Visit([chunk], [OffsetSpan(SOURCE, 3, 7, 11), OffsetSpan(SOURCE, 1, 5, 6)])
    assert list(here._batches(visit)) == [
        ("files", chunk),
        ("messages", SOURCE, 3, 7, 11),
        ("messages", SOURCE, 1, 5, 6),
    ]
