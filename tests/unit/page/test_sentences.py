"""The page's figures and sentences: tiles, the last round, lines of trouble, copies of a task."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.page.head import Line, Tile, decision_of, lines_of, tiles_of
from faust_assigner.page.history import Move
from faust_assigner.page.look import Look, Problem
from faust_assigner.page.render import _template_values, title_of
from faust_assigner.page.story import (
    Event,
    _copy_lines,
    _loss_sentence,
    _move_events,
    _standing_partitions,
    _state_of,
)
from faust_assigner.page.tasks import Task
from faust_assigner.status.build import build
from faust_assigner.status.report import Copy, Decision, Partition, Report, Standstill, WaitReport
from tests.support.page import look_at
from tests.support.status import group

REPORT = build(group(3, rounds=3).evidence())


def with_totals(silent: int = 0, **totals: int) -> Report:
    """The report with these totals and this many silent workers."""
    found = replace(REPORT, totals=replace(REPORT.totals, **totals))
    changed = [
        replace(one, answer="silent" if n < silent else "answered")
        for n, one in enumerate(found.members)
    ]
    return replace(found, members=tuple(changed))


def tile(report: Report, name: str) -> Tile:
    """Return the tile with this name."""
    (found,) = [one for one in tiles_of(report) if one.name == name]
    return found


@pytest.mark.parametrize(
    ("silent", "ready", "answered", "note", "level"),
    [
        (0, 1_203, 1_203, "all answered", "good"),
        (0, 1_202, 1_203, "all answered", "bad"),
        (1, 1_203, 1_203, "1 does not answer", "bad"),
        (2, 1_203, 1_203, "2 do not answer", "bad"),
    ],
)
def test_members_that_are_not_ready_or_silent_are_bad(
    silent: int, ready: int, answered: int, note: str, level: str
) -> None:
    """The tile counts ready members; a worker that was not queried is not silent."""
    report = with_totals(silent=silent, ready=ready, answered=answered, members=1_204)
    wanted = Tile(name="Members ready", value=f"{ready:,}", of="of 1,204", note=note, level=level)
    assert tile(report, "Members ready") == wanted
    unasked = replace(report.members[2], answer="not asked")
    report = replace(report, members=(*report.members[:2], unasked))
    assert tile(report, "Members ready") == wanted


def test_a_lag_is_summed_over_the_partitions_with_a_known_lag() -> None:
    """Without any known lag the sum is unknown, not zero."""
    known = [replace(one, lag=None) for one in REPORT.partitions]
    known[0].lag, known[1].lag = 1_000, 500
    found = tile(replace(REPORT, partitions=tuple(known)), "Lag")
    assert (found.value, found.level) == ("1,500", "good")
    none = tuple(replace(one, lag=None) for one in REPORT.partitions)
    found = tile(replace(REPORT, partitions=none), "Lag")
    assert (found.value, found.level) == ("-", "unknown")


@pytest.mark.parametrize(
    ("standbys", "warmups", "value", "note"),
    [
        (1_000, 2, "5,000", "records; 1,000 standbys, 2 warm-ups"),
        (0, 2, "5,000", "records; 0 standbys, 2 warm-ups"),
        (0, 0, "-", "no table has a copy"),
    ],
)
def test_the_missing_records_of_copies_are_shown_if_there_are_copies(
    standbys: int, warmups: int, value: str, note: str
) -> None:
    """Warm-ups count as copies."""
    totals = {"standby_partitions": standbys, "warmup_partitions": warmups, "standby_lag": 5_000}
    found = tile(with_totals(**totals), "Copies lack")
    assert (found.value, found.note) == (value, note)


@pytest.mark.parametrize(
    ("count", "note", "level"),
    [
        (0, "no partition stands still", "good"),
        (1, "partition stands still", "bad"),
        (2_000, "partitions stand still", "bad"),
    ],
)
def test_partitions_that_stand_still_are_bad(count: int, note: str, level: str) -> None:
    """The tile has their number."""
    found = tile(with_totals(standing_partitions=count), "Not processed")
    assert (found.value, found.note, found.level) == (f"{count:,}", note, level)


def decided(**more: Any) -> Decision:
    """The last decision, a minute before the look."""
    assert REPORT.decision is not None
    base = {"at": int(REPORT.taken_at) - 60, "trigger": "leave", "leader": "w0"}
    return replace(REPORT.decision, **{**base, **more})


@pytest.mark.parametrize(
    ("off_target", "note", "level"),
    [(0, "every task is on its target", "good"), (2, "tasks wait for a warm-up", "changing")],
)
def test_tasks_off_their_target_are_counted(off_target: int, note: str, level: str) -> None:
    """The number is out of all tasks; without a decision the tile is left out."""
    report = replace(REPORT, decision=decided(off_target=off_target, tasks=1_234))
    wanted = Tile(name="Off target", value=str(off_target), of="of 1,234", note=note, level=level)
    assert tile(report, "Off target") == wanted
    assert "Off target" not in [one.name for one in tiles_of(replace(REPORT, decision=None))]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "Last round: 7, 1 min ago, decided by w0, because members left: "),
        ({"at": None}, "Last round: 7, decided by w0, because members left: "),
        ({"leader": None}, "Last round: 7, 1 min ago, because members left: "),
        (
            {"at": int(REPORT.taken_at) + 60},
            "Last round: 7, just now, decided by w0, because members left: ",
        ),
        (
            {"trigger": "join", "joined": ("http://w9:1/", "http://x")},
            "Last round: 7, 1 min ago, decided by w0, because members joined (w9, http://x): ",
        ),
    ],
)
def test_the_last_round_has_its_age_its_leader_and_its_reason(
    more: dict[str, Any], words: str
) -> None:
    """Unknown facts are left out, and members have their names."""
    counts = {"generation": 7, "moved": 1_000, "tasks": 2_000, "cold": 3}
    report = replace(REPORT, decision=decided(**counts, is_planned=True, **more))
    said = decision_of(report, {"http://w9:1": "w9"})
    assert said == f"{words}1,000 of 2,000 tasks moved, 3 without their state."
    failed = replace(report, decision=decided(**counts, is_planned=False, **more))
    assert decision_of(failed, {"http://w9:1": "w9"}).startswith(f"{words}the planner failed, ")


def test_without_a_decision_the_members_are_asked_for_it() -> None:
    """In a group without members, the missing round is normal."""
    report = replace(REPORT, decision=None)
    assert decision_of(report, {}) == "No member reported the last round."
    assert decision_of(replace(report, members=()), {}) == ""


def test_lines_in_trouble_are_the_worst_first_and_one_for_each_silent_worker() -> None:
    """Waits have their duration, missing data comes last, and leaving workers are healthy."""
    first, second, third = REPORT.members
    members = (
        replace(first, is_leaving=True),
        replace(second, answer="silent", detail="no answer within 3 s"),
        replace(third, answer="unreachable", detail=""),
    )
    waits = (
        WaitReport(kind="step", member=third.name, text="waits", seconds=90.0),
        WaitReport(kind="answer", member=second.name, text="does not answer", seconds=None),
        WaitReport(kind="standing", member=None, text="stands", seconds=0.0),
    )
    report = replace(REPORT, members=members, waits=waits, problems=("no end offsets",))
    assert lines_of(report) == [
        Line(level="bad", member=third.name, text="unreachable."),
        Line(level="bad", member=second.name, text="does not answer"),
        Line(level="bad", member=None, text="stands"),
        Line(level="changing", member=third.name, text="waits", since="for 1 min 30 s"),
        Line(level="unknown", text="no end offsets"),
    ]


@pytest.mark.parametrize(
    ("kind", "level", "has_cross"),
    [
        (None, None, False),
        ("standing", None, True),
        ("step", None, False),
        (None, "bad", True),
        (None, "changing", False),
    ],
)
def test_the_title_has_a_cross_in_trouble_alone(
    kind: str | None, level: str | None, has_cross: bool
) -> None:
    """The trouble is the group's or the look's; a group without a report has no cross."""
    waits = () if kind is None else (WaitReport(kind=kind, member=None, text="t"),)
    problem = None if level is None else Problem(title="t", text="x", level=level)
    look = look_at(replace(REPORT, waits=waits), problem=problem)
    assert title_of(look).startswith("✕ ") is has_cross
    assert title_of(replace(look, report=None)) == "shop · faust-assigner"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("PreparingRebalance", "rebalance under way"),
        ("CompletingRebalance", "rebalance under way"),
        ("Stable", "stable"),
        ("Empty", "no members"),
        ("Odd", "Odd"),
    ],
)
def test_the_state_of_the_group_is_in_words(state: str, words: str) -> None:
    """A state of a later Kafka version is shown unchanged."""
    look = look_at(replace(REPORT, state=state))
    assert _template_values(look)["state"] == words
    assert (
        _template_values(look)["every"],
        _template_values(replace(look, every_s=None))["every"],
    ) == ("2 s", None)


# -- a task


def part(topic: str = "log", **more: Any) -> Partition:
    """A partition of a table, without copies."""
    base = {"partition": 3, "is_changelog": True, "owner": "w0", "committed": None, "end": None}
    return Partition(
        **{"topic": topic, **base, "lag": None, "standing": None, "copies": (), **more}
    )


def copy(member: str, lag: int | None, **more: Any) -> Copy:
    """A standby that the worker has measured."""
    base: dict[str, Any] = {"is_warmup": False, "seconds": None, "is_measured": True}
    return Copy(**{"member": member, "lag": lag, **base, **more})


def task(*parts: Partition, owner: str | None = "w0") -> Task:
    """A task of these partitions."""
    return Task(key="orders/3", number=3, owner=owner, partitions=parts)


@pytest.mark.parametrize(
    ("copies", "words"),
    [
        ([copy("b", 0), copy("a", 1_000)], ["a standby 1,000 records behind 2"]),
        ([copy("a", None)], ["a standby lag unknown u"]),
        ([copy("a", 5, is_warmup=True)], ["a warm-up 5 records behind 1"]),
        ([copy("a", 5, is_measured=False)], ["a standby at most 5 records behind 1"]),
        ([copy("a", 5, seconds=90.0)], ["a standby 5 records behind, for 1 min 30 s 1"]),
        ([copy("a", 0, seconds=90.0)], ["a standby 0 records behind 0"]),
    ],
)
def test_a_copy_is_told_with_its_lag(copies: list[Copy], words: list[str]) -> None:
    """Copies are ordered by member."""
    found = _copy_lines(task(part(copies=tuple(copies))))
    told = [f"{one.member} {one.what} {one.lag} {one.shade}" for one in found]
    assert told[: len(words)] == words
    assert [one.member for one in found] == sorted(one.member for one in copies)


def test_copies_of_several_tables_are_one_line() -> None:
    """The line has the sum of lags, the longest time, and the weaker role."""
    first = copy("a", 5, seconds=3.0)
    second = copy("a", 6, seconds=90.0, is_warmup=True, is_measured=False)
    (found,) = _copy_lines(task(part(copies=(first,)), part("log2", copies=(second,))))
    assert (found.what, found.lag) == ("warm-up", "at most 11 records behind, for 1 min 30 s")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((part("orders", is_changelog=False),), "It has no table."),
        ((part(),), "It has no copy."),
        ((part(copies=(copy("a", None),)),), "Copies exist, but their lag is unknown."),
        (
            (part(copies=(copy("a", None), copy("b", 1_000), copy("c", 2_000))),),
            "b has the best copy: it would replay 1,000 records.",
        ),
        (
            (part(copies=(copy("b", 0), copy("a", 0))),),
            "a has the best copy: it would replay 0 records.",
        ),
        (
            (part(copies=(copy("a", 0), copy("b", 9))), part("l", copies=(copy("a", 10),))),
            "b has the best copy: it would replay 9 records.",
        ),
    ],
)
def test_the_effect_of_a_loss_is_told_by_the_best_copy(
    parts: tuple[Partition, ...], words: str
) -> None:
    """All tables of the task count."""
    assert _loss_sentence(task(*parts)).startswith(words)


STILL = Standstill(reason="restoring", seconds=90.0)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (task(part(), owner=None), ("bad", "nobody owns it")),
        (task(part(), part(standing=STILL)), ("bad", "not processed")),
        (
            task(part(copies=(copy("a", 0), copy("b", 0, is_warmup=True)))),
            ("changing", "processed; moves when its warm-up has caught up"),
        ),
        (task(part(copies=(copy("a", 0),))), ("good", "processed")),
    ],
)
def test_the_state_of_a_task_is_its_worst(found: Task, state: tuple[str, str]) -> None:
    """A standby does not hide a warm-up."""
    assert _state_of(found) == state


def test_each_partition_that_stands_still_has_its_reason() -> None:
    """A reason of a later version is shown unchanged."""
    odd = Standstill(reason="odd", seconds=3.0)
    first, second = _standing_partitions(
        task(part(standing=STILL), part("l2"), part("l3", standing=odd))
    )
    assert re.match(r"log/3 has not been processed for 1 min 30 s: \w", first)
    assert "restoring" not in first
    assert second == "l3/3 has not been processed for 3 s: odd"


def looked(look: Look) -> dict[str, Any]:
    """Return the values of the page's templates."""
    return _template_values(look)


