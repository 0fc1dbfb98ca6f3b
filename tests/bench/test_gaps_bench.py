"""The benchmark of gaps: its counts of kept, moved, cold, repeated and lost, and its output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from benchmarks.gaps.__main__ import main
from benchmarks.gaps.arms import SOURCES, streams_classes
from benchmarks.gaps.measured import Done, Given, History, Process, Row, Window, rows
from benchmarks.gaps.story import Story
from benchmarks.gaps.table import beyond, table
from tests.bench.printed import printed

A, B, A2 = ("a", 1), ("b", 1), ("a", 2)
NOBODY: dict[str, frozenset[int]] = {}


def steady(by: Process, begin: float, end: float, first: int, partition: int = 0) -> list[Done]:
    """A record every tenth of a second."""
    return [
        Done(begin + n / 10, partition, first + n, by) for n in range(round((end - begin) * 10))
    ]


def window(event: str = "join", since: float = 2.0, until: float = 8.0, **more: object) -> Window:
    """One change of the group; no worker holds a copy unless ``more`` names copies."""
    said = {
        "rested": True,
        "held": NOBODY,
        "owners_before": {"a": frozenset({0})},
        "owners_after": {"a": frozenset({0})},
    } | more
    return Window(event, since, until, **said)  # type: ignore[arg-type]


def row_of(
    done: Sequence[Done],
    *windows: Window,
    sent: int = 0,
    given: Sequence[Given] = (),
    replays: Sequence[tuple[float, Process, int, int]] = (),
) -> Row:
    """The row of the first event, for one partition to which ``sent`` records were sent."""
    return rows(History(sorted(done), given, replays, [sent]), windows or [window()])[0]


def test_a_partition_that_one_process_goes_on_with_is_kept() -> None:
    """The gap is the longest time between two records around the change, not before the change."""
    done = [*steady(A, 0, 1, 0), *steady(A, 1.9, 4, 10), *steady(A, 4.5, 10, 31)]
    row = row_of(done)
    assert (len(row.kept), row.moved) == (1, ())
    assert row.kept[0] == pytest.approx(0.6)


def test_a_gap_that_begins_before_the_change_counts_whole() -> None:
    """The gap reaches from the last record before the change to the first record after it."""
    assert row_of([*steady(A, 0, 1.5, 0), *steady(A, 3, 10, 15)]).kept[0] == pytest.approx(1.6)


def test_a_gap_that_begins_at_the_end_is_the_next_changes() -> None:
    """The group was at rest at the end of the first change, so the gap belongs to the second."""
    done = [*steady(A, 0, 8, 0), *steady(B, 12, 14, 80)]
    windows = [window("first"), window("second", 8.0, 13.0)]
    first, second = rows(History(done, [], [], [0]), windows)
    assert (first.kept[0], first.moved) == (pytest.approx(0.1), ())
    assert second.moved[0] == pytest.approx(4.1)


def test_a_repeat_fills_no_gap() -> None:
    """The repeated record is counted in the change during which it is processed again."""
    done = [*steady(A, 0, 3, 0), Done(3.5, 0, 7, B), *steady(B, 5, 10, 30)]
    row = row_of(done)
    assert row.moved[0] == pytest.approx(2.1)
    assert row.repeated == 1


def test_a_partition_that_another_process_did_some_of_is_moved() -> None:
    """The partition counts as moved even if its owner gets it back before the end."""
    done = [*steady(A, 0, 3, 0), *steady(B, 3.5, 5, 30), *steady(A, 5.2, 10, 45)]
    row = row_of(done)
    assert (row.kept, len(row.moved), row.moves) == ((), 1, 0)


def test_a_restarted_worker_is_another_process_and_no_move() -> None:
    """Its partitions stand still while the worker restarts."""
    row = row_of([*steady(A, 0, 3, 0), *steady(A2, 6, 10, 30)], window(held={"a": frozenset({0})}))
    assert row.moved[0] == pytest.approx(3.1)
    assert (row.moves, row.cold) == (0, 0)


@pytest.mark.parametrize(
    ("held", "given", "cold"),
    [
        ({}, [], 1),
        ({"b": frozenset({0})}, [], 0),
        ({}, [Given(2.5, B, frozenset(), frozenset({0}))], 0),
        ({}, [Given(3.6, B, frozenset(), frozenset({0}))], 1),
        ({}, [Given(2.5, A2, frozenset(), frozenset({0}))], 1),
    ],
)
def test_a_move_to_who_held_no_copy_before_is_cold(
    held: dict[str, frozenset[int]], given: list[Given], cold: int
) -> None:
    """A copy counts if the process holds it at the start or gets it in time during the change."""
    done = [*steady(A, 0, 3, 0), *steady(B, 3.5, 10, 30)]
    row = row_of(
        done,
        window(held=held, owners_after={"b": frozenset({0})}),
        given=given,
        replays=[(3.2, B, 0, 7), (3.2, A, 0, 100), (20.0, B, 0, 100)],
    )
    assert (row.moves, row.cold, row.replayed, row.most_replayed) == (1, cold, 7, 7)


def test_a_lost_record_belongs_to_the_change_after_which_its_partition_went_on() -> None:
    """A lost record without a later record in its partition belongs to the last change."""
    done = [d for d in steady(A, 0, 30, 0) if d.offset != 45]
    windows = [window("first", 1, 3), window("second", 4, 6), window("third", 8, 9)]
    found = rows(History(done, [], [], [301]), windows)
    assert [row.lost for row in found] == [0, 1, 1]


def test_first_start_counts_from_the_start() -> None:
    """No record was processed before the first start, so every partition is moved."""
    row = row_of(steady(A, 5, 10, 0), window("first start", owners_before=NOBODY))
    assert row.moved[0] == pytest.approx(3.0)
    assert (row.kept, row.moves, row.cold) == ((), 1, 1)


def test_what_is_beyond_the_aims_is_named() -> None:
    """A kept gap is compared with the control, a moved one with its bound (plus a session)."""
    control = Row("nothing", kept=(0.1, 0.2))
    assert beyond(Row("SIGTERM", kept=(0.29,), moved=(0.9,)), control, 10.0) == []
    assert beyond(Row("SIGTERM", kept=(0.5,), moved=(1.5,), repeated=2, lost=1), control, 10.0) == [
        "lost 1",
        "kept 0.50 > 0.30",
        "moved 1.50 > 1.00",
        "repeated 2",
    ]
    assert beyond(Row("SIGKILL", moved=(10.9,), repeated=2), control, 10.0) == []
    assert beyond(Row("join", moved=(0.6,), cold=1, most_replayed=20_000), control, 10.0) == [
        "moved 0.60 > 0.50",
        "cold 1, up to 20000 records",
    ]
    assert beyond(Row("static roll", moves=1, moved=(4.0,)), control, 10.0) == ["moves 1 > 0"]


def test_events_for_which_no_time_is_left_are_named() -> None:
    """The budget may end between a group's events."""
    fleet = SimpleNamespace(living=list, workers={}, start=lambda _: None)
    story = Story(fleet, SimpleNamespace(prepare=print, start=print), ends_at=0.0)  # type: ignore[arg-type]
    story.play(("nothing", "join"))
    assert [window.event for window in story.windows] == ["first start"]
    assert story.left_out == ("nothing", "join")


