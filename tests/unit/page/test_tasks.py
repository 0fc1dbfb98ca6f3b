"""The tasks and families of a report, their order, and the history of looks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faust_assigner.page import history as under_test
from faust_assigner.page.grid import grid_of, lag_of
from faust_assigner.page.history import KEPT_S, SAMPLE_S, History, Move
from faust_assigner.page.tasks import Task, families_of, task_of
from faust_assigner.status.build import build
from faust_assigner.status.report import Copy, Report, Standstill
from faust_assigner.status.words import natural
from tests.support.status import AT, LOG, group
from tests.unit.page.test_history import at, moved, noted, sample, seen, told


def copy(member: str = "w1", lag: int | None = 0, **more: bool) -> Copy:
    """A measured standby."""
    base = {"is_warmup": False, "is_measured": True} | more
    return Copy(member=member, lag=lag, seconds=None, **base)


# -- tasks


def test_the_families_with_source_topics_come_first() -> None:
    """A table without a source topic comes last under any name."""
    report = build(group(2, topics={"orders": 4, "shop-a-changelog": 3, "zebra": 2}).evidence())
    assert [one.label for one in families_of(report)] == ["orders", "zebra", "table a"]


def test_a_label_names_three_topics_and_counts_the_rest() -> None:
    """Three topics are all named."""
    names = [f"t{n}" for n in range(5)]
    report = build(group(2, topics=dict.fromkeys(names, 2)).evidence())
    assert families_of(report)[0].label == "t0, t1, t2 and 2 more"
    three = build(group(2, topics=dict.fromkeys(names[:3], 2)).evidence())
    assert families_of(three)[0].label == "t0, t1, t2"


def test_tasks_without_an_owner_are_shown_while_a_rebalance_is_in_progress() -> None:
    """In a settled group, a topic without any owner has no subscribers."""
    report = build(group(2).evidence())
    lost = replace(report, partitions=tuple(replace(one, owner=None) for one in report.partitions))
    assert families_of(lost) == ()
    moving = families_of(replace(lost, is_settled=False))
    assert [len(one.tasks) for one in moving] == [6]


def test_a_task_is_found_by_any_of_its_topics() -> None:
    """The number must match as text."""
    families = families_of(build(group(2).evidence()))
    found = task_of(families, f"{LOG}/4")
    assert found is not None
    assert found[1].key == "orders/4"
    assert task_of(families, "orders/04") is None


def test_the_lag_of_a_task_is_that_of_its_source_topics() -> None:
    """A changelog has no lag of its own; unknown lags beside known lags are ignored."""
    report = build(group(2, topics={"a": 1, "b": 1, LOG: 1}).evidence())
    a, b, log = report.partitions
    task = Task(key="a/0", number=0, owner="w0", partitions=(a, b, replace(log, lag=5)))
    assert (task.lag, task.is_stateful) == (200, True)
    unknown = replace(task, partitions=(replace(a, lag=None), b))
    assert (unknown.lag, unknown.is_stateful) == (100, False)
    assert replace(task, partitions=(log,)).lag is None


def test_numbers_in_names_sort_as_numbers_before_and_behind_words() -> None:
    """A name that starts with a number is a normal name."""
    names = ["b", "a10", "a2", "10", "9", "a", "a2b"]
    assert sorted(names, key=natural) == ["9", "10", "a", "a2", "a2b", "a10", "b"]


# -- marks


def marks(report: Report) -> dict[tuple[str, str], str]:
    """Map (row, shape) to the label of the first task's mark."""
    found = grid_of(report, families_of(report))
    return {
        (row.name, mark.shape): mark.label
        for row in found.rows
        for mark in row.marks
        if mark.number == 0
    }


def test_the_longest_standstill_of_a_task_is_shown() -> None:
    """The topics of a task stand still for different reasons."""
    report = build(group(1).evidence())
    times = {"orders": ("record", 5.0), LOG: ("restoring", 90.0)}
    parts = tuple(
        replace(one, standing=Standstill(reason=times[one.topic][0], seconds=times[one.topic][1]))
        if one.partition == 0
        else one
        for one in report.partitions
    )
    labels = marks(replace(report, partitions=parts))
    assert labels["w0", "x"].endswith("not processed for 1 min 30 s: restoring")


