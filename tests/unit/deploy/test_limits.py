"""The answer of deploy-check at its limits: every check, its text, and the words of a move."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any

import pytest

from faust_assigner.deploy import present
from faust_assigner.deploy.judge import (
    Budget,
    _check_budget,
    _check_copies,
    _check_pause,
    _check_planned,
    _cold_move_text,
    _join_some,
)
from faust_assigner.deploy.play import NoSuchWorker, Played, _find_member, _without_state
from faust_assigner.deploy.present import _check_round
from faust_assigner.deploy.render import _move, _moves_text, _pause_text
from faust_assigner.deploy.report import FAILED, OK, UNKNOWN
from faust_assigner.deploy.steps import Known, step_of
from faust_assigner.deploy.steps import _move as move_of
from faust_assigner.status.words import natural
from faust_assigner.wire.join import JoinData
from tests.support.status import LOG
from tests.unit.deploy.looks import at_rest, look
from tests.unit.deploy.test_parts import move, recoveries, room_of, step
from tests.unit.deploy.test_rounds import moved


def told(checks: Any) -> list[tuple[str, str, str]]:
    """The checks as tuples."""
    return [astuple(one) for one in checks]


def test_budgets_are_kept_at_their_limit() -> None:
    """Cold moves and moves to a copy that is behind count together; no budget, no check."""
    steps = [step(cold=2, behind=1), step(cold=0, behind=4)]
    cold = "at most {} cold moves"
    assert told(_check_budget(steps, Budget(cold=7), "")) == [
        (cold.format(7), OK, "7, of these 5 to a copy that is behind")
    ]
    assert told(_check_budget(steps, Budget(cold=6), "")) == [
        (cold.format(6), FAILED, "7, of these 5 to a copy that is behind")
    ]
    assert told(_check_budget([step()], Budget(), "")) == [(cold.format(0), OK, "none")]
    assert told(_check_budget(steps, Budget(cold=None), "")) == []
    still = "no task stands still longer than 0 s"
    assert told(_check_budget([], Budget(cold=0, pause_s=0.0), "gone")) == [
        (still, UNKNOWN, "gone")
    ]


@pytest.mark.parametrize(
    ("pauses", "missing", "state", "text"),
    [
        ((4.0, 5.0, 0.0), "", OK, "5.0 s expected"),
        ((), "", OK, "0.0 s expected"),
        ((5.1, 9.0, 6.0), "", FAILED, "e1: p1"),
        ((5.1, None), "", FAILED, "e0: p0"),
        ((4.0, None, None), "", UNKNOWN, "e1: p1"),
        ((9.0, None), "no offsets", UNKNOWN, "no offsets"),
    ],
)
def test_the_longest_pause_is_compared_with_its_limit(
    pauses: tuple[float | None, ...], missing: str, state: str, text: str
) -> None:
    """A pause of exactly the limit is allowed; a longer one goes before an unknown one."""
    steps = [step(event=f"e{n}", pause=f"p{n}", pause_s=one) for n, one in enumerate(pauses)]
    name = "no task stands still longer than 5 s"
    assert astuple(_check_pause(steps, 5.0, missing)) == (name, state, text)


def test_every_bad_move_is_named_up_to_three() -> None:
    """A cold move shows its records as far as known; a bad move goes before an unknown lag."""
    cold = move(is_cold=True, records=None, was="")
    none = move(is_cold=True, records=0)
    behind = move(is_behind=True, records=12_345, topics=("a", "b"), partition=7)
    assert [_cold_move_text(one) for one in (cold, none, behind)] == [
        "orders/0 goes from no owner to w0 without a copy",
        "orders/0 goes from w1 to w0 without a copy (0 records to replay)",
        "a/7 goes from w1 to w0, whose copy is 12,345 records behind",
    ]
    assert (_join_some(list("abc")), _join_some(list("abcde"))) == (
        "a; b; c",
        "a; b; c; and 2 more",
    )
    dark = move(records=None, partition=4)
    owned = tuple(
        replace(moved(to), changelogs=logs) for to in ("w0", "w1") for logs in ((), (LOG,))
    )
    played = [Played(event="e", stopped=(), is_crash=False, moved=owned)]
    name = "every task has a caught-up copy elsewhere"
    assert astuple(_check_copies([step(moves=(dark, behind))], played)) == (
        name,
        FAILED,
        _cold_move_text(behind),
    )
    assert astuple(_check_copies([step(moves=(move(), dark))], played)) == (
        name,
        UNKNOWN,
        "the lag is not known of orders/4 on w0",
    )
    assert astuple(_check_copies([step(moves=(move(),))], played)) == (
        name,
        OK,
        "2 moves of tasks with tables, each to a copy that has caught up",
    )
    one = [replace(played[0], moved=owned[:2])]
    assert _check_copies([step()], one).text.startswith(
        "1 move of tasks with tables, each to a copy"
    )
    assert _check_copies([step()], []).text == "no task with a table moves"


def test_without_a_worker_or_a_plan_there_is_a_single_check() -> None:
    """A missing plan goes before a group without workers."""
    name = "every task has a caught-up copy elsewhere"
    seen: Any = look(at_rest())
    last = [step(), step(members=0)]
    assert told(_check_planned(seen, "why", last, [])) == [(name, UNKNOWN, "why")]
    assert told(_check_planned(seen, "", last, [])) == [(name, FAILED, "no worker is left")]
    joins = [step(stopped=(), members=0)]
    assert [one.state for one in _check_planned(seen, "", joins, [])] == [OK, OK]


def test_a_group_at_rest_has_three_checks_about_the_members_that_stay() -> None:
    """The stopping member may be silent, busy or leaving; all findings are one line."""
    found = look(at_rest())
    members = [
        replace(found.status.members[0], **more, name=name)
        for name, more in (
            ("a", {"restore_remaining_records": 1_200}),
            ("b", {"not_live": ("loop",), "not_ready": ("x",), "warmups": {LOG: (1, 2)}}),
            ("c", {"answer": "silent", "not_ready": ("gone",)}),
            ("d", {"not_ready": ("tables", "y")}),
        )
    ]
    busy = replace(found, status=replace(found.status, members=tuple(members)))
    assert told(present.at_rest(busy, {"c"}))[::2] == [
        ("workers answer", OK, "3 of 3"),
        (
            "nothing is restoring",
            FAILED,
            f"restoring: a (1,200 records); b warms up {LOG} 1-2; not ready: b: loop, d: tables",
        ),
    ]
    quiet = replace(busy, status=replace(busy.status, members=(members[2],)))
    assert [one[1:] for one in told(present.at_rest(quiet, ()))][:1] == [
        (UNKNOWN, "no answer from c")
    ]


def test_the_first_reason_against_a_stop_is_shown() -> None:
    """An empty group goes before a round, a round before a worker that stops."""
    found = look(at_rest())
    one = replace(found.status.members[0], is_leaving=True)
    status = replace(found.status, is_settled=False, state="PreparingRebalance", members=(one,))

    def text(**more: Any) -> tuple[str, str]:
        check = _check_round(replace(found, status=replace(status, **more)))
        return check.state, check.text

    assert text(members=()) == (FAILED, "the group has no members")
    assert text() == (FAILED, "a rebalance is in progress (PreparingRebalance)")
    assert text(is_settled=True) == (FAILED, f"another worker stops now: {one.name}")
    assert text(is_settled=True, members=(replace(one, is_leaving=False),)) == (
        OK,
        "the group is stable",
    )


def test_a_disk_is_full_only_beyond_its_room() -> None:
    """Copies of exactly the free size fit; the fullest disk of any event is shown."""
    copied = {"w1": {0, 1}, "w2": {1}}
    assert room_of({0: 500, 1: 400}, copied, {"w0": {1}}) == (
        OK,
        "at most 900 B of new copies on a disk",
    )
    assert room_of({0: 500, 1: 401}, copied)[0] == FAILED
    assert room_of({0: 0}, {"w1": {0}}, free=(0, 0, 0)) == (OK, "no new copy on a disk")
    assert room_of({0: 1}, {"w1": {0}}, free=(900, 0, 900)) == (
        FAILED,
        "event 0: pod-1 gets 1 B of tables and has 0 B free",
    )


def test_names_are_compared_in_their_order_and_numbers_as_numbers() -> None:
    """A URL may end with a slash and lack its scheme; a name goes before another member's id."""
    members = look(at_rest()).status.members
    a, b = (
        replace(members[0], name=name, member_id=i, instance_id=None, url=url, host=h, address=h)
        for name, i, url, h in (("w1", "x", "http://u:1/", "h"), ("y", "w1", "http://v:2", "g"))
    )
    assert [_find_member(one, (a, b)) for one in ("w1", "x", "u:1", "http://v:2/", "g")] == [
        "w1", "w1", "w1", "y", "y",
    ]  # fmt: skip
    with pytest.raises(NoSuchWorker, match=r"its members are w1, y$"):
        _find_member("w2", (a, b))
    with pytest.raises(
        NoSuchWorker, match="URLs of some members are unknown, as during a rebalance: repeat"
    ):
        _find_member("w2", (a, replace(b, url="")))
    names = ["w10", "w9", "x", "w", "v2w", "10", "9", "w9a"]
    assert sorted(names, key=natural) == ["9", "10", "v2w", "w", "w9", "w9a", "w10", "x"]