def test_rounds_are_listed_from_the_newest_with_their_ages() -> None:
    """A round of unknown duration is marked."""
    look = look_at(replace(REPORT, decision=decided(generation=7)))
    look.history.note_round(replace(look.history.rounds[-1], generation=8, seconds=2.5))
    found = looked(look)["rounds"]
    assert [(one["generation"], one["when"], one["took"]) for one in found] == [
        (8, "1 min ago", "2.5 s"),
        (7, "1 min ago", "-"),
    ]


def test_a_lag_of_zero_is_known() -> None:
    """A lag of zero differs from an unknown lag."""
    none = tuple(replace(one, lag=0) for one in REPORT.partitions)
    found = tile(replace(REPORT, partitions=none), "Lag")
    assert (found.value, found.level) == ("0", "good")


@pytest.mark.parametrize(
    ("was_warm", "rule", "words", "level"),
    [
        (None, "", "b took over from a", "good"),
        (True, "", "b took over from a with a copy of the state", "good"),
        (False, "", "b took over from a without a copy of the state", "bad"),
        (False, "moved", "b took over from a, for the balance, without a copy of the state", "bad"),
        (True, "odd", "b took over from a with a copy of the state", "good"),
    ],
)
def test_a_move_is_bad_only_if_state_was_left_behind(
    was_warm: bool | None, rule: str, words: str, level: str
) -> None:
    """A task without state loses none; an unknown rule is left out."""
    move = Move(
        key="t/0", at=10.0, generation=4, source="a", target="b", was_warm=was_warm, rule=rule
    )
    (event,) = _move_events([move], [], 100.0)
    assert event == Event(when="1 min 30 s ago", what=words, reason="", level=level)
    (lost,) = _move_events([replace(move, source=None)], [], 10.0)
    assert lost.what.startswith("b took over")
    assert "from" not in lost.what
    assert lost.when == "just now"


@pytest.mark.parametrize(
    ("members", "tasks", "height"), [(3, 30, 44), (3, 100, 44), (20, 30, 32), (20, 100, 24)]
)
def test_a_row_is_as_high_as_its_cells_and_its_lines_of_text(
    members: int, tasks: int, height: int
) -> None:
    """A row has one line in a large group and two lines in a small group."""
    report = build(group(members, topics={"orders": tasks}).evidence())
    assert _template_values(look_at(report))["h"] == height


def test_a_task_moves_if_any_copy_of_any_of_its_tables_is_a_warm_up() -> None:
    """The member has a standby of the first table and a warm-up of the second."""
    found = task(part(copies=(copy("a", 0),)), part("log2", copies=(copy("a", 0, is_warmup=True),)))
    assert _state_of(found)[0] == "changing"