@pytest.mark.parametrize(
    ("copies", "words", "shape"),
    [
        ((copy(lag=5),), "standby, 5 behind", "s"),
        ((copy(lag=5), copy(lag=1_000, is_measured=False)), "standby, at most 1,005 behind", "s"),
        ((copy(lag=5), copy(lag=None)), "standby, lag unknown", "s"),
        ((copy(lag=5), copy(lag=6, is_warmup=True)), "warm-up, 11 behind", "w"),
    ],
)
def test_the_copies_of_all_tables_of_a_task_are_one_mark(
    copies: tuple[Copy, ...], words: str, shape: str
) -> None:
    """The lags are added; an unknown lag makes the sum unknown."""
    report = build(group(2, replicas=0).evidence())
    parts = tuple(
        replace(one, owner="w0", copies=copies if one.topic == LOG else ())
        for one in report.partitions
    )
    assert marks(replace(report, partitions=parts))["w1", shape] == f"orders/0: {words}"
    assert lag_of(()) == 0


def test_a_row_adds_the_lags_of_standbys_and_warm_ups() -> None:
    """Unknown lags are ignored; without any known lag the sum is unknown."""
    report = build(group(1).evidence())
    (one,) = report.members
    sums = ((3, 4, 7), (3, None, 3), (None, None, None), (0, None, 0))
    for standby, warmup, behind in sums:
        members = (replace(one, standby_lag=standby, warmup_lag=warmup),)
        found = grid_of(replace(report, members=members), families_of(report))
        assert found.rows[0].behind == behind


# -- history


def test_three_looks_within_five_seconds_are_two() -> None:
    """The middle look is dropped; three looks over exactly five seconds are all kept."""
    report = build(group(1).evidence())
    history = noted(*(replace(report, taken_at=AT + s) for s in (0, 2, 4, 6, 8, 10, 13)))
    assert [one.at - AT for one in history.samples] == [0, 4, 8, 10, 13]
    exact = noted(*(replace(report, taken_at=AT + s) for s in (0, SAMPLE_S, 2 * SAMPLE_S)))
    assert len(exact.samples) == 3


def test_a_look_of_an_hour_ago_is_kept_and_an_older_one_is_not() -> None:
    """After a long pause, looks of the hour before are kept."""
    report = build(group(1).evidence())
    times = (0, 10, KEPT_S, KEPT_S + 10)
    history = noted(*(replace(report, taken_at=AT + s) for s in times))
    assert [one.at - AT for one in history.samples] == [10, KEPT_S, KEPT_S + 10]


def test_the_lag_of_a_look_is_unknown_only_without_any_known_lag() -> None:
    """The first look has no committed offset at all."""
    report = build(group(1).evidence())
    unknown = tuple(replace(one, lag=None) for one in report.partitions)
    assert noted(replace(report, partitions=unknown)).samples[0].lag is None
    some = (replace(unknown[0], lag=0), *unknown[1:])
    assert noted(replace(report, partitions=some)).samples[0].lag is not None
    assert sample(AT).lag == 100


def test_a_round_takes_as_long_as_its_slowest_report() -> None:
    """A later report may be incomplete; the leader's report replaces a member's report."""
    history = History()
    for leader, seconds in ((None, 2.0), ("w0", None), (None, 5.0), (None, 3.0)):
        history.note_round(seen(1, leader=leader, seconds=seconds))
    (one,) = history.rounds
    assert (one.leader, one.seconds) == ("w0", 5.0)


def test_owners_of_a_rebalance_in_progress_are_no_moves() -> None:
    """The workers' assignments belong to different rounds."""
    made = group(2)
    report = at(made, 0)
    swapped = tuple(
        replace(one, owner="w1" if one.owner == "w0" else "w0") for one in report.partitions
    )
    taken = replace(report, partitions=swapped, taken_at=AT + 9)
    keys = [f"orders/{n}" for n in range(6)]
    assert noted(report, replace(taken, is_settled=False)).moves_of(keys) == ()
    assert len(noted(report, taken).moves_of(keys)) == 6


def test_a_move_is_warm_by_the_copies_of_the_look_before() -> None:
    """A stateless task is neither warm nor cold, and the first look shows no move."""
    report = at(group(2, topics={"orders": 2, LOG: 2, "clicks": 3}), 0)
    swapped = tuple(
        replace(one, owner="w1" if one.owner == "w0" else "w0", copies=())
        for one in report.partitions
    )
    history = noted(report, replace(report, partitions=swapped, taken_at=AT + 9))
    assert [one.was_warm for one in history.moves_of(["orders/0"])] == [True]
    assert [one.was_warm for one in history.moves_of(["clicks/0"])] == [None]
    assert noted(report).moves_of(["orders/0"]) == ()