def test_a_newcomer_knows_nothing_of_earlier_rounds() -> None:
    """Only what a worker offers is kept."""
    offer = JoinData("http://u", capacity=2.0, rack_id="r", software="9", cooperative=True)
    full = replace(
        offer, actives={"t": [1]}, standbys={"l": [1]}, on_disk={"l": [2]}, awaited={"l": [3]},
        former_actives={"t": [4]}, former_generation=5, promised={"t": [6]}, among=7, generation=8,
        instance_id="i", group_ids={"t": 9}, overdue={"l": [10]}, holds=True,
    )  # fmt: skip
    found = _without_state(full)
    assert found == replace(
        offer, actives={}, standbys={}, on_disk={}, awaited={}, former_actives={},
        former_generation=-1, promised={}, among=0, generation=-1, instance_id=None, group_ids={},
        overdue={}, holds=False,
    )  # fmt: skip


def test_a_move_has_the_time_of_its_own_kind() -> None:
    """A task without a table moves in no time; a cold move takes the time of a replay."""
    known = recoveries(("log", "standby", 10, 1.0), ("log", "replay", 10, 7.0))
    base = moved("w0")
    warm = replace(base, changelogs=("log",), records=5, is_cold=False, is_behind=True)
    times = [
        move_of(one, known).pause_s
        for one in (
            warm,
            replace(warm, is_cold=True),
            replace(warm, records=None),
            replace(warm, changelogs=(), records=0),
        )
    ]
    assert times == [1.0, 7.0, None, 0.0]


