"""Whether a worker may be stopped: every condition by itself, on looks at made groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.deploy.judge import Budget
from faust_assigner.deploy.pauses import Recoveries, Recovery
from faust_assigner.deploy.play import NoSuchWorker, Question
from faust_assigner.deploy.read import read_evidence
from faust_assigner.deploy.report import CANNOT_TELL, FAILED, NOT_SAFE, OK, SAFE, UNKNOWN
from faust_assigner.deploy.steps import shown_bytes
from faust_assigner.status.evidence import Heard
from tests.support.status import LOG, MadeGroup
from tests.unit.deploy.looks import POLICY, SETTINGS, STOP_W1, asked, at_rest, check, evidence, look

STANDBYS = Recoveries(
    known=(
        Recovery(topic=LOG, source="standby", records=10, seconds=0.4),
        Recovery(topic=LOG, source="standby", records=50_000, seconds=2.0),
        Recovery(topic=LOG, source="replay", records=100_000, seconds=5.0),
    ),
    origin="the ledger",
)


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (1_000_000, "1.0 MB"),
        (10**9, "1.0 GB"),
        (10**12, "1.0 TB"),
        (5 * 10**15, "5000.0 TB"),
    ],
)
def test_a_size_has_the_largest_unit_that_it_fills(count: int, shown: str) -> None:
    """A unit is used from exactly 1.0 on."""
    assert shown_bytes(count) == shown


def test_a_worker_whose_tasks_have_caught_up_copies_may_stop() -> None:
    """All checks are ok, the exit code is 0, and its two tasks move warm."""
    report = asked(look(at_rest()))
    assert (report.verdict, report.exit_code) == (SAFE, 0), report.checks
    assert {one.state for one in report.checks} == {OK}
    assert (report.moves, report.cold, report.behind) == (2, 0, 0)
    assert {move.was for move in report.steps[0].moves} == {"w1"}


@pytest.mark.parametrize(
    "name", ["table_standby_replicas", "FAUST_ASSIGNER_ACCEPTABLE_RECOVERY_LAG"]
)
@pytest.mark.parametrize("said", ["abc", "inf", "1.5", "9" * 5000])
def test_a_setting_that_is_no_number_leaves_the_next_round_unknown(name: str, said: str) -> None:
    """The sentence names the setting, whatever value the worker's status has."""
    found = read_evidence(evidence(at_rest(), settings={**SETTINGS, name: said}))
    assert found.fleet is None
    assert name in found.missing
    assert len(found.missing) < 200


def test_a_copy_that_lags_too_far_is_refused() -> None:
    """101 missing records exceed the limit of 100; copies on other members do not count."""
    made = at_rest()
    holders = {
        name for name in ("m0", "m2") if set(made.answer_of(name).standbys[LOG]) & owned(made, "m1")
    }
    for lag, verdict in ((100, SAFE), (101, NOT_SAFE)):
        report = asked(look(made, lags=dict.fromkeys(holders, lag)))
        assert report.verdict == verdict, report.checks
    assert check(report, "every task").state == FAILED
    assert "101 records behind" in check(report, "every task").text
    assert report.behind == 2
    assert asked(look(made, lags={"m1": 10**6})).verdict == SAFE, (
        "the copies of the worker that stops"
    )


def owned(made: MadeGroup, name: str) -> set[int]:
    """Return the table partitions that a member owns."""
    return set(made.answer_of(name).actives[LOG])


def test_a_task_without_a_copy_is_a_cold_move() -> None:
    """Without standbys every move is cold; --max-cold allows the moves and the text names them."""
    made = at_rest(replicas=0)
    found = look(made, settings=settings(table_standby_replicas="0"))
    report = asked(found)
    assert (report.verdict, report.cold) == (NOT_SAFE, 2)
    assert check(report, "at most 0 cold").state == FAILED
    assert check(asked(found, budget=Budget(cold=2)), "at most 2 cold").state == OK
    assert "1,000 records to replay" in check(report, "every task").text


