"""The page's memory after several looks: whole samples, rounds, moves and names, and their limits."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest

from faust_assigner.page import history as under_test
from faust_assigner.page.history import History, Move, RoundSeen, round_of
from faust_assigner.page.tasks import families_of
from faust_assigner.status.build import build
from faust_assigner.status.report import Decision, Report
from faust_assigner.wire.outcome import Outcome
from faust_assigner.wire.worker_status import MovedTask, RoundTold
from tests.support.status import AT, LOG, group
from tests.unit.page.test_history import noted, seen

REPORT = build(group(2, topics={"clicks": 2, "orders": 2, LOG: 2}).evidence())


def owned(after: float, *owners: str | None, copies: str = "", is_settled: bool = True) -> Report:
    """A look at the owners of clicks/0-1 and orders/0-1, in this order."""
    at = {
        ("clicks", 0): owners[0],
        ("clicks", 1): owners[1],
        ("orders", 0): owners[2],
        ("orders", 1): owners[3],
    }
    return replace(
        REPORT,
        taken_at=AT + after,
        is_settled=is_settled,
        partitions=tuple(
            replace(
                one,
                owner=at[one.topic if one.topic != LOG else "orders", one.partition],
                copies=tuple(replace(copy, member=copies) for copy in one.copies if copies),
            )
            for one in REPORT.partitions
        ),
    )


KEYS = ("clicks/0", "clicks/1", "orders/0", "orders/1")


def moves(history: History) -> list[tuple[object, ...]]:
    """The moves, newest first, with times since the first look."""
    found = history.moves_of(KEYS)
    return [
        (one.key, one.at - AT, one.generation, one.source, one.target, one.was_warm, one.rule)
        for one in found
    ]


def test_every_change_of_an_owner_between_looks_is_a_move() -> None:
    """A task without a table is neither warm nor cold; a look during a rebalance shows no moves."""
    history = noted(
        owned(0, "x", "y", "x", "y", is_settled=False),
        owned(3, "a", "b", "a", None, copies="c"),
        owned(6, "a", "c", None, "e", copies="d"),
        owned(9, "a", None, "c", "b", copies="d"),
        owned(12, "b", "d", "d", "b", copies="x"),
    )
    generation = REPORT.decision and REPORT.decision.generation
    assert moves(history) == [
        ("clicks/0", 12, generation, "a", "b", None, ""),
        ("clicks/1", 12, generation, "c", "d", None, ""),
        ("orders/0", 12, generation, "c", "d", True, ""),
        ("orders/0", 9, generation, "a", "c", False, ""),
        ("orders/1", 9, generation, "e", "b", False, ""),
        ("clicks/1", 6, generation, "b", "c", None, ""),
        ("orders/1", 6, generation, None, "e", False, ""),
    ]


def test_moves_are_told_newest_first_and_the_oldest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The date orders moves; generations start anew after a group was deleted."""
    monkeypatch.setattr(under_test, "MOST_MOVES", 3)
    history = History()
    for at, generation in ((20.0, 3), (40.0, 1), (10.0, 7), (30.0, 2)):
        history._note_move(
            Move(
                key="clicks/0",
                at=AT + at,
                generation=generation,
                source="a",
                target="b",
                was_warm=None,
            )
        )
    assert [(at, generation) for _, at, generation, *_ in moves(history)] == [
        (40, 1),
        (30, 2),
        (10, 7),
    ]


def test_the_last_report_of_a_leader_about_a_move_counts() -> None:
    """The earliest date and a known source are kept; a seen move does not replace a told one."""
    history = History()

    def note(at: float, source: str | None, rule: str, *, was_warm: bool) -> None:
        history._note_move(
            Move(
                key="orders/0",
                at=AT + at,
                generation=5,
                source=source,
                target="b",
                was_warm=was_warm,
                rule=rule,
            )
        )

    note(8, "a", "", was_warm=False)
    note(6, None, "moved", was_warm=True)
    assert moves(history) == [("orders/0", 6, 5, "a", "b", True, "moved")]
    note(7, "c", "promoted", was_warm=False)
    assert moves(history) == [("orders/0", 6, 5, "c", "b", False, "promoted")]
    note(9, "d", "", was_warm=True)
    assert moves(history) == [("orders/0", 6, 5, "c", "b", False, "promoted")]


