"""The rounds that deploy-check plays: their order, their moves, and the claims between them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.deploy import play as play_module
from faust_assigner.deploy.fleet import Fleet, Moved, NotKnown, Worker
from faust_assigner.deploy.play import Played, Question, _event, play
from faust_assigner.deploy.read import _read_fleet, _read_worker, _settings
from faust_assigner.deploy.steps import Known, _longest_pause, _static_pause
from faust_assigner.status.build import build
from faust_assigner.status.evidence import Place
from faust_assigner.status.members import views_of
from faust_assigner.wire.join import JoinData, decode_join
from faust_assigner.wire.runs import Runs
from tests.support.status import LOG
from tests.unit.deploy.looks import at_rest, evidence

LEADER = "shop-__assignor-__leader"
SECOND = "shop-second-changelog"
TOPICS = ("news", "orders", LOG, LEADER)


def fleet_of(topics: Sequence[str] = TOPICS, **workers: JoinData) -> Fleet:
    """Return a cooperative fleet with a table, a topic without state and Faust's leader topic."""
    found = {
        name: Worker(
            name=name, member_id=f"{name}-id", topics=tuple(topics), data=data, positions={}
        )
        for name, data in workers.items()
    }
    return Fleet(
        group_id="shop",
        workers=found,
        partitions={"news": 3, "orders": 2, LOG: 2, LEADER: 1},
        facts=TableFacts(frozenset({LOG}), {}),
        replicas=1,
        policy={True: None, False: None},
        generation=3,
        ends={(LOG, 0): 1000, (LOG, 1): 1000},
    )


def joined(name: str, **more: Any) -> JoinData:
    """Return a cooperative member's claims."""
    return JoinData(f"http://{name}", cooperative=True, holds=True, generation=3, **more)


def moved(to: str) -> Moved:
    """Return a move of orders/0."""
    return Moved(
        topics=("orders",),
        changelogs=(),
        partition=0,
        was="",
        to=to,
        is_cold=False,
        records=0,
        is_behind=False,
    )


def test_the_moves_of_every_immediate_round_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event takes as many rounds as the leader requests."""
    fleet = fleet_of(w0=joined("w0"))
    follows = iter([True, True, False])
    names = iter("abc")
    monkeypatch.setattr(Fleet, "round", lambda self: (self, (moved(next(names)),), next(follows)))
    assert [one.to for one in fleet.at_rest()[1]] == ["a", "b", "c"]


def test_a_group_that_asks_for_rounds_without_end_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The report then has no answer."""
    monkeypatch.setattr(Fleet, "round", lambda self: (self, (), True))
    with pytest.raises(NotKnown, match="still moves tasks of this group"):
        fleet_of(w0=joined("w0")).at_rest()