def settings(**more: str) -> dict[str, str]:
    """Return the settings of the looks with changes."""
    return {**SETTINGS, **more}


@pytest.mark.parametrize(
    ("place", "mode", "named"),
    [("file", "on", True), ("file", "shadow", False), ("file", "off", False), ("", "on", False)],
)
def test_weights_are_a_problem_where_workers_place_by_them(
    place: str, mode: str, named: bool
) -> None:
    """Weights in shadow mode, switched off or without a file change no move."""
    more = {"FAUST_ASSIGNER_WEIGHTS": place, "FAUST_ASSIGNER_WEIGHTS_MODE": mode}
    report = asked(look(at_rest(), settings=settings(**more)))
    assert any("Workers weigh partitions" in one for one in report.problems) == named


def test_a_state_that_is_empty_is_not_lost() -> None:
    """A task with an empty changelog moves without a copy and is not cold."""
    made = at_rest(replicas=0, end=0)
    report = asked(look(made, settings=settings(table_standby_replicas="0")))
    assert (report.cold, check(report, "every task").state) == (0, OK)


@pytest.mark.parametrize(
    ("more", "name", "text"),
    [
        ({"restore_remaining_records": 12}, "nothing is restoring", "12 records"),
        ({"not_ready": ("a table is restored",)}, "nothing is restoring", "a table is restored"),
        ({"is_leaving": True}, "no round", "another worker stops"),
    ],
)
def test_a_group_that_is_busy_is_not_safe(more: dict[str, Any], name: str, text: str) -> None:
    """The group is busy while a worker restores, is not ready, or stops."""
    report = asked(look(at_rest(), **more))
    assert report.verdict == NOT_SAFE
    assert check(report, name).state == FAILED
    assert text in check(report, name).text


def test_a_rebalance_under_way_is_not_safe() -> None:
    """During a rebalance the coordinator shows no assignments, so the planner is not used."""
    made = at_rest()
    made.state = "PreparingRebalance"
    report = asked(look(made))
    assert report.exit_code == 1
    assert check(report, "no round").state == FAILED


def test_warm_ups_under_way_are_waited_for() -> None:
    """A worker with a warm-up has not finished the last deploy."""
    made = at_rest(end=50_000)
    made.join("m3", holds=True).round(warmups=POLICY)
    report = asked(look(made))
    assert check(report, "nothing is restoring").state == FAILED
    assert "w3 warms up" in check(report, "nothing is restoring").text


def test_a_silent_worker_makes_it_uncertain_unless_it_is_the_one_that_stops() -> None:
    """A silent worker's lags are unknown: exit code 2; a stopping worker's lags do not matter."""
    made = at_rest()
    quiet = {made.claims["m1"].url: Heard(answer="silent", detail="it did not answer")}
    base = evidence(made)
    found = read_evidence(replace(base, heard={**base.heard, **quiet}))
    assert asked(found).verdict == SAFE
    other = asked(found, Question(kind="stop", workers=("w0",)))
    assert (other.verdict, other.exit_code) == (CANNOT_TELL, 2)
    assert "w1" in check(other, "workers answer").text


def test_a_disk_without_room_for_the_new_copies_is_refused() -> None:
    """With unknown free space the answer is unknown."""
    made = at_rest()
    assert check(asked(look(made, disk_free_bytes=999)), "room").state == FAILED
    assert check(asked(look(made, disk_free_bytes=None)), "room").state == UNKNOWN
    assert check(asked(look(made, disk_free_bytes=10_000)), "room").state == OK


