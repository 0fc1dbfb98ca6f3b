"""The parts of deploy-check: checks, names, newcomers, pauses and the leader's settings."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.app.rebalance.warming import SHORT
from faust_assigner.deploy.fleet import Fleet, NotKnown, Worker, _held_partitions, by_topic
from faust_assigner.deploy.judge import (
    Budget,
    _check_budget,
    _check_copies,
    _check_disk_room,
    _check_pause,
    _check_planned,
    _worst_state,
)
from faust_assigner.deploy.pauses import Recoveries, Recovery
from faust_assigner.deploy.play import (
    NoSuchWorker,
    Played,
    Question,
    _new_workers,
    _restarted_worker,
    stopped_by,
)
from faust_assigner.deploy.read import policy_of, read_evidence
from faust_assigner.deploy.report import FAILED, OK, UNKNOWN, Check, Move, Step
from faust_assigner.deploy.steps import Known, _static_pause, size_of, step_of
from faust_assigner.settings.table import SETTINGS as TABLE
from faust_assigner.status.evidence import Heard
from faust_assigner.status.words import natural
from faust_assigner.wire.join import JoinData
from faust_assigner.wire.worker_status import TableStatus
from tests.support.status import LOG
from tests.unit.deploy.looks import SETTINGS, asked, at_rest, check, evidence, look

STOP = Question(kind="stop", workers=("w1",))


def move(**more: Any) -> Move:
    """Return a warm move of orders/0 from w1 to w0."""
    base: dict[str, Any] = {
        "topics": ("orders",),
        "partition": 0,
        "was": "w1",
        "to": "w0",
        "is_cold": False,
        "is_behind": False,
        "records": 0,
    }
    return Move(**base | more)


def step(**more: Any) -> Step:
    """Return an event with two remaining members and no move."""
    base: dict[str, Any] = {
        "event": "w1 stops",
        "stopped": ("w1",),
        "static": (),
        "session_timeout_s": 60.0,
        "is_for_good": False,
        "members": 2,
        "moves": (),
        "later_moves": 0,
        "copies": 0,
        "copy_bytes": 0,
        "pause_s": 1.0,
        "pause": "1.0 s to restore",
        "cold": 0,
        "behind": 0,
    }
    return Step(**base | more)


# -- checks


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        ((OK, OK), "safe"),
        ((OK, UNKNOWN), "cannot tell"),
        ((UNKNOWN, FAILED), "not safe"),
        ((), "safe"),
    ],
)
def test_a_failed_check_outweighs_an_unknown_check(states: tuple[str, ...], verdict: str) -> None:
    """The worst state of all checks decides."""
    assert _worst_state([Check(name="x", state=state, text="") for state in states]) == verdict


def test_a_group_with_more_members_than_named_is_not_complete() -> None:
    """A worker of the former size is still in the group."""
    report = asked(look(at_rest()), budget=Budget(members=2))
    assert check(report, "2 members").state == FAILED


def test_a_worker_that_is_not_live_makes_the_group_busy() -> None:
    """The worker is ready; the first reason is shown."""
    report = asked(look(at_rest(), not_live=("it hangs",), not_ready=("it restores",)))
    assert "w0: it hangs" in check(report, "nothing is restoring").text
    assert check(asked(look(at_rest(), not_live=("it hangs",))), "nothing").state == FAILED


def test_restores_are_unknown_only_if_no_worker_answers() -> None:
    """Some workers' answers show the relevant restores; a silent worker has its own check."""
    made = at_rest()
    quiet = Heard(answer="silent", detail="it did not answer")
    base = evidence(made)
    one = {made.claims["m2"].url: quiet}
    every = {made.claims[name].url: quiet for name in made.claims}
    some = asked(read_evidence(replace(base, heard={**base.heard, **one})))
    assert check(some, "nothing is restoring").state == OK
    assert check(some, "workers answer").state == UNKNOWN
    nobody = asked(read_evidence(replace(base, heard={**base.heard, **every})))
    assert check(nobody, "nothing is restoring").state == UNKNOWN