def test_copies_catch_up_before_each_follow_up_round_until_a_round_moves_no_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy that never catches up does not repeat the rounds for ever."""
    fleet = fleet_of(w0=joined("w0", standbys={LOG: [0]}, awaited={LOG: [0]}))
    seen: list[Mapping[Place, int]] = []
    script = iter([(moved("a"),), (moved("b"),), ()])

    def at_rest_of(self: Fleet) -> tuple[Fleet, tuple[Moved, ...]]:
        seen.append(self.workers["w0"].positions)
        behind = replace(self.workers["w0"], positions={(LOG, 0): 1})
        return replace(self, workers={"w0": behind}), next(script)

    monkeypatch.setattr(Fleet, "at_rest", at_rest_of)
    after, moves = fleet.settled()
    assert seen == [{(LOG, 0): 1000}] * 3
    assert [one.to for one in moves] == ["a", "b"]
    assert after.workers["w0"].positions == {(LOG, 0): 1000}


@pytest.mark.parametrize("positions", [None, {LOG: {0: 7}}])
def test_a_join_has_positions_only_from_a_member_that_reports_them(positions: Any) -> None:
    """The join has the current positions; a member of an older release reports none."""
    fleet = fleet_of(w0=joined("w0", standbys={LOG: [0]}, positions=positions))
    worker = replace(fleet.workers["w0"], positions={(LOG, 0): 900})
    said = decode_join(fleet._metadata(worker).user_data, TOPICS).positions
    assert (said is None) == (positions is None)
    found = [] if said is None else [array.tolist() for array in said[LOG]]
    assert found == ([] if positions is None else [[0], [900]])


def test_a_first_round_moves_all_tasks_but_the_leader_topic_and_only_state_is_cold() -> None:
    """A topic without a table has no state to restore."""
    _, moves, _ = fleet_of(w0=joined("w0"), w1=joined("w1")).round()
    assert {one.topics: one.is_cold for one in moves} == {("news",): False, ("orders", LOG): True}


@pytest.mark.parametrize(
    ("standbys", "ends", "records", "is_cold"),
    [
        ({LOG: [0, 1]}, {LOG: 1000, SECOND: 200}, 300, False),
        ({}, {LOG: 1000, SECOND: 200}, 1200, True),
        ({}, {LOG: 1000}, None, True),
        ({}, {LOG: 0, SECOND: 0}, 0, False),
    ],
    ids=["copy of one table", "no copy", "unknown end", "no records"],
)
def test_a_task_with_two_tables_is_cold_without_a_copy_of_either(
    standbys: dict[str, list[int]], ends: dict[str, int], records: int | None, is_cold: bool
) -> None:
    """A copy of one table is a copy; an unknown number of records is not the number 0."""
    topics = ("orders", LOG, SECOND)
    fleet = fleet_of(topics, w0=joined("w0", standbys=standbys))
    fleet = replace(
        fleet,
        partitions={"orders": 2, LOG: 2, SECOND: 2},
        facts=TableFacts(frozenset({LOG, SECOND}), {}),
        ends={(topic, number): end for topic, end in ends.items() for number in (0, 1)},
    )
    held = {(topic, number): 900 for topic, numbers in standbys.items() for number in numbers}
    (worker,) = fleet.workers.values()
    _, moves, _ = fleet.with_workers([replace(worker, positions=held)]).round()
    assert {(m.topics, m.is_cold, m.records) for m in moves} == {
        (tuple(sorted(topics)), is_cold, records)
    }


@pytest.mark.parametrize("copies", [{}, {LOG: [0, 1]}])
def test_a_promised_partition_is_state_only_on_a_member_that_had_a_copy(
    copies: dict[str, list[int]],
) -> None:
    """The old owner revokes the partition in the first round; the second round assigns it."""
    topics = ("orders", LOG)
    owner = joined("w0", actives={"orders": [0, 1], LOG: [0, 1]})
    fleet = fleet_of(topics, w0=owner, w1=joined("w1", standbys=copies))
    after, _, follows = fleet.round()
    data = after.workers["w1"].data
    promised = {LOG: [n for numbers in (data.promised.get(LOG, ()),) for n in numbers]}
    assert follows
    assert len(promised[LOG]) == 1
    assert data.on_disk == (promised if copies else {})


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_only_a_cooperative_member_holds_its_partitions_in_the_next_round(
    is_cooperative: bool,
) -> None:
    """An eager member has revoked its partitions before it joins."""
    data = JoinData("http://w0", generation=3, cooperative=is_cooperative, holds=is_cooperative)
    after, _, _ = fleet_of(w0=data).round()
    assert after.workers["w0"].data.holds is is_cooperative


def test_the_last_owner_of_a_partition_without_an_owner_is_remembered() -> None:
    """The topic's only subscriber w1 stopped; a later move of the topic starts from w1."""
    fleet = fleet_of(("orders", LOG), w0=joined("w0"))
    fleet = replace(fleet, owner={("news", 0): "w1", ("orders", 0): "w1"})
    after, _, _ = fleet.round()
    assert after.owner[("news", 0)] == "w1"
    assert after.owner[("orders", 0)] == "w0"


# -- events


def test_each_stop_of_a_roll_begins_with_the_group_after_the_last_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dynamic member then has a new member id."""
    fleet = fleet_of(w0=joined("w0"), w1=joined("w1"), w2=joined("w2", instance_id="w2"))
    seen: list[dict[str, str]] = []

    def event(after: Fleet, event: str, stopped: Collection[str]) -> tuple[Played, Fleet]:
        seen.append({name: worker.member_id for name, worker in sorted(after.workers.items())})
        return Played(event=event, stopped=tuple(stopped), is_crash=False), after

    monkeypatch.setattr(play_module, "_event", event)
    played = list(play(fleet, Question(kind="rolling"), list(fleet.workers)))
    assert [one.event for one in played] == [
        "w0 stops",
        "w0 is back",
        "w1 stops",
        "w1 is back",
        "w2 stops",
    ]
    assert seen[2] == {"w0": "w0-id-restarted", "w2": "w2-id"}
    assert seen[4] == {"w0": "w0-id-restarted", "w1": "w1-id-restarted"}


def test_copies_of_either_look_count_and_the_next_event_begins_with_the_settled_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A temporary warm-up copy needs room as well; an existing copy needs no new room."""

    def with_copies(*numbers: int) -> Fleet:
        return fleet_of(w0=joined("w0", standbys={LOG: list(numbers)}))

    now, then = with_copies(0, 1), with_copies(0, 2)
    monkeypatch.setattr(Fleet, "at_rest", lambda self: (now, (moved("a"),)))
    monkeypatch.setattr(Fleet, "settled", lambda self: (then, (moved("b"),)))
    played, after = _event(with_copies(0), "w1 stops", ["w1"])
    assert played.copied == {"w0": {(LOG, 1), (LOG, 2)}}
    assert ([one.to for one in played.moved], [one.to for one in played.later]) == (["a"], ["b"])
    assert after is then


# -- from a look


