"""The leader's view, its reports, and parts of a round that fail; owners as members know them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from faust.types import TP
from yarl import URL

from faust_assigner.app import assignor as module
from faust_assigner.app.rebalance import leader, leading, member
from faust_assigner.app.rebalance.doubts import Record
from faust_assigner.app.rebalance.leader_round import LeaderView, no_warmups
from faust_assigner.app.rebalance.member import Memory
from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.wire.answer import Answer
from faust_assigner.wire.directory import Directory
from tests.support.faust_group import make_app
from tests.support.shop import LOG, assignor_of, group
from tests.unit.app.host.test_group_member import consumer_at


@pytest.mark.parametrize("broken", ["start_span", "set_tag"])
def test_a_tracer_that_fails_costs_no_answer(broken: str) -> None:
    """Any call may fail; a started span is closed nevertheless."""
    found = group(1)
    app = found.apps["m0"]
    app.tracer = MagicMock(name="tracer")
    start = app.tracer.get_tracer.return_value.start_span
    span = start.return_value
    failing = {"start_span": start, "set_tag": span.set_tag}
    failing[broken].side_effect = ZeroDivisionError
    found.rebalance()
    assert len(found.actives("orders")) == 6
    assert span.__exit__.call_count == (broken != "start_span")


def test_a_span_has_the_members_and_what_they_were_given() -> None:
    """The span equals stock's."""
    found = group(2)
    app = found.apps["m0"]
    app.tracer = MagicMock(name="tracer")
    found.rebalance("m0")
    span = app.tracer.get_tracer.return_value.start_span.return_value
    tags = dict(call.args for call in span.set_tag.call_args_list)
    assert (tags["faust_app"], tags["faust_id"]) == (app.conf.name, app.conf.id)
    ((name, given), _) = span.set_tag.call_args
    assert (name, given.keys()) == ("assignment", found.apps.keys())
    assert [dict(given[m])["orders"] for m in ("m0", "m1")] == [
        sorted(
            tp.partition for tp in found.apps[m].assignor.assigned_actives() if tp.topic == "orders"
        )
        for m in ("m0", "m1")
    ]


def test_a_report_that_fails_hides_no_round_from_the_sensors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """This holds for the leader and for a member."""
    found = group(1)
    sensor = MagicMock(name="sensor")
    found.apps["m0"].sensors.add(sensor)
    monkeypatch.setattr(module.findings, "log_round", Mock(side_effect=ZeroDivisionError))
    monkeypatch.setattr(module.findings, "own_assignment_line", Mock(side_effect=ZeroDivisionError))
    found.rebalance()
    assert "Could not report the round" in caplog.text
    assert "Could not report the assignment" in caplog.text
    sensor.on_assignment_completed.assert_called_once()


def test_a_plan_that_failed_is_an_error_for_the_sensors_and_no_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Observers get plans only; the sensors get the planner's error."""
    found = group(1)
    sensor, told = MagicMock(name="sensor"), list[Any]()
    found.apps["m0"].sensors.add(sensor)
    assignor_of(found).on_decision(lambda *decision: told.append(decision))
    monkeypatch.setattr(leader, "plan", Mock(side_effect=ZeroDivisionError))
    found.rebalance()
    assignor_of(found).decisions.join()
    assert told == []
    state = sensor.on_assignment_start.return_value
    assert sensor.on_assignment_error.call_args.args[:2] == (assignor_of(found), state)


def test_weights_that_fail_are_counted_at_each_round() -> None:
    """All partitions then weigh the same."""
    found = group(1)
    assignor_of(found).weights_provider = Mock(side_effect=ZeroDivisionError)
    for _ in range(2):
        found.rebalance()
    assert assignor_of(found).counters["weights_failures"] == 2
    assert not assignor_of(found).last_round.inputs.weights  # type: ignore[union-attr]