def test_in_a_rolling_restart_every_worker_must_answer() -> None:
    """Each worker stays in the group for most of the time."""
    made = at_rest()
    base = evidence(made)
    quiet = {made.claims["m1"].url: Heard(answer="silent", detail="it did not answer")}
    found = read_evidence(replace(base, heard={**base.heard, **quiet}))
    rolling = asked(found, Question(kind="rolling"))
    assert check(rolling, "workers answer").state == UNKNOWN
    assert check(asked(found, STOP), "workers answer").state == OK


def test_an_event_that_leaves_no_worker_fails_among_other_events() -> None:
    """The steps before this event leave workers in the group."""
    (found,) = _check_planned(None, "", [step(), step(members=0)], [])  # type: ignore[arg-type]
    assert (found.state, found.text) == (FAILED, "no worker is left")
    joins = step(stopped=(), members=0)
    assert _check_copies([joins], []).state == OK


def test_a_copy_that_is_behind_fails_and_a_copy_of_unknown_lag_leaves_it_unknown() -> None:
    """A cold move has no lag."""
    behind = _check_copies([step(moves=(move(is_behind=True, records=500),))], [])
    assert (behind.state, "500 records behind" in behind.text) == (FAILED, True)
    dark = _check_copies([step(moves=(move(records=None),))], [])
    assert (dark.state, dark.text) == (UNKNOWN, "the lag is not known of orders/0 on w0")
    cold = _check_copies([step(moves=(move(is_cold=True, records=None),))], [])
    assert cold.state == FAILED
    both = _check_copies([step(moves=(move(records=None), move(is_cold=True, records=9)))], [])
    assert both.state == FAILED


def test_moves_to_a_copy_that_is_behind_count_in_the_budget_of_cold_moves() -> None:
    """A budget equal to the number is met; without a plan the number is unknown."""
    steps = [step(cold=1, behind=1)]
    assert [one.state for one in _check_budget(steps, Budget(cold=2), "")] == [OK]
    (failed,) = _check_budget(steps, Budget(cold=1), "")
    assert (failed.state, failed.text) == (FAILED, "2, of these 1 to a copy that is behind")
    assert list(_check_budget([], Budget(cold=1), "no worker answered")) == []
    assert list(_check_budget(steps, Budget(cold=None), "")) == []


def test_the_longest_pause_decides_and_an_unknown_pause_leaves_it_unknown() -> None:
    """A pause equal to the limit is allowed; a longer pause fails even beside an unknown one."""
    long, dark = step(event="w2 stops", pause_s=9.0, pause="9.0 s"), step(pause_s=None, pause="?")
    assert _check_pause([step(pause_s=5.0)], 5.0, "").state == OK
    failed = _check_pause([step(pause_s=6.0), long, dark], 5.0, "")
    assert (failed.state, failed.text) == (FAILED, "w2 stops: 9.0 s")
    assert _check_pause([step(), dark], 5.0, "").state == UNKNOWN
    assert _check_pause([long], 5.0, "no plan").text == "no plan"


def test_the_pause_of_a_report_is_unknown_if_the_pause_of_a_step_is() -> None:
    """One of the two workers is static, and its restart time is not given."""
    made = at_rest()
    made.offers["m1"] = {"holds": True, "instance_id": "w1"}
    made.round()
    recoveries = Recoveries(
        known=(Recovery(topic=LOG, source="standby", records=10, seconds=0.4),), origin="the ledger"
    )
    rolling = asked(look(made), Question(kind="rolling"), recoveries=recoveries)
    assert {one.pause_s is None for one in rolling.steps} == {True, False}
    assert rolling.pause_s is None


def test_room_is_checked_in_every_event() -> None:
    """The copies of the first event do not fit; the copies of the last event fit."""
    found = look(at_rest(), host="box")
    sizes = [one.copy_bytes or 0 for one in asked(found, Question(kind="rolling")).steps]
    assert max(sizes) > sizes[-1]
    tight = look(at_rest(), host="box", disk_free_bytes=max(sizes) - 1)
    assert check(asked(tight, Question(kind="rolling")), "room").state == FAILED
    just = look(at_rest(), host="box", disk_free_bytes=max(sizes))
    assert check(asked(just, Question(kind="rolling")), "room").state == OK


