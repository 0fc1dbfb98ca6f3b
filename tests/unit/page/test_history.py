"""The page's memory of earlier looks, and its texts and charts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faust_assigner.page.history import (
    KEPT_S,
    MOST_ROUNDS,
    OLDEST_S,
    SAMPLE_S,
    History,
    RoundSeen,
    Sample,
)
from faust_assigner.page.story import story_of
from faust_assigner.page.tasks import families_of
from faust_assigner.page.timeline import LANES, LEFT, RIGHT, WIDTH, chart_of
from faust_assigner.status.build import build
from faust_assigner.status.report import Report
from faust_assigner.wire.outcome import Outcome
from faust_assigner.wire.worker_status import MovedTask, RoundTold
from tests.support.page import busy, fleet
from tests.support.status import AT, LOG, MadeGroup, group


def at(made: MadeGroup, seconds: float, **more: object) -> Report:
    """A look this many seconds after the first."""
    return replace(build(made.evidence(**more)), taken_at=AT + seconds)


def noted(*reports: Report) -> History:
    """The history after these looks."""
    history = History()
    for report in reports:
        history.note(report, families_of(report))
    return history


def seen(generation: int, when: float = AT, **more: object) -> RoundSeen:
    """A round as the page has seen it."""
    base: dict[str, object] = {
        "generation": generation,
        "at": when,
        "reason": "members joined",
        "leader": "w0",
        "members": 3,
        "tasks": 6,
        "moved": 2,
        "cold": 0,
        "off_target": 0,
        "warming": 0,
        "is_planned": True,
    }
    return RoundSeen(**(base | more))  # type: ignore[arg-type]


def sample(when: float, **more: object) -> Sample:
    """The figures of a look."""
    base: dict[str, object] = {
        "at": when,
        "members": 3,
        "ready": 3,
        "lag": 100,
        "behind": 0,
        "standing": 0,
        "is_settled": True,
    }
    return Sample(**(base | more))  # type: ignore[arg-type]


def test_samples_are_kept_for_an_hour_and_are_not_dense() -> None:
    """A page that is open for a day takes no more memory than for an hour."""
    made = group(2)
    report = build(made.evidence())
    history = noted(*(replace(report, taken_at=AT + 2 * n) for n in range(4000)))
    assert len(history.samples) <= KEPT_S / SAMPLE_S + 2
    assert history.samples[-1].at == AT + 2 * 3999
    assert history.samples[0].at >= history.samples[-1].at - KEPT_S


def test_a_round_is_remembered_once_and_the_oldest_go() -> None:
    """Rounds are keyed by generation; the leader's report survives the leader."""
    history = History()
    for generation in range(MOST_ROUNDS + 50):
        history.note_round(seen(generation))
        history.note_round(seen(generation, leader=None))
    assert len(history.rounds) == MOST_ROUNDS
    assert history.rounds[-1].generation == MOST_ROUNDS + 49
    assert {one.leader for one in history.rounds} == {"w0"}


def test_a_round_names_members_and_not_their_urls() -> None:
    """A member that was never seen is named by its URL."""
    made = group(2)
    made.join("m2").round()
    history = noted(at(made, 0))
    assert history.rounds[-1].reason == "members joined (w2)"
    report = at(made, 0)
    gone = replace(report, members=tuple(one for one in report.members if one.name != "w2"))
    assert noted(gone).rounds[-1].reason == "members joined (http://w2:6066)"
    assert gone.decision is not None
    decision = replace(gone.decision, trigger="leave", left=("http://w2:6066",), generation=9)
    left = replace(gone, decision=decision)
    assert noted(report, left).rounds[-1].reason == "members left (w2)"
    assert noted(left).rounds[-1].reason == "members left (http://w2:6066)"


def test_a_task_that_moved_has_a_story() -> None:
    """The story has the old owner, the new owner, the copy of the state, and the reason."""
    made = group(3, rounds=3)
    before = at(made, 0)
    (key, owner) = next((f"orders/{p.partition}", p.owner) for p in before.partitions)
    assert owner is not None
    made.leave("m" + owner[1:]).round(leader="m1" if owner == "w0" else "m0")
    after = at(made, 30)
    history = noted(before, after)
    story = story_of(after, families_of(after), history, key)
    assert story is not None
    (event,) = story.events
    assert event.what == f"{story.owner} took over from {owner} with a copy of the state"
    assert event.reason == f"Round 4: members left ({owner})."
    assert event.when == "just now"
    assert story_of(after, families_of(after), history, f"{LOG}/{key[-1]}") == story


def told(generation: int, when: float, *moves: MovedTask, **more: object) -> RoundTold:
    """A round as a worker reports it."""
    base: dict[str, object] = {"trigger": "leave", "decided_at": int(when), "tasks": 6, "moved": 1}
    outcome = Outcome(**(base | more))  # type: ignore[arg-type]
    return RoundTold(generation=generation, at=when, seconds=2.5, outcome=outcome, moves=moves)