def test_a_moves_new_report_makes_it_the_newest_to_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit forgets the move whose last report is the oldest."""
    monkeypatch.setattr(under_test, "MOST_MOVES", 2)
    history = History()
    for generation in (1, 2, 1, 3):
        history._note_move(
            Move(
                key="orders/0", at=AT, generation=generation, source="a", target="b", was_warm=None
            )
        )
    assert sorted(str(generation) for _, _, generation, *_ in moves(history)) == ["1", "3"]


def test_the_first_report_of_a_round_with_its_leader_is_kept_with_the_longest_time() -> None:
    """A report without a leader is replaced; the slowest worker's time counts."""
    history = History()
    told = [
        seen(7, AT + 1, leader=None, moved=11, seconds=3.0),
        seen(7, AT + 2, leader="w0", moved=12, seconds=None),
        seen(7, AT + 3, leader="w1", moved=13, seconds=5.0),
        seen(7, AT + 4, leader=None, moved=14, seconds=4.0),
    ]
    kept = []
    for one in told:
        history.note_round(one)
        (found,) = history.rounds
        kept.append((found.at - AT, found.leader, found.moved, found.seconds))
    assert kept == [(1, None, 11, 3.0), (2, "w0", 12, 3.0), (2, "w0", 12, 5.0), (2, "w0", 12, 5.0)]


def test_rounds_are_in_the_order_of_generations_and_the_lowest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers report earlier rounds later."""
    monkeypatch.setattr(under_test, "MOST_ROUNDS", 3)
    history = History()
    for generation in (8, 5, 9, 6):
        history.note_round(seen(generation))
    assert [one.generation for one in history.rounds] == [6, 8, 9]


OUTCOME = Outcome(
    trigger="leave", decided_at=int(AT) - 90, members=4, tasks=20, moved=3, cold=1, off_target=2,
    warming=5, left=("http://w1:6066/", "http://old:1"), is_planned=False,
)  # fmt: skip


@pytest.mark.parametrize("is_first", [True, False])
def test_the_leaders_answer_names_the_members_of_a_round(is_first: bool) -> None:
    """The answers of the other members have no names, and workers answer in any order."""
    answers = [
        RoundTold(generation=91, at=AT - 80, outcome=replace(OUTCOME, leads=True)),
        RoundTold(generation=91, at=AT - 80, outcome=replace(OUTCOME, joined=(), left=())),
    ]
    history = noted(REPORT)
    history.note_reported(answers if is_first else answers[::-1], REPORT)
    assert history.rounds[-1].reason == "members left (w1, http://old:1)"


@pytest.mark.parametrize(
    ("url", "leads", "leader"),
    [
        ("http://w1:6066/", True, "w1"),
        ("http://gone:1", True, "http://gone:1"),
        ("http://w1:6066", False, None),
        ("", True, None),
    ],
)
def test_the_leader_of_a_round_before_the_first_query_is_the_worker_that_led_it(
    url: str, leads: bool, leader: str | None
) -> None:
    """A worker of an earlier version reports no URL."""
    history = noted(REPORT)
    history.names["http://w1:6066"] = "w1"
    led = RoundTold(generation=91, url=url, at=AT - 80, outcome=replace(OUTCOME, leads=leads))
    history.note_reported([led], REPORT)
    assert history.rounds[-1].leader == leader


def test_a_told_round_is_kept_with_every_figure() -> None:
    """A round of no time at all took zero seconds; members are named."""
    history = noted(REPORT)
    history.note_reported(
        [
            RoundTold(generation=90, at=AT, seconds=1.0, outcome=None),
            RoundTold(generation=91, at=AT - 80, seconds=0.0, outcome=OUTCOME),
        ],
        REPORT,
    )
    assert history.rounds[-1] == RoundSeen(
        generation=91,
        at=AT - 90,
        reason="members left (w1, http://old:1)",
        leader=None,
        members=4,
        tasks=20,
        moved=3,
        cold=1,
        off_target=2,
        warming=5,
        is_planned=False,
        seconds=0.0,
    )


def test_a_decision_becomes_a_round_with_every_figure() -> None:
    """A decision without a date is dated by its look."""
    decision = Decision(
        decision_id="x", generation=6, leader="w2", at=70, trigger="join", completes="",
        joined=("n",), left=(), members=3, tasks=8, moved=4, cold=1, off_target=5, warming=2,
        is_planned=True,
    )  # fmt: skip
    figures = (6, 70.0, "members joined (n)", "w2", 3, 8, 4, 1, 5, 2, True, None)
    assert astuple(round_of(decision, 99.0)) == figures
    assert round_of(replace(decision, at=None), 99.0).at == 99.0
    assert round_of(replace(decision, at=0), 99.0).at == 0.0


def test_samples_five_seconds_apart_cover_the_whole_hour() -> None:
    """Both ends of the hour are samples; a look after a pause forgets all earlier hours."""
    history = noted(*(replace(REPORT, taken_at=AT + 5 * n) for n in range(725)))
    assert [history.samples[at].at - AT for at in (0, 1, -1)] == [20, 25, 3620]
    assert len(history.samples) == 721
    history._note_sample(replace(REPORT, taken_at=AT + 3620 + 3590))
    assert [one.at - AT for one in history.samples] == [3610, 3615, 3620, 7210]


def test_the_newest_look_replaces_the_one_before_within_five_seconds() -> None:
    """The distance is to the look before it; exactly five seconds are far enough."""
    kept = []
    for times in ((0, 4), (0, 4, 4.5), (0, 4, 5), (0, 4, 6), (0, 5, 9), (0, 4, 5, 6)):
        history = noted(*(replace(REPORT, taken_at=AT + at) for at in times))
        kept.append([one.at - AT for one in history.samples])
    assert kept == [[0, 4], [0, 4.5], [0, 4, 5], [0, 4, 6], [0, 5, 9], [0, 4, 6]]


def test_a_sample_has_every_figure_of_its_look() -> None:
    """The lag is unknown only if no partition's lag is known."""
    totals = replace(
        REPORT.totals, members=9, ready=7, lag=31, standby_lag=8, standing_partitions=4
    )
    some = tuple(replace(one, lag=None if at else 31) for at, one in enumerate(REPORT.partitions))
    known = replace(REPORT, totals=totals, partitions=some, taken_at=AT + 1, is_settled=False)
    none = replace(known, taken_at=AT + 9, partitions=tuple(replace(one, lag=None) for one in some))
    assert [astuple(one) for one in noted(known, none).samples] == [
        (AT + 1, 9, 7, 31, 8, 4, False),
        (AT + 9, 9, 7, None, 8, 4, False),
    ]