class Asked(dict[str, str]):
    """Settings that remember which of them were read."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """Return the default, as for a setting that is not reported."""
        self.names.add(name)
        return default


def test_only_settings_that_change_a_plan_are_a_problem_where_workers_differ() -> None:
    """A different leader would plan with its own number of standbys, warm-ups and weights."""
    settings = Asked()
    for is_cooperative in (False, True):
        policy_of(settings, is_cooperative)
    assert len(settings.names) > 4
    weights = {one.name for one in TABLE if one.name.startswith("FAUST_ASSIGNER_WEIGHTS")}
    planned = {*settings.names, *weights, "table_standby_replicas"}
    made = at_rest()
    for name in sorted(planned | {"broker_session_timeout", "FAUST_ASSIGNER_LEDGER"}):
        base = evidence(made, settings={**SETTINGS, name: "6"})
        odd = made.status_of("m2", settings={**SETTINGS, name: "7"})
        heard = {**base.heard, made.claims["m2"].url: Heard(answer="answered", status=odd)}
        report = asked(read_evidence(replace(base, heard=heard)))
        shown = [one for one in report.problems if "would plan differently" in one]
        assert (name in planned) == any(name in one for one in shown), name


# -- the members of an event


def test_a_smaller_group_keeps_the_members_with_the_lowest_numbers() -> None:
    """A StatefulSet also removes shop-10 before shop-9."""
    members = look(at_rest()).status.members
    named = [replace(members[0], name=f"shop-{n}") for n in (9, 10, 11, 1)]
    scale = Question(kind="scale", size=2)
    assert stopped_by(scale, named) == {"shop-10", "shop-11"}
    addressed = [replace(one, name=f"{one.name}.shop.default.svc.zone1") for one in named]
    assert stopped_by(scale, addressed) == {
        "shop-10.shop.default.svc.zone1",
        "shop-11.shop.default.svc.zone1",
    }
    assert sorted(["b", "shop-10", "shop-9", "a"], key=natural) == ["a", "b", "shop-9", "shop-10"]


def test_all_named_workers_stop_together() -> None:
    """Two of three workers stop; the third worker stays."""
    members = look(at_rest()).status.members
    assert stopped_by(Question(kind="stop", workers=("w0", "w2")), members) == {"w0", "w2"}


def test_a_name_of_several_workers_is_an_error() -> None:
    """Two workers run on the host; a worker's name has priority over a host of the same name."""
    members = look(at_rest()).status.members
    two = [replace(members[0], host="box"), replace(members[1], host="box"), members[2]]
    with pytest.raises(NoSuchWorker, match="names 2 workers: w0, w1"):
        stopped_by(Question(kind="stop", workers=("box",)), two)
    named = [two[0], replace(two[1], name="box"), two[2]]
    assert stopped_by(Question(kind="stop", workers=("box",)), named) == {"box"}


def made_fleet(**workers: JoinData) -> Fleet:
    """Return a fleet with a table of two partitions; the members' copies are complete."""
    facts = TableFacts(frozenset({LOG}), {})
    found = {
        name: Worker(
            name=name, member_id=f"{name}-id", topics=("orders", LOG), data=data, positions={}
        )
        for name, data in workers.items()
    }
    return Fleet(
        group_id="shop",
        workers=found,
        partitions={"orders": 2, LOG: 2},
        facts=facts,
        replicas=1,
        policy={True: None, False: None},
        generation=3,
        ends={(LOG, 0): 1000, (LOG, 1): 0},
    )


def test_a_worker_that_returns_claims_its_files_and_wishes_its_former_partitions() -> None:
    """The new process has a new member id and no assignment, promises or instance id."""
    data = JoinData(
        "http://w0",
        {"orders": [0], LOG: [0]},
        standbys={LOG: [1]},
        generation=3,
        holds=True,
        promised={"orders": [1]},
        awaited={LOG: [1]},
        overdue={LOG: [1]},
        among=2,
        rack_id="a",
        capacity=2.0,
    )
    worker = replace(made_fleet(w0=data).workers["w0"], positions={(LOG, 0): 1000, (LOG, 1): 0})
    back = _restarted_worker(worker)
    assert back.member_id != worker.member_id
    assert back.positions == worker.positions
    expected = JoinData(
        "http://w0",
        on_disk={LOG: [0, 1]},
        former_actives={"orders": [0], LOG: [0]},
        former_generation=3,
        rack_id="a",
        capacity=2.0,
    )
    assert back.data == expected