def test_settings_are_those_of_the_leader_and_of_the_first_worker_without_its_answer() -> None:
    """The leader's settings decide the next round."""

    def views(*names: str) -> Iterator[Any]:
        for name in names:
            yield SimpleNamespace(name=name, status=SimpleNamespace(settings={"of": name}))

    members = [SimpleNamespace(name=f"w{n}", is_leader=n == 1) for n in range(3)]
    status = cast(Any, SimpleNamespace(members=members))
    assert _settings(status, list(views("w2", "w0", "w1"))) == {"of": "w1"}
    assert _settings(status, list(views("w2", "w0"))) == {"of": "w0"}
    assert _settings(status, []) == {}


def test_a_look_gives_counts_in_any_order_of_the_ends_and_the_latest_generation() -> None:
    """Members may have answers of different rounds."""
    seen = evidence(at_rest())
    seen = replace(seen, ends=dict(sorted(seen.ends.items(), reverse=True)))
    views = views_of(seen)
    late = views[-1].member.given
    assert late is not None
    views = [
        *views[:-1],
        replace(views[-1], member=replace(views[-1].member, given=replace(late, generation=99))),
    ]
    fleet = _read_fleet(seen, views, build(seen))
    assert fleet.partitions["orders"] == 6
    assert fleet.generation == 99


def test_a_partition_without_an_end_offset_counts_as_a_partition_of_its_topic() -> None:
    """The highest number decides; the count of end offsets is lower if one is missing."""
    seen = evidence(at_rest())
    seen = replace(seen, ends={("orders", 5): 70, ("orders", 2): 10, (LOG, 0): 40, ("new", 0): 0})
    fleet = _read_fleet(seen, views_of(seen), build(seen))
    assert fleet.partitions == {"orders": 6, LOG: 1, "new": 1}


def test_a_member_joins_the_next_round_with_its_last_answer_instead_of_its_last_join() -> None:
    """The leave announcement, the former files and the round belong to the last join."""
    seen = evidence(at_rest())
    view = views_of(seen)[0]
    said, given = view.member.said, view.member.given
    assert said is not None
    assert given is not None
    said = replace(
        said,
        leaves=True,
        on_disk={LOG: [5]},
        holds=False,
        generation=1,
        among=3,
        group_ids={"old": 1},
        awaited={LOG: [4]},
        promised={LOG: [4]},
    )
    given = replace(
        given,
        generation=9,
        among=2,
        group_ids={"orders": 5},
        awaited={LOG: Runs.of([1])},
        promised={LOG: Runs.of([2])},
    )
    member = replace(view.member, said=said, given=given)
    worker = _read_worker(
        replace(view, member=member), {}, TableFacts(frozenset({LOG}), {}), seen.ends
    )
    stateless = _read_worker(
        replace(view, member=member), {}, TableFacts(frozenset(), {}), seen.ends
    )
    assert member.copies
    assert (stateless.data.standbys, stateless.positions) == ({}, {})
    assert worker.data == replace(
        said,
        actives=member.actives,
        standbys={t: runs for t, runs in member.copies.items() if t == LOG},
        on_disk={},
        leaves=False,
        holds=True,
        generation=9,
        among=2,
        group_ids={"orders": 5},
        awaited={LOG: Runs.of([1])},
        promised={LOG: Runs.of([2])},
    )


# -- pauses


def pause_of(
    played: Played, *, static: Sequence[str] = (), leave_s: str | None = "20", moves: int = 0
) -> float | None:
    """Return the pause of an event whose moves take 0.5 s; a restart takes 20 s."""
    settings = {} if leave_s is None else {"FAUST_ASSIGNER_LEAVE_S": leave_s}
    seen = cast(Any, SimpleNamespace(fleet=fleet_of(w0=joined("w0")), settings=settings))
    made = [cast(Any, SimpleNamespace(pause_s=0.5))] * moves
    return _longest_pause(seen, played, made, static, 60.0, Known(restart_s=20.0))[0]


def test_a_worker_that_joins_needs_no_hand_over_of_a_stopping_worker() -> None:
    """With FAUST_ASSIGNER_LEAVE_S=0 only a stop's pause is unknown."""
    join = Played(event="1 new worker joins", stopped=(), is_crash=False)
    assert pause_of(join, leave_s="0", moves=1) == 0.5
    assert pause_of(replace(join, stopped=("w1",)), leave_s="0", moves=1) is None
    assert pause_of(replace(join, stopped=("w1",)), moves=1) == 0.5
    assert pause_of(replace(join, stopped=("w1",)), leave_s=None, moves=1) == 0.5


def test_the_only_static_member_pauses_for_its_restart_although_no_task_moves() -> None:
    """The group has no second member to take over a task."""
    stop = Played(event="w0 stops", stopped=("w0",), is_crash=False)
    assert pause_of(stop, static=["w0"]) == 20.0
    assert pause_of(stop) == 0.0


def test_a_static_member_that_returns_as_its_session_ends_is_late() -> None:
    """The group has moved the member's tasks by then."""
    assert _static_pause(["w0"], 60.0, 0.5, "", 60.0)[0] == 60.5
    assert _static_pause(["w0"], 60.0, 0.5, "", 59.0)[0] == 59.0