def moved(source: str, target: str, rule: str = "promoted") -> MovedTask:
    """A move of orders/0."""
    return MovedTask(
        topic="orders", partition=0, source=source, target=target, rule=rule, is_cold=False
    )


def test_rounds_before_the_page_was_opened_come_from_the_workers() -> None:
    """Each move has the leader's rule, and members are named as in the report."""
    report = at(group(3, rounds=3), 0)
    history = noted(report)
    first = told(1, AT - 300, moved("", "m1"), trigger="join")
    history.note_reported([first, told(2, AT - 200), told(2, AT - 200, moved("m1", "m2"))], report)
    assert [(one.generation, one.seconds) for one in history.rounds] == [
        (1, 2.5),
        (2, 2.5),
        (3, None),
    ]
    story = story_of(report, families_of(report), history, "orders/0")
    assert story is not None
    assert [(one.when, one.what) for one in story.events] == [
        (
            "3 min 20 s ago",
            "w2 took over from w1, because its owner was gone and the new owner has the state",
        ),
        ("5 min ago", "w1 took over, because its owner was gone and the new owner has the state"),
    ]
    assert story.events[0].reason == "Round 2: members left."


def test_a_move_that_was_seen_and_told_is_one() -> None:
    """The leader does not know the departed owner, but the page saw it."""
    made = group(3, rounds=3)
    before = at(made, 0)
    gone = next(p.owner for p in before.partitions if (p.topic, p.partition) == ("orders", 0))
    assert gone is not None
    made.leave("m" + gone[1:]).round(leader="m1" if gone == "w0" else "m0")
    after = at(made, 30)
    history = noted(before, after)
    (seen_,) = history.moves_of(["orders/0"])
    assert seen_.target is not None
    history.note_reported([told(4, AT + 20, moved("", "m" + seen_.target[1:]))], after)
    (move,) = history.moves_of(["orders/0"])
    assert (move.source, move.target, move.rule) == (gone, seen_.target, "promoted")
    assert move.at == AT + 20


def test_a_round_of_another_clock_or_topic_is_left_out() -> None:
    """A worker may send any date: 1970 would come first on the chart."""
    report = at(group(2), 0)
    history = noted(report)
    strange = MovedTask(
        topic="nothing", partition=0, source="", target="m1", rule="moved", is_cold=False
    )
    history.note_reported([told(1, 0.0, moved("", "m1")), told(2, AT, strange)], report)
    assert history.moves_of(["orders/0", "nothing/0"]) == ()
    assert [one.generation for one in history.rounds] == [2]


def test_the_date_of_a_round_is_checked_by_the_clock_that_dated_it() -> None:
    """The leader's date counts; without it, the date of the worker that reports the round."""
    report = at(group(2), 0)
    history = noted(report)
    history.note_reported(
        [
            told(11, AT, decided_at=5),
            told(12, AT - OLDEST_S - 1),
            told(13, AT - OLDEST_S),
            told(14, AT + OLDEST_S),
            told(15, AT + OLDEST_S + 1),
            told(16, AT - 3, decided_at=0),
            told(17, 5.0, decided_at=int(AT)),
        ],
        report,
    )
    assert {one.generation: one.at for one in history.rounds if one.generation > 10} == {
        13: AT - OLDEST_S,
        14: AT + OLDEST_S,
        16: AT - 3,
        17: AT,
    }


def test_rare_looks_are_forgotten_after_an_hour_too() -> None:
    """The limit is a time, not only a number of looks."""
    report = build(group(2).evidence())
    history = noted(*(replace(report, taken_at=AT + 600 * n) for n in range(20)))
    assert [one.at for one in history.samples] == [AT + 600 * n for n in range(13, 20)]


def test_a_task_that_stood_without_an_owner_came_from_its_last_owner() -> None:
    """Between two rounds the task has no owner, which does not count as an owner."""
    made = group(2)
    report = at(made, 0)
    lost = replace(report, partitions=tuple(replace(p, owner=None) for p in report.partitions[:6]))
    history = noted(report, replace(lost, is_settled=False), replace(report, taken_at=AT + 9))
    assert history.moves_of([f"orders/{n}" for n in range(6)]) == ()
    swapped = tuple(
        replace(one, owner="w1" if one.owner == "w0" else "w0") for one in report.partitions
    )
    taken = replace(report, partitions=swapped, taken_at=AT + 18)
    between = tuple(
        replace(one, owner=None) if one.partition == 0 else one for one in report.partitions
    )
    without = replace(report, partitions=between, taken_at=AT + 9)
    moves = noted(report, without, taken).moves_of(["orders/0"])
    owner = report.partitions[0].owner
    assert [(move.source, move.target != owner) for move in moves] == [(owner, True)]


def test_a_task_that_is_not_there_has_no_story() -> None:
    """The cases: an unknown topic, and a number beyond the topic's partitions."""
    report = build(group(2).evidence())
    for key in ("orders/6", "nothing/0", "", "/", "orders/x", "orders"):
        assert story_of(report, families_of(report), History(), key) is None