def test_newcomers_are_like_the_first_worker_in_racks_in_turn() -> None:
    """Newcomers have no state, no instance id and a capacity of 1."""
    fleet = made_fleet(
        w1=JoinData("http://w1", rack_id="b"),
        w0=JoinData("http://w0", rack_id="a", capacity=3.0, instance_id="w0", holds=True),
    )
    made = _new_workers(fleet, 3)
    assert [one.data.rack_id for one in made] == ["a", "b", "a"]
    assert {(one.data.capacity, one.data.instance_id, one.data.holds) for one in made} == {
        (1.0, None, False)
    }
    assert len({one.name for one in made} | {one.member_id for one in made}) == 6
    assert [one.data.rack_id for one in _new_workers(made_fleet(w0=JoinData()), 2)] == [None, None]


def test_a_partition_belongs_to_its_owner_or_to_the_member_that_it_is_promised_to() -> None:
    """The owner has revoked the partition, and the second round assigns the partition."""
    fleet = made_fleet(w0=JoinData(actives={"orders": [0]}), w1=JoinData(promised={"orders": [1]}))
    assert fleet.owners() == {("orders", 0): "w0", ("orders", 1): "w1"}


def test_the_state_of_a_member_is_on_its_actives_its_copies_and_its_disk() -> None:
    """A topic without a table has no state."""
    data = JoinData(
        actives={"orders": [0], LOG: [0]}, standbys={LOG: [1]}, on_disk={LOG: [2], "orders": [3]}
    )
    fleet = made_fleet(w0=data)
    assert fleet.copies() == {"w0": {(LOG, 0), (LOG, 1), (LOG, 2)}}
    assert set(_held_partitions(fleet.workers["w0"], fleet.facts)) == fleet.copies()["w0"]
    assert by_topic([("b", 2), ("a", 1), ("b", 0)]) == {"a": [1], "b": [0, 2]}


def test_the_missing_records_of_all_tables_of_a_task_count() -> None:
    """An unknown end, or an unknown position of a copy, makes the number unknown."""
    fleet = replace(
        made_fleet(w0=JoinData()), ends={("a", 0): 1000, ("b", 0): 500, ("a", 1): 9, ("b", 2): 9}
    )
    worker = replace(fleet.workers["w0"], positions={("a", 0): 900, ("b", 0): 700})
    assert fleet._records(worker, {("a", 0), ("b", 0)}, ("a", "b"), 0) == 100
    assert fleet._records(fleet.workers["w0"], (), ("a", "b"), 0) == 1500
    assert fleet._records(worker, (), ("a", "b"), 1) is None
    assert fleet._records(worker, {("a", 1)}, ("a",), 1) is None
    assert fleet._records(worker, (), ("a",), 1) == 9


def test_a_round_raises_the_generation_and_remembers_the_owners_of_departed_members() -> None:
    """A departed owner's task still has its former owner."""
    found = look(at_rest()).fleet
    assert found is not None
    after, moved = found.without(["w1"]).at_rest()
    assert after.generation > found.generation
    assert {one.was for one in moved} == {"w1"}
    assert {one.topics for one in moved} == {("orders", LOG)}
    alone = replace(found.without(["w1"]), workers={})
    assert alone.owner == found.owner


# -- recoveries


def rows(*more: dict[str, Any]) -> list[dict[str, Any]]:
    """Return recoveries of the ledger, of five seconds each."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    base = {
        "group_id": "shop",
        "topic": LOG,
        "source": "standby",
        "records": 10,
        "started": begin,
        "ended": begin + timedelta(seconds=5),
    }
    return [base | one for one in more]


def test_a_restart_has_an_unknown_pause_if_the_session_timeout_is_unknown() -> None:
    """The group may have moved the static worker's tasks before its return."""
    pause_s, text = _static_pause(("shop-1",), None, 0.0, "nothing to restore", 20.0)
    assert pause_s is None
    assert "its session timeout" in text