def test_workers_of_one_host_share_its_disk() -> None:
    """The new copies of all workers on the host must fit, in the event with the most copies."""
    made = at_rest()
    rolling = asked(look(made, host="box"), Question(kind="rolling"))
    sizes = [step.copy_bytes or 0 for step in rolling.steps]
    assert max(sizes) > sizes[-1]
    assert (
        check(rolling, "room").text == f"at most {shown_bytes(max(sizes))} of new copies on a disk"
    )
    (step,) = asked(look(made, host="box")).steps
    room = (step.copy_bytes or 0) - 1
    assert check(asked(look(made, host="box", disk_free_bytes=room)), "room").state == FAILED
    assert check(asked(look(made, disk_free_bytes=room)), "room").state == OK


def test_a_copy_that_is_behind_counts_whichever_static_member_restarts() -> None:
    """A stalled copy does not catch up while preceding members of the roll restart."""
    made = at_rest()
    for n in range(3):
        made.offers[f"m{n}"] = {"holds": True, "instance_id": f"w{n}"}
    made.round()
    for lags in ({f"m{n}": 101 for n in range(3)}, {"m0": 101}):
        report = asked(look(made, lags=lags), Question(kind="rolling"))
        behind = {move.to for step in report.steps for move in step.moves if move.is_behind}
        assert behind == {f"w{name.lstrip('m')}" for name in lags}
        assert report.verdict == NOT_SAFE


def test_the_pause_comes_from_the_ledger_and_is_unknown_without_one() -> None:
    """Without a ledger the pause is unknown; with a ledger the budget is met or exceeded."""
    found = look(at_rest())
    blind = asked(found, budget=Budget(pause_s=5))
    assert (blind.exit_code, blind.pause_s) == (2, None)
    assert "no worker serves a ledger" in check(blind, "no task stands still").text
    empty = asked(found, budget=Budget(pause_s=5), recoveries=Recoveries(origin="the ledger"))
    assert "the ledger has no comparable recovery" in check(empty, "no task stands still").text
    assert asked(found, budget=Budget(pause_s=5), recoveries=STANDBYS).exit_code == 0
    slow = asked(found, budget=Budget(pause_s=0.3), recoveries=STANDBYS)
    assert (slow.exit_code, slow.pause_s) == (1, 0.4)


def test_a_long_tail_takes_as_long_as_its_records() -> None:
    """Recoveries took 25,000 records a second with a copy and 20,000 without a copy."""
    assert STANDBYS.expected_s([LOG], 75_000, warm=True) == pytest.approx(0.4 + 3.0)
    assert STANDBYS.expected_s([LOG], 80_000, warm=False) == pytest.approx(5.0 + 4.0)
    assert STANDBYS.expected_s([LOG], None, warm=True) is None
    assert Recoveries().expected_s([LOG], 5, warm=True) is None


def test_a_static_member_is_waited_for_as_long_as_its_session() -> None:
    """No task moves if the member returns in time: the pause is the caller's restart time."""
    made = at_rest()
    made.offers["m1"] = {"holds": True, "instance_id": "shop-1"}
    made.round()
    found = look(made)
    blind = asked(found, Question(kind="stop", workers=("shop-1",)), Budget(pause_s=30))
    assert (blind.steps[0].static, blind.exit_code) == (("shop-1",), 2)
    assert "60 s (session timeout)" in blind.steps[0].pause
    quick = asked(
        found, Question(kind="stop", workers=("shop-1",)), Budget(pause_s=30), restart_s=20.0
    )
    assert (quick.pause_s, quick.exit_code) == (20.0, 0)
    late = asked(
        found,
        Question(kind="stop", workers=("shop-1",)),
        Budget(pause_s=30),
        restart_s=61.0,
        recoveries=STANDBYS,
    )
    assert (late.pause_s, late.exit_code) == (60.4, 1)