def test_a_leaders_view_has_all_that_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each from its own place; its warm-up policy is asked with whether all are cooperative."""
    found = group(2, faust_assigner_group_record_bytes=70_000, faust_assigner_stale_reads_s=5)
    found.rebalance("m0")
    app, assignor = found.apps["m0"], assignor_of(found)
    assert assignor.last_round is not None
    app._consumer = consumer_at(generation=12, member_id="m0-abc")._consumer
    asked: list[Any] = []
    monkeypatch.setattr(leading, "policy_of", lambda app, is_so: asked.append((app, is_so)))
    monkeypatch.setattr(leading.time, "time", lambda: 1234.5)
    assignor.weights_provider, assignor.leading._held_up = lambda: "weights", {"m9": 3}
    assignor.replicas, assignor.stops_nobody = 4, True
    view = assignor.leading._view()
    view.warmups(True)
    assert asked == [(app, True)]
    assert replace(view, warmups=no_warmups) == LeaderView(
        "shop",
        TableFacts(frozenset({LOG})),
        4,
        12,
        assignor._memory.directory,
        1,
        "weights",
        70_000,
        names_standbys=True,
        held_up={"m9": 3},
        record=assignor.last_round.record,
        before=assignor.last_round.inputs,
        member_id="m0-abc",
        now=1234.5,
        is_cooperative=True,
    )
    app._consumer = None


def test_the_view_of_a_leader_without_a_past_is_empty() -> None:
    """Before the first round all fields are empty; reads from copies are off by default."""
    view = make_app("http://w").assignor.leading._view()
    assert (view.last, view.last_generation, view.generation) == (Directory(), -1, -1)
    assert (view.record, view.before, view.first) == (Record(), None, None)
    assert (view.weights, view.held_up, view.names_standbys) == (None, {}, False)


def test_a_round_that_fails_as_a_whole_is_dealt_and_told_as_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Members still get partitions; the counts of delays and the last round stay."""
    caplog.set_level("INFO")
    found = group(3)
    assignor, sensor = assignor_of(found), MagicMock(name="sensor")
    found.apps["m0"].sensors.add(sensor)
    error, last = ZeroDivisionError("a bug"), assignor.last_round
    assignor.leading._held_up = {"m1": 2}
    monkeypatch.setattr(leading, "decide", Mock(side_effect=error))
    for _ in range(2):
        found.rebalance("m0")
    assert sorted(found.actives("orders")) == list(range(6))
    assert all(len(members) == 1 for members in found.standbys(LOG).values())
    state = sensor.on_assignment_start.return_value
    assert sensor.on_assignment_error.call_args.args == (assignor, state, error)
    assert sensor.on_assignment_completed.call_count == 0
    assert (assignor.counters["fallbacks"], assignor.leading._held_up) == (2, {"m1": 2})
    assert assignor.last_round is last
    assert "3 members, partitions assigned without regard" in caplog.text


def test_sensors_that_fail_are_counted_and_change_no_answer() -> None:
    """Each hook of each round counts."""
    found = group(2)
    sensor = MagicMock(name="sensor")
    sensor.on_assignment_start.side_effect = ZeroDivisionError
    sensor.on_assignment_completed.side_effect = ZeroDivisionError
    found.apps["m0"].sensors.add(sensor)
    for _ in range(2):
        found.rebalance("m0")
    assert assignor_of(found).counters["sensor_failures"] == 4
    assert sorted(found.actives("orders")) == list(range(6))


def test_a_decision_is_told_to_the_observers_with_its_plan() -> None:
    """Only rounds led by this member are reported."""
    found = group(2)
    told: list[Any] = []
    assignor_of(found).on_decision(lambda *decision: told.append(decision))
    found.rebalance("m0")
    assignor_of(found).decisions.join()
    last = assignor_of(found).last_round
    assert last is not None
    assert told == [(last.inputs, last.plan)]
    found.rebalance("m1")
    assignor_of(found).decisions.join()
    assert len(told) == 1


def test_the_rounds_that_members_delayed_are_counted_from_round_to_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next view starts with the last decision's counts."""
    found = group(2)
    assignor = assignor_of(found)
    last = assignor.last_round
    assert last is not None
    views: list[Any] = []

    def decided(view: LeaderView, *_: Any) -> Any:
        views.append(dict(view.held_up))
        return replace(last, held_up={"m1": len(views)})

    monkeypatch.setattr(leading, "decide", decided)
    for _ in range(3):
        found.rebalance("m0")
    assert views == [{}, {"m1": 1}, {"m1": 2}]


def test_owners_are_found_in_the_directory_or_in_the_lists_of_a_stock_leader() -> None:
    """Tables are changelogs, sources are other topics."""
    assignor = make_app("http://w").assignor
    answer = Answer(
        {},
        {},
        changelog_distribution={"http://a": {LOG: [0]}, "http://b": {LOG: [1, 2], "other": [0]}},
    )
    assignor._memory = Memory(answer)
    assert str(assignor.owner_of(TP(LOG, 2))) == "http://b"
    assert str(assignor.owner_of(TP(LOG, 0))) == "http://a"
    with pytest.raises(KeyError):
        assignor.owner_of(TP(LOG, 3))
    found = assignor_of(group(2))
    for owner, topics in found.tables_metadata().items():
        for partition in topics[LOG]:
            assert str(found.owner_of(TP(LOG, partition))) == owner
    with pytest.raises(KeyError):
        found.owner_of(TP("orders", 0))