def test_the_rate_is_that_of_all_long_recoveries_together() -> None:
    """10,000 records in 10 s and in 100 s: 20,000 records take 110 s plus the shortest recovery."""
    known = tuple(
        Recovery(topic=LOG, source="standby", records=10_000, seconds=seconds)
        for seconds in (10.0, 100.0)
    )
    found = Recoveries(known=known).expected_s([LOG], 20_000, warm=True)
    assert found == pytest.approx(10.0 + 110.0)


def test_only_recoveries_of_the_group_count() -> None:
    """Several apps write to the same folder; the duration is in seconds."""
    others = ({"group_id": name} for name in ("bank", "shop-2", "sho", ""))
    found = Recoveries.of(rows({}, *others), "shop", "the ledger")
    assert found.known == (Recovery(topic=LOG, source="standby", records=10, seconds=5.0),)


def recoveries(*known: tuple[str, str, int, float]) -> Recoveries:
    """Return recoveries from tuples of (topic, source, records, seconds)."""
    return Recoveries(
        known=tuple(Recovery(topic=t, source=s, records=r, seconds=x) for t, s, r, x in known)
    )


def test_the_tables_own_recoveries_from_the_same_source_count_first() -> None:
    """Without its own the table uses all tables' recoveries; cold and warm ones are not mixed."""
    known = recoveries(
        ("a", "standby", 10, 1.0), ("a", "replay", 10, 7.0), ("b", "standby", 10, 3.0)
    )
    assert known.expected_s(["a"], 10, warm=True) == 1.0
    assert known.expected_s(["a"], 10, warm=False) == 7.0
    assert known.expected_s(["b"], 10, warm=True) == 3.0
    assert known.expected_s(["c"], 10, warm=True) == 3.0


def test_the_typical_short_recovery_is_the_time_to_open_a_table() -> None:
    """The median of the short recoveries and their longest bound a short recovery."""
    known = recoveries(*(("a", "standby", 10, x) for x in (1.0, 2.0, 9.0)))
    assert known.expected_s(["a"], 999, warm=True) == 9.0
    long = recoveries(
        ("a", "standby", 10, 1.0),
        ("a", "standby", 20, 2.0),
        ("a", "standby", 30, 9.0),
        ("a", "standby", 10_000, 10.0),
        ("a", "standby", 5_000, 0.0),
    )
    assert long.expected_s(["a"], 1_000, warm=True) == 2.0 + 1.0
    assert long.expected_s(["a"], 0, warm=True) == 9.0
    assert recoveries(("a", "standby", 10, 1.0)).expected_s(["a"], 1_000, warm=True) is None


# -- the leader's view


def test_the_policy_of_warm_ups_follows_the_settings() -> None:
    """Without follow-up rounds, or with warm-ups off, the policy is None."""
    assert policy_of({"FAUST_ASSIGNER_WARMUPS": "0"}, True) is None
    assert policy_of({"FAUST_ASSIGNER_FOLLOW_UP_S": "0"}, True) is None
    lag = {"FAUST_ASSIGNER_ACCEPTABLE_RECOVERY_LAG": "77"}
    cooperative, eager = policy_of(lag, True), policy_of(lag, False)
    assert cooperative is not None
    assert eager is not None
    assert (cooperative.acceptable_recovery_lag, cooperative.acceptable_from_nothing) == (77, SHORT)
    assert (eager.acceptable_recovery_lag, eager.acceptable_from_nothing) == (77, 77)
    with pytest.raises(NotKnown, match="FAUST_ASSIGNER_MAX_WARMUPS='x'"):
        policy_of({"FAUST_ASSIGNER_MAX_WARMUPS": "x"}, True)


def test_the_leaders_settings_count() -> None:
    """The remaining workers have different settings."""
    made = at_rest()
    found = look(made)
    base = evidence(made)
    odd = {
        made.claims[name].url: Heard(
            answer="answered", status=made.status_of(name, settings={**SETTINGS, "x": name})
        )
        for name in made.claims
    }
    leader = next(one.name for one in found.status.members if one.is_leader)
    told = read_evidence(replace(base, heard={**base.heard, **odd})).settings
    assert told["x"] == f"m{leader.removeprefix('w')}"