def test_a_story_says_which_copy_would_take_over() -> None:
    """The best copy has the smallest lag; a task without copies replays its changelog."""
    report = build(group(3, rounds=3).evidence())
    story = story_of(report, families_of(report), History(), "orders/0")
    assert story is not None
    assert story.if_lost == (
        f"{story.copies[0].member} has the best copy: it would replay 0 records."
    )
    alone = build(group(1, replicas=0).evidence())
    story = story_of(alone, families_of(alone), History(), "orders/0")
    assert story is not None
    assert story.if_lost.startswith("It has no copy.")


def test_a_story_says_what_state_the_task_is_in() -> None:
    """The states: standing still, waiting for a warm-up, processed."""
    report = build(busy(fleet(3)))
    families = families_of(report)
    told = set()
    for task in (task for family in families for task in family.tasks):
        story = story_of(report, families, History(), task.key)
        assert story is not None
        warms = any(copy.what == "warm-up" for copy in story.copies)
        told.add((story.level, story.state, bool(story.standing), warms))
    assert told == {
        ("bad", "not processed", True, False),
        ("changing", "processed; moves when its warm-up has caught up", False, True),
        ("good", "processed", False, False),
    }


def test_a_chart_ends_now_and_begins_with_the_first_look() -> None:
    """Rounds before the first look are counted, but not drawn."""
    samples = [sample(AT + 5 * n, lag=n) for n in range(100)]
    now = AT + 495
    chart = chart_of(samples, [seen(1, AT - 60), seen(2, AT + 245)], now)
    assert [one.generation for one in chart.rounds] == [2]
    assert chart.earlier == 1
    middle = LEFT + (WIDTH - LEFT - RIGHT) * 245 / 495
    assert chart.rounds[0].x == pytest.approx(middle, abs=0.1)
    (lag,) = [lane for lane in chart.lanes if lane.name == "lag"]
    top, height = LANES["lag"]
    assert lag.line.endswith(f"{WIDTH - RIGHT},{top}")
    assert (lag.most, lag.now) == ("99", "99")
    assert lag.area.startswith(f"M{LEFT},{top + height}")


def test_a_gap_between_looks_is_a_gap_in_the_line() -> None:
    """The values in between are unknown."""
    samples = [sample(AT), sample(AT + 5), sample(AT + 300), sample(AT + 305)]
    (members, *_) = chart_of(samples, [], AT + 305).lanes
    assert members.line.count("M") == 2


def test_a_chart_of_unknown_lag_draws_none() -> None:
    """An unknown lag is not zero."""
    chart = chart_of([sample(AT, lag=None), sample(AT + 5, lag=None)], [], AT + 5)
    (lag,) = [lane for lane in chart.lanes if lane.name == "lag"]
    assert (lag.line, lag.now) == ("", "unknown")


def test_a_round_that_moved_tasks_cold_is_marked() -> None:
    """A round whose planner failed is marked too."""
    rounds = [seen(1), seen(2, cold=1), seen(3, is_planned=False)]
    marks = chart_of([sample(AT)], rounds, AT + 1).rounds
    assert [one.is_cold for one in marks] == [False, True, True]


def test_every_move_that_a_leader_tells_is_kept_with_its_members_names() -> None:
    """Two rounds of two moves, between static members; moves of unknown topics are left out."""
    made = group(3)
    for n in range(3):
        made.offers[f"m{n}"] = {"instance_id": f"shop-{n}"}
    report = at(made.round(), 0)

    def move(topic: str, number: int, source: str, target: str, **more: bool) -> MovedTask:
        base = {"rule": "moved", "is_cold": False, **more}
        return MovedTask(topic=topic, partition=number, source=source, target=target, **base)  # type: ignore[arg-type]

    history = History()
    rounds = [
        told(
            1,
            AT - 60,
            move("orders", 0, "shop-2", "shop-0", is_cold=True),
            move("orders", 1, "", "m1"),
        ),
        told(
            2,
            AT - 30,
            move("orders", 0, "shop-0", "gone"),
            move("nothing", 0, "shop-1", "shop-2"),
            move("orders", 5, "m2", "shop-1", is_cold=True),
        ),
    ]
    history.note_reported(rounds, report)
    keys = [f"orders/{n}" for n in range(6)] + ["nothing/0"]
    assert [
        (one.key, one.at - AT, one.generation, one.source, one.target, one.was_warm, one.rule)
        for one in history.moves_of(keys)
    ] == [
        ("orders/0", -30, 2, "shop-0", "gone", True, "moved"),
        ("orders/5", -30, 2, "shop-2", "shop-1", False, "moved"),
        ("orders/0", -60, 1, "shop-2", "shop-0", False, "moved"),
        ("orders/1", -60, 1, None, "shop-1", True, "moved"),
    ]