def answered(**fields: Any) -> Any:
    """Return a decoder that returns this answer."""
    return lambda user_data: Answer(**{"actives": {}, "standbys": {}, **fields})


@pytest.mark.parametrize(
    ("url", "is_foreign"), [("http://w", False), ("http://x", True), ("", False)]
)
def test_a_member_that_the_leader_knows_by_another_url_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, url: str, is_foreign: bool
) -> None:
    """Requests are routed to the other URL; each such answer is counted."""
    assignor = make_app("http://w").assignor
    monkeypatch.setattr(member, "decode_answer", answered(url=url))
    for _ in range(2):
        assignor.on_assignment(ConsumerProtocolMemberAssignment(4, [], b""))
    assert assignor.counters["foreign_urls"] == 2 * is_foreign
    assert ("the leader routes requests to http://x" in caplog.text) == is_foreign


def test_the_copies_of_a_partition_are_of_members_that_have_a_url() -> None:
    """A member whose metadata was refused has none, and answers no requests."""
    nobody = -1
    memory = Memory()
    vars(memory)["directory"] = Directory(
        ("http://a", "", "http://c", "http://d"),
        {LOG: np.array([0, 1, 2]), "orders": np.array([0, 1, 2])},
        (),
        frozenset({LOG}),
        frozenset(),
        {LOG: (np.array([1, 3, nobody]), np.array([2, 0, nobody]), np.array([3, nobody, 1]))},
    )
    assert memory.standbys_of(TP(LOG, 0)) == (URL("http://c"), URL("http://d"))
    assert memory.standbys_of(TP(LOG, 1)) == (URL("http://d"), URL("http://a"))
    assert memory.standbys_of(TP(LOG, 2)) == ()
    assert memory.standbys_of(TP("orders", 0)) == ()
    assert memory.owner_of(TP(LOG, 2), of_tables=True) == URL("http://c")
    assert memory.owner_of(TP("orders", 0), of_tables=False) == URL("http://a")
    for tp, of_tables in ((TP(LOG, 0), False), (TP("orders", 0), True), (TP(LOG, 3), True)):
        with pytest.raises(KeyError):
            memory.owner_of(tp, of_tables=of_tables)


@pytest.mark.parametrize("fails", [False, True])
def test_the_planner_gets_each_input_of_a_decision(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """After a failure the partitions are dealt with the same inputs, and the error is kept."""
    asked: list[Any] = []
    error = ZeroDivisionError("a bug")

    def plan(*args: Any, **options: Any) -> str:
        asked.append((args, options))
        if fails:
            raise error
        return "a plan"

    def dealt(*args: Any, **options: Any) -> str:
        asked.append((args, options))
        return "dealt"

    monkeypatch.setattr(leader, "plan", plan)
    monkeypatch.setattr(leader, "landed", lambda found, said: (found, said))
    monkeypatch.setattr(leader, "placement_of_plan", lambda found: ("placed", found))
    monkeypatch.setattr(leader, "dealt", dealt)
    members: Any = ("m0", "m1")
    inputs = DecisionInputs(
        "shop",
        4,
        members,
        {"orders": 4, "log": 4},
        2,
        frozenset({"log"}),
        "weights",
        {"orders": 7},
        weightless=frozenset({"leads"}),
        warmups=None,
    )
    alike = {"replicas": 2, "changelogs": frozenset({"log"}), "previous_ids": {"orders": 7}}
    more = {"weightless": frozenset({"leads"}), "weights": "weights", "warmups": None}
    planned = ((members, {"orders": 4, "log": 4}), alike | more)
    if fails:
        assert leader._plan_or_round_robin(inputs, "said") == (None, "dealt", error)  # type: ignore[arg-type]
        assert asked == [planned, (planned[0], alike)]
    else:
        found = ("a plan", "said")
        assert leader._plan_or_round_robin(inputs, "said") == (found, ("placed", found), None)  # type: ignore[arg-type,comparison-overlap]
        assert asked == [planned]
    asked.clear()
    fails = False
    assert leader._plan_members(replace(inputs, warmups="policy"), ["others"]) == "a plan"  # type: ignore[arg-type,comparison-overlap]
    assert asked == [((["others"], inputs.partitions), alike | more | {"warmups": "policy"})]