def test_the_largest_size_of_a_partition_on_any_worker_counts() -> None:
    """The owner and the copies compact at different times."""
    made = at_rest()
    base = evidence(made)
    tables = {
        name: (TableStatus(name="t", changelog=LOG, store="rocksdb", bytes={"0": size, "x": 9}),)
        for name, size in (("m0", 70), ("m1", 90), ("m2", 80))
    }
    heard = {
        made.claims[name].url: Heard(
            answer="answered", status=made.status_of(name, settings=SETTINGS, tables=tables[name])
        )
        for name in made.claims
    }
    assert read_evidence(replace(base, heard=heard)).bytes_of == {(LOG, 0): 90}


@pytest.mark.parametrize(
    ("stores", "size"),
    [(("memory", "memory"), 0), (("memory", "rocksdb"), 90), (("rocksdb", "rocksdb"), 90)],
)
def test_a_table_takes_no_disk_only_if_every_worker_keeps_it_in_memory(
    stores: tuple[str, ...], size: int
) -> None:
    """During a deploy the stores differ."""
    made = at_rest()
    base = evidence(made)
    heard = dict(base.heard)
    for name, store in zip(("m0", "m1", "m2"), (*stores, stores[-1]), strict=False):
        table = TableStatus(name="t", changelog=LOG, store=store, bytes={"0": 90})
        heard[made.claims[name].url] = Heard(
            answer="answered", status=made.status_of(name, settings=SETTINGS, tables=(table,))
        )
    found = read_evidence(replace(base, heard=heard))
    assert size_of(found, (LOG, 0)) == size
    assert size_of(found, (LOG, 1)) == (0 if not size else None)
    empty = read_evidence(replace(base, heard=heard, ends={**base.ends, (LOG, 1): 0}))
    assert size_of(empty, (LOG, 1)) == 0


def test_a_copy_beyond_the_end_of_a_new_log_has_no_negative_position() -> None:
    """The lag was measured before the topic was created again."""
    made = at_rest(end=50)
    found = look(made, lags={"m0": 80})
    assert found.fleet is not None
    assert min(found.fleet.workers["w0"].positions.values()) == 0


@pytest.mark.parametrize(
    ("sizes", "total"), [((100, 7), 107), ((100, None), None), ((None, 7), None)]
)
def test_the_size_of_the_new_copies_is_known_if_the_size_of_every_copy_is(
    sizes: tuple[int | None, ...], total: int | None
) -> None:
    """One unknown size among the copies makes the sum unknown, in any order."""
    found = look(at_rest())
    known = {(LOG, n): size for n, size in enumerate(sizes) if size is not None}
    copied = {"w0": frozenset({(LOG, 0)}), "w2": frozenset({(LOG, 1)})}
    played = Played(event="w1 stops", stopped=("w1",), is_crash=False, members=2, copied=copied)
    made = step_of(replace(found, bytes_of=known), played, Known())
    assert (made.copies, made.copy_bytes) == (2, total)


def room_of(
    sizes: dict[int, int], *copied: dict[str, set[int]], free: tuple[int | None, ...] = (900,) * 3
) -> tuple[str, str]:
    """Return the state and text of the room for new copies of the table, in one event per group."""
    found = look(at_rest())
    members = tuple(
        replace(member, disk_free_bytes=room)
        for member, room in zip(found.status.members, free, strict=True)
    )
    played = [
        Played(
            event=f"event {n}",
            stopped=(),
            is_crash=False,
            copied={
                name: frozenset((LOG, number) for number in numbers)
                for name, numbers in places.items()
            },
        )
        for n, places in enumerate(copied)
    ]
    found = replace(
        found,
        status=replace(found.status, members=members),
        bytes_of={(LOG, number): size for number, size in sizes.items()},
    )
    room = _check_disk_room(found, played)
    return room.state, room.text


def test_a_new_workers_disk_is_left_out_beside_the_disks_of_the_members() -> None:
    """The new worker's copies come first, and the member's copies still count."""
    assert room_of({0: 300, 1: 400}, {"new-0": {0}, "w1": {0, 1}}) == (
        OK,
        "at most 700 B of new copies on a disk",
    )