def test_the_last_name_of_a_url_counts_and_names_have_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the limit all names are kept; above it, only those of the next look."""
    monkeypatch.setattr(under_test, "MOST_NAMES", 3)

    def look(**names: str) -> Report:
        one = REPORT.members[0]
        return replace(
            REPORT,
            decision=None,
            members=tuple(replace(one, url=url, name=name) for url, name in names.items()),
        )

    history = noted(look(u="a", v="b"))
    history.note(look(v="c", w="d"), families_of(REPORT))
    assert history.names == {"u": "a", "v": "c", "w": "d"}
    history.note(look(x="e"), families_of(REPORT))
    assert history.names == {"u": "a", "v": "c", "w": "d", "x": "e"}
    history.note(look(y="f"), families_of(REPORT))
    assert history.names == {"y": "f"}


def test_a_told_move_without_a_rule_is_kept_and_moves_of_unknown_tasks_are_not() -> None:
    """An older leader names no rule; a departed member keeps its id, and no source is none."""
    history = noted(REPORT)
    name = REPORT.members[1].name

    def move(topic: str, number: int, source: str, target: str) -> MovedTask:
        return MovedTask(
            topic=topic, partition=number, source=source, target=target, rule="", is_cold=True
        )

    told = RoundTold(
        generation=50,
        at=AT - 7,
        seconds=None,
        outcome=replace(OUTCOME, decided_at=0),
        moves=(
            move("clicks", 1, "", "m1"),
            move("clicks", 2, "m1", "m0"),
            move("orders", 0, "m1", "gone"),
        ),
    )
    history.note_reported([told], REPORT)
    assert moves(history) == [
        ("clicks/1", -7, 50, None, name, False, ""),
        ("orders/0", -7, 50, name, "gone", False, ""),
    ]