def test_a_step_counts_its_copies_its_later_moves_and_its_static_members() -> None:
    """A member that is not in the group is not static."""
    found = look(at_rest())
    played = Played(
        event="e",
        stopped=("w0", "zz"),
        is_crash=True,
        members=2,
        moved=(replace(moved("w1"), is_cold=True), replace(moved("w2"), is_behind=True)),
        later=(moved("w1"),) * 3,
        copied={"w1": frozenset({(LOG, 0), (LOG, 1)}), "w2": frozenset({(LOG, 2)})},
    )
    sizes = replace(found, bytes_of={(LOG, 0): 5, (LOG, 1): 70, (LOG, 2): 900})
    made = step_of(sizes, played, Known())
    assert (made.static, made.later_moves, made.copies, made.copy_bytes) == ((), 3, 3, 975)
    assert (made.cold, made.behind, made.members, made.is_for_good) == (1, 1, 2, False)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"members": 0}, "no worker is left, and nothing is processed"),
        ({"members": 0, "stopped": ()}, "0 tasks at once, 0 cold"),
        ({"moves": (move(),), "cold": 1}, "1 task at once, 1 cold"),
        (
            {"moves": (move(),) * 2, "behind": 2, "later_moves": 1},
            "2 tasks at once, 0 cold, 2 to a copy that is behind; 1 later, each when its copy has caught up",
        ),
        (
            {"static": ("i1", "i2"), "session_timeout_s": None},
            "none if i1, i2 are back within the session timeout (static); else 0 tasks at once, 0 cold",
        ),
        (
            {"static": ("i1",), "is_for_good": True, "session_timeout_s": 90.0},
            "none for 1 min 30 s (i1 is static; at once where retired first); then 0 tasks at once, 0 cold",
        ),
    ],
)
def test_the_moves_of_an_event_are_one_sentence(more: dict[str, Any], text: str) -> None:
    """Static members keep their tasks for their session."""
    assert _moves_text(step(**more)) == text


def test_a_move_is_one_line_with_the_state_of_its_copy() -> None:
    """The source names the task; only a task without a table and records has no table."""
    table = "shop-t-changelog"
    cases = {
        "o/3  - -> w0  cold, unknown records to read": move(
            topics=(table, "o"), partition=3, was="", is_cold=True, is_behind=True, records=None
        ),
        f"{table}/0  w1 -> w0  its copy is behind, 1,200 records to read": move(
            topics=(table,), is_behind=True, records=1_200
        ),
        "orders/0  w1 -> w0  no table": move(),
        "orders/0  w1 -> w0  warm, 5 records to read": move(records=5),
        "o/0  w1 -> w0  warm, 0 records to read": move(topics=("o", table)),
    }
    assert [_move(one, "shop") for one in cases.values()] == list(cases)
    assert _pause_text(step(pause_s=0.0, pause="nothing")) == "nothing"
    assert _pause_text(step(pause_s=None, pause="why")) == "not known: why"