def test_each_event_needs_room_for_itself() -> None:
    """Two events that fit alone are ok, although their sum exceeds the room."""
    assert room_of({0: 500, 1: 600}, {"w1": {1}}, {"w1": {0}}) == (
        OK,
        "at most 600 B of new copies on a disk",
    )
    assert room_of({0: 500, 1: 401}, {"w1": {0}}, {"w1": {0, 1}, "w2": {0}}) == (
        FAILED,
        "event 1: pod-1 gets 901 B of tables and has 900 B free",
    )


def test_a_size_or_a_room_that_is_unknown_in_any_event_leaves_the_room_unknown() -> None:
    """The later event has a known size and room."""
    assert room_of({1: 5}, {"w0": {0}}, {"w2": {1}}) == (
        UNKNOWN,
        f"table sizes or free disk space unknown: {LOG}/0 on w0",
    )
    assert room_of({0: 5, 1: 5}, {"w0": {0}}, {"w2": {1}}, free=(None, 900, 900)) == (
        UNKNOWN,
        f"table sizes or free disk space unknown: {LOG}/0 on w0",
    )


def test_a_table_in_memory_needs_no_disk_beside_tables_with_files() -> None:
    """Every answering worker must keep the table in memory; a second table's files do not count."""

    def worker(**stores: str) -> Any:
        tables = tuple(
            TableStatus(name=name, changelog=name, store=store) for name, store in stores.items()
        )
        return SimpleNamespace(status=SimpleNamespace(tables=tables))

    look: Any = SimpleNamespace(
        fleet=SimpleNamespace(ends={("files", 1): 0}),
        bytes_of={("files", 2): 70},
        views=(
            worker(memory="memory", files="rocksdb", mixed="memory"),
            SimpleNamespace(status=None),
            worker(memory="memory", mixed="rocksdb"),
        ),
    )
    places = (("memory", 0), ("mixed", 0), ("files", 0), ("files", 1), ("files", 2))
    assert [size_of(look, place) for place in places] == [0, None, None, 0, 70]


def test_a_recovery_of_exactly_a_thousand_records_measures_the_rate_alone() -> None:
    """It is no time to open a table: the shortest recovery is the base."""
    known = tuple(
        Recovery(topic="log", source="standby", records=records, seconds=seconds)
        for records, seconds in ((1_000, 4.0), (3_000, 2.0))
    )
    assert Recoveries(known=known).expected_s(["log"], 500, warm=True) == 2.0
    assert Recoveries(known=known).expected_s(["log"], 2_000, warm=True) == 2.0 + 2_000 / (
        4_000 / 6.0
    )


def test_an_instance_id_goes_before_the_host_of_another_worker() -> None:
    """The name of one worker, the instance id of the second and the host of the third are equal."""
    first, second, third = look(at_rest()).status.members
    second = replace(second, instance_id="here")
    third = replace(third, host="here")
    question = Question(kind="stop", workers=("here",))
    assert stopped_by(question, (first, second, third)) == {second.name}
    assert stopped_by(question, (replace(first, name="here"), second, third)) == {"here"}
    assert stopped_by(question, (first, third)) == {third.name}
    with pytest.raises(NoSuchWorker, match="names 2 workers"):
        stopped_by(question, (first, replace(first, name="x", host="here"), third))


def test_a_table_without_records_is_read_as_fast_as_all_kinds_of_recoveries_together() -> None:
    """Reads from copies and from the log alone have one rate; the base is of the same kind."""
    known = recoveries(
        ("a", "standby", 10_000, 20.0), ("b", "replay", 30_000, 20.0), ("b", "replay", 10, 4.0)
    )
    assert known.expected_s(["c"], 2_000, warm=True) == pytest.approx(4.0 + 2_000 / 1_000)
    assert known.expected_s(["b"], 2_000, warm=True) == pytest.approx(4.0 + 2_000 / 1_000)
    assert known.expected_s(["a"], 2_000, warm=True) == pytest.approx(20.0 + 2_000 / 500)