def test_the_moves_of_a_task_are_the_newest_first_and_the_oldest_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A move that is reported again counts as the newest."""
    monkeypatch.setattr(under_test, "MOST_MOVES", 2)
    history = History()
    base = Move(key="t/0", at=1.0, generation=1, source="a", target="b", was_warm=None)
    for generation, when in ((1, 1.0), (2, 2.0), (1, 3.0), (3, 4.0)):
        history._note_move(replace(base, generation=generation, at=when))
    assert [(one.generation, one.at) for one in history.moves_of(["t/0"])] == [(3, 4.0), (1, 1.0)]


def test_names_are_forgotten_all_together_when_they_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Present members are added again at once."""
    monkeypatch.setattr(under_test, "MOST_NAMES", 2)
    history = noted(at(group(3), 0))
    assert len(history.names) == 3
    report = at(group(2), 9)
    history.note(report, families_of(report))
    assert sorted(history.names.values()) == ["w0", "w1"]


def test_a_static_member_is_named_in_a_reported_move_by_its_instance_id() -> None:
    """The leader knows a member by both ids; a departed member keeps the reported name."""
    made = group(2)
    made.offers["m1"] = {"instance_id": "shop-1"}
    report = at(made.round(), 0)
    history = noted(report)
    history.note_reported([told(1, AT - 60, moved("gone", "shop-1"))], report)
    history.note_reported([told(2, AT - 30, moved("m1", "m0"))], report)
    assert [(one.source, one.target) for one in history.moves_of(["orders/0"])] == [
        ("shop-1", "w0"),
        ("gone", "shop-1"),
    ]


def test_a_round_without_a_time_is_dated_by_its_report() -> None:
    """A worker of an older version does not send the time of the decision."""
    report = at(group(2), 0)
    history = noted(report)
    history.note_reported([told(1, AT - 60, decided_at=0)], report)
    assert history.rounds[0].at == AT - 60
    assert report.decision is not None
    undated = replace(report, decision=replace(report.decision, at=None, generation=9))
    assert noted(undated).rounds[0].at == AT


@pytest.mark.parametrize(("told_s", "kept_s"), [(20, 9), (5, 5)])
def test_a_move_is_dated_by_the_earlier_of_two_reports(told_s: int, kept_s: int) -> None:
    """The clocks of the page and of the leader differ; the rule comes from the leader."""
    made = group(2)
    report = at(made, 0)
    swapped = tuple(
        replace(one, owner="w1" if one.owner == "w0" else "w0") for one in report.partitions
    )
    history = noted(report, replace(report, partitions=swapped, taken_at=AT + 9))
    (seen_,) = history.moves_of(["orders/0"])
    generation, owner = seen_.generation, str(seen_.target)
    assert generation is not None
    history.note_reported([told(generation, AT + told_s, moved("", f"m{owner[1:]}"))], report)
    (move,) = history.moves_of(["orders/0"])
    assert (move.at - AT, move.rule, move.source) == (kept_s, "promoted", seen_.source)


def test_a_task_that_was_gone_between_two_looks_has_not_moved() -> None:
    """The topic was deleted and created again, so the previous owner does not count."""
    report = at(group(2), 0)
    swapped = tuple(
        replace(one, owner="w1" if one.owner == "w0" else "w0") for one in report.partitions
    )
    without = replace(report, partitions=report.partitions[1:6], taken_at=AT + 9)
    again = replace(report, partitions=swapped, taken_at=AT + 18)
    keys = [f"orders/{n}" for n in range(6)]
    assert {move.key for move in noted(report, without, again).moves_of(keys)} == set(keys[1:])


def test_the_first_topic_of_a_task_is_a_source() -> None:
    """The source topic determines the task's key, even if the changelog's name sorts first."""
    (family,) = families_of(build(group(2, topics={"zebra": 2, "shop-a-changelog": 2}).evidence()))
    assert family.topics == ("zebra", "shop-a-changelog")
    assert family.label == "zebra, table a"
    assert [(task.key, len(task.partitions)) for task in family.tasks] == [
        ("zebra/0", 2),
        ("zebra/1", 2),
    ]
    assert [one.topic for one in family.tasks[0].partitions] == list(family.topics)


def test_a_round_without_an_outcome_hides_no_later_one() -> None:
    """A worker of an older version reports only the generations of its rounds."""
    report = at(group(2), 0)
    history = noted(report)
    mute = replace(told(7, AT - 60), outcome=None)
    history.note_reported([mute, told(8, AT - 30)], report)
    assert [one.generation for one in history.rounds] == [2, 8]


def test_the_rounds_of_the_lowest_generations_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers report earlier rounds after the page has seen newer rounds."""
    monkeypatch.setattr(under_test, "MOST_ROUNDS", 2)
    history = History()
    for generation in (6, 5, 7, 3):
        history.note_round(seen(generation))
    assert [one.generation for one in history.rounds] == [6, 7]