def test_rounds_are_pooled_side_by_side() -> None:
    """The table has a row per arm and pools the gaps of all rounds."""
    one, two = Row("join", moves=3, kept=(0.1,)), Row("join", moves=2, kept=(0.3,))
    lines = table({"stock": [[one]], "cooperative": [[one], [two]]}, 10.0)
    assert [line.split()[:3] for line in lines[1:]] == [
        ["join", "stock", "3"],
        ["join", "cooperative", "5"],
    ]
    assert "0.20/0.30 (2)" in lines[2]


def run(*arguments: str) -> str:
    """The output of the benchmark."""
    return printed("benchmarks.gaps", *arguments)


def test_an_event_that_it_does_not_know_is_named() -> None:
    """The error also lists the known events."""
    said = CliRunner().invoke(main, ["--events", "join,earthquake"])
    assert said.exit_code == 2
    assert "earthquake; known: nothing, join" in said.output


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(280)
def test_one_event_of_one_arm_is_played_and_shown() -> None:
    """On the embedded broker: three workers start, one worker stops, no order is lost."""
    said = run(
        "--brokers",
        "embedded",
        "--arms",
        "cooperative",
        "--events",
        "SIGTERM",
        "--partitions",
        "4",
        "--preload",
        "0",
        "--budget",
        "200",
    )
    assert re.search(r"^first start +cooperative +4 ", said, re.MULTILINE)
    assert len(re.findall(r"^SIGTERM +cooperative +\d+ +0 ", said, re.MULTILINE)) == 2
    assert re.search(r"cooperative: \d+ orders, 0 lost, 0 wrong rows, \d+ s \(seed 1\)", said)


@pytest.mark.slow
@pytest.mark.processes
def test_without_budget_it_names_what_it_leaves_out_and_ends() -> None:
    """The benchmark starts no process."""
    said = run("--brokers", "embedded", "--arms", "stock", "--budget", "1")
    assert "left out, the budget is used up: stock, seed 1" in said


@pytest.mark.slow
@pytest.mark.kafka
def test_the_kafka_streams_worker_builds(kafka: object) -> None:
    """Maven builds into a temporary folder; the source tree keeps sources only."""
    with streams_classes() as path:
        classes = Path(path.split(":")[0])
        assert (classes / "StreamsWorker.class").exists()
    assert not classes.exists()
    assert {file.name for file in SOURCES.rglob("*") if file.is_file()} == {
        "pom.xml",
        "StreamsWorker.java",
    }