def test_a_static_member_that_is_scaled_away_costs_its_session() -> None:
    """The member does not return at any restart time; the answer names `groups retire`."""
    made = at_rest()
    made.offers["m2"] = {"holds": True, "instance_id": "w2"}
    made.round()
    found = look(made)
    for restart_s in (None, 20.0):
        less = asked(
            found,
            Question(kind="scale", size=2),
            Budget(pause_s=30),
            restart_s=restart_s,
            recoveries=STANDBYS,
        )
        (step,) = less.steps
        assert (step.static, step.is_for_good, less.exit_code) == (("w2",), True, 1)
        assert less.pause_s == 60.4
        assert "retired first" in step.pause
    stopped = asked(found, Question(kind="stop", workers=("w2",)), restart_s=20.0)
    assert (stopped.steps[0].is_for_good, stopped.pause_s) == (False, 20.0)


def test_a_lost_rack_costs_the_session_timeout() -> None:
    """No worker hands over; the moves are cold without copies in the remaining racks."""
    made = MadeGroup()
    for n, rack in enumerate("aabb"):
        made.join(f"m{n}", holds=True, rack_id=f"az-{rack}")
    for _ in range(4):
        made.round()
    found = look(made)
    report = asked(found, Question(kind="lose rack", rack="az-b"), recoveries=STANDBYS)
    assert report.steps[0].stopped == ("w2", "w3")
    assert (report.cold, report.pause_s) == (0, 60.4)
    with pytest.raises(NoSuchWorker, match="az-a, az-b"):
        asked(found, Question(kind="lose rack", rack="az-c"))


def test_a_rolling_restart_stops_each_worker_and_brings_it_back() -> None:
    """Each worker has two steps without cold moves; a static worker returns without a round."""
    made = at_rest()
    report = asked(look(made), Question(kind="rolling"))
    assert [step.event for step in report.steps] == [
        f"w{n} {what}" for n in range(3) for what in ("stops", "is back")
    ]
    assert (report.cold, report.verdict) == (0, SAFE)
    made.offers["m1"] = {"holds": True, "instance_id": "w1"}
    made.round()
    report = asked(look(made), Question(kind="rolling"))
    assert "w1 is back" not in {step.event for step in report.steps}


def test_newcomers_get_tasks_only_when_they_have_caught_up() -> None:
    """Newcomers get two tasks later; a smaller group loses the members with the highest numbers."""
    found = look(at_rest())
    more = asked(found, Question(kind="scale", size=5))
    assert (more.moves, more.later_moves, more.verdict) == (0, 2, SAFE)
    less = asked(found, Question(kind="scale", size=2))
    assert less.steps[0].stopped == ("w2",)
    assert asked(found, Question(kind="scale", size=3)).steps == ()
    assert asked(found, Question(kind="scale", size=0)).verdict == NOT_SAFE


@pytest.mark.parametrize(
    "name", ["w1", "http://w1:6066", "http://w1:6066/", "w1:6066", "m1", "pod-1"]
)
def test_a_worker_has_several_names(name: str) -> None:
    """A worker is named by its status name, URL, member id or host."""
    assert asked(look(at_rest()), Question(kind="stop", workers=(name,))).steps[0].stopped == (
        "w1",
    )


def test_a_name_that_is_no_members_is_an_error() -> None:
    """The error names the existing members."""
    with pytest.raises(NoSuchWorker, match="w0, w1, w2"):
        asked(look(at_rest()), Question(kind="stop", workers=("w9",)))


def test_a_group_that_lacks_a_member_is_not_complete() -> None:
    """``--members``: the worker that restarted last is still missing."""
    found = look(at_rest())
    assert asked(found, budget=Budget(members=3)).verdict == SAFE
    assert asked(found, budget=Budget(members=4)).verdict == NOT_SAFE


def test_a_stock_member_makes_it_uncertain() -> None:
    """A stock member's claims are unknown before its join."""
    made = at_rest()
    report = asked(replace(look(made), fleet=None, missing="members without this package: w2"))
    assert (report.verdict, report.steps) == (CANNOT_TELL, ())
    assert asked(look(made), STOP_W1).verdict == SAFE
