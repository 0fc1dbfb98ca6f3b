"""PartitionAssignor's queries: before the first assignment, by producers and by the router."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from faust.assignor.partition_assignor import PartitionAssignor as StockAssignor
from faust.exceptions import NotReady
from faust.types import TP

import faust_assigner
from faust_assigner.app import assignor as module
from faust_assigner.app.assignor import PartitionAssignor
from faust_assigner.app.host.group_member import kafka_generation, kafka_member_id
from faust_assigner.app.queries.places import partition_of
from faust_assigner.app.rebalance import leader, leading, member
from faust_assigner.app.rebalance.doubts import Record
from faust_assigner.app.rebalance.follow_up import Awaited
from faust_assigner.app.rebalance.leader_round import LeaderView, no_warmups
from faust_assigner.app.rebalance.member import Memory
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.settings.table import REPAIRS
from faust_assigner.wire.answer import Answer
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.runs import Runs
from tests.support.faust_group import make_app
from tests.support.shop import LOG, TOPICS, assignor_of, group


def test_before_its_first_round_a_member_claims_nothing() -> None:
    """Its flags are unset, and it has no generation."""
    app = make_app("http://w")
    assignor = faust_assigner.PartitionAssignor(app)
    assert assignor.replicas == 0
    flags = ("holds", "leaves", "cooperative", "stops_nobody", "is_unheard", "is_uniform")
    assert [name for name in flags if getattr(assignor, name)] == []
    assert (assignor.generation, assignor.decision_id) == (-1, "")
    assert (assignor.awaited.tps, assignor.awaited.follows) == (frozenset(), False)
    assert assignor.last_round is None


def consumer_at(**coordinator: Any) -> Any:
    """Return an app whose consumer has a coordinator with these attributes."""
    at = SimpleNamespace(_coordinator=SimpleNamespace(**coordinator))
    return SimpleNamespace(_consumer=SimpleNamespace(_thread=SimpleNamespace(_consumer=at)))


@pytest.mark.parametrize(
    ("generation", "known"), [(7, 7), (1, 1), (0, -1), (-1, -1), (None, -1), (True, -1)]
)
def test_the_generation_is_kafkas_from_the_first_round_on(generation: Any, known: int) -> None:
    """Any other value counts as no generation."""
    assert kafka_generation(consumer_at(generation=generation)) == known


def test_the_member_id_is_the_one_that_the_group_gave() -> None:
    """The id is empty before the join and without a consumer."""
    assert kafka_member_id(consumer_at(member_id="w1-abc")) == "w1-abc"
    assert kafka_member_id(consumer_at(member_id=None)) == ""
    without = SimpleNamespace(_consumer=None)
    assert (kafka_member_id(without), kafka_generation(without)) == ("", -1)


def producing(key_partition: Any, of_consumer: Any = None) -> Any:
    """Return an app whose producer and consumer use these partitioners."""
    app = make_app("http://w")
    app.producer = Mock(key_partition=Mock(side_effect=key_partition))
    app._consumer = Mock(key_partition=Mock(side_effect=of_consumer))
    return app


def test_a_key_is_where_the_producer_puts_it() -> None:
    """The result is Faust's TP."""
    found = partition_of(producing(lambda topic, key: (topic, len(key))), "orders", b"abc")
    assert found == TP("orders", 3)
    assert isinstance(found, TP)


@pytest.mark.parametrize("number", [5, 0])
def test_the_consumer_places_a_key_of_a_topic_that_the_producer_has_not_asked_about(
    number: int,
) -> None:
    """aiokafka's producer raises a TypeError for such a topic."""
    app = producing(TypeError, lambda topic, key: number)
    assert partition_of(app, "orders", b"k") == TP("orders", number)


@pytest.mark.parametrize(
    ("of_producer", "of_consumer"),
    [
        (NotReady, AssertionError),
        (lambda *_: None, AssertionError),
        (TypeError, lambda *_: None),
    ],
)
def test_a_key_whose_place_is_not_known_is_a_key_error(of_producer: Any, of_consumer: Any) -> None:
    """The router then answers 503."""
    with pytest.raises(KeyError, match="orders"):
        partition_of(producing(of_producer, of_consumer), "orders", b"k")


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


# -- answers and rounds that fail in part


def answered(**fields: Any) -> Any:
    """Return a decoder that returns this answer."""
    return lambda user_data: Answer(**{"actives": {}, "standbys": {}, **fields})


@pytest.mark.parametrize("among", [0, 1, 3])
def test_a_second_round_follows_an_answer_that_says_among_how_many(
    monkeypatch: pytest.MonkeyPatch, among: int
) -> None:
    """The second answer names the remaining standbys, and the member waits for them."""
    assignor = assignor_of(group(1))
    awaited = {LOG: Runs.of([1, 2])}
    answering = answered(among=among, awaited=awaited, standbys=awaited)
    for one in (module, member):
        monkeypatch.setattr(one, "decode_answer", answering)
    answer = ConsumerProtocolMemberAssignment(4, [(LOG, [1, 2])], b"")
    assert assignor.is_followed(answer) == (among > 0)
    assignor.on_assignment(answer)
    assert assignor.awaited.follows == (among > 0)
    assert assignor.awaited.tps == {TP(LOG, 1), TP(LOG, 2)}


def test_an_answer_that_cannot_be_read_is_followed_by_no_round() -> None:
    """Else the member would join again at once, for ever."""
    assignor = assignor_of(group(1))
    assert not assignor.is_followed(ConsumerProtocolMemberAssignment(4, [], b"noise"))


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


def test_a_join_that_cannot_be_encoded_is_one_of_a_new_member(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each failure is counted; an earlier look at the files neither raises nor counts."""
    assignor = assignor_of(group(1))
    monkeypatch.setattr(module, "said_by", Mock(side_effect=ZeroDivisionError))
    assignor.look_at_files(TOPICS)
    assert assignor.counters["metadata_failures"] == 0
    for _ in range(2):
        joins = assignor.metadata(sorted(TOPICS, reverse=True))
        assert (joins.version, joins.subscription) == (4, sorted(TOPICS))
    assert assignor.counters["metadata_failures"] == 2
    assert "joining as a new member" in caplog.text


@pytest.mark.parametrize("broken", ["start_span", "tags", "set_tag"])
def test_a_tracer_that_fails_costs_no_answer(broken: str) -> None:
    """Any call may fail; a started span is closed nevertheless."""
    found = group(1)
    app = found.apps["m0"]
    app.tracer, app._span_add_default_tags = MagicMock(name="tracer"), Mock()
    start = app.tracer.get_tracer.return_value.start_span
    span = start.return_value
    failing = {"start_span": start, "tags": app._span_add_default_tags, "set_tag": span.set_tag}
    failing[broken].side_effect = ZeroDivisionError
    found.rebalance()
    assert len(found.actives("orders")) == 6
    assert span.__exit__.call_count == (broken != "start_span")


def test_a_span_has_the_members_and_what_they_were_given() -> None:
    """The span equals stock's."""
    found = group(2)
    app = found.apps["m0"]
    app.tracer, app._span_add_default_tags = MagicMock(name="tracer"), Mock()
    found.rebalance("m0")
    span = app.tracer.get_tracer.return_value.start_span.return_value
    app._span_add_default_tags.assert_called_once_with(span)
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
    monkeypatch.setattr(module.findings, "say", Mock(side_effect=ZeroDivisionError))
    monkeypatch.setattr(module.findings, "taken", Mock(side_effect=ZeroDivisionError))
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


@pytest.mark.parametrize(("repairs", "lines"), [("1", 1), ("0", 0)])
def test_a_missing_fixup_is_a_warning_unless_the_repairs_are_switched_off(
    repairs: str, lines: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The app chose Faust's assignor, so it has no fixup; two assignors log a single line."""
    monkeypatch.setenv(REPAIRS.name, repairs)
    app = make_app("http://w", assignor=StockAssignor, broker="kafka://127.0.0.1:1")
    for _ in range(2):
        faust_assigner.PartitionAssignor(app)
    assert caplog.text.count("the app was not repaired; install faust_assigner with pip") == lines


def test_weights_that_fail_are_counted_at_each_round() -> None:
    """All partitions then weigh the same."""
    found = group(1)
    assignor_of(found).weights_provider = Mock(side_effect=ZeroDivisionError)
    for _ in range(2):
        found.rebalance()
    assert assignor_of(found).counters["weights_failures"] == 2
    assert not assignor_of(found).last_round.inputs.weights  # type: ignore[union-attr]


# -- a whole view, a whole assignment and a whole decision


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
    assignor.replicas = 4
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
    )
    app._consumer = None


def test_the_view_of_a_leader_without_a_past_is_empty() -> None:
    """Before the first round all fields are empty; reads from copies are off by default."""
    view = make_app("http://w").assignor.leading._view()
    assert (view.last, view.last_generation, view.generation) == (Directory(), -1, -1)
    assert (view.record, view.before, view.first) == (Record(), None, None)
    assert (view.weights, view.held_up, view.names_standbys) == (None, {}, False)


def test_an_assignment_is_taken_over_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This covers roles, groups, awaited copies and the file; a topic may come in two parts."""
    app = make_app("http://w", tables=["totals"], datadir=str(tmp_path))
    Path(app.conf.appdir).mkdir(parents=True)
    assignor = app.assignor
    assignor.read_to, assignor.is_unheard = {TP(LOG, 1): 5}, True
    answer = answered(
        actives={"orders": Runs.of([0, 3]), LOG: Runs.of([0])},
        standbys={LOG: Runs.of([1, 2])},
        awaited={LOG: Runs.of([2, 4])},
        group_ids={"orders": 7, LOG: 9},
        generation=6,
        is_uniform=True,
        decision_id="d-1",
        url="http://w",
    )
    monkeypatch.setattr(member, "decode_answer", answer)
    assignor.on_assignment(
        ConsumerProtocolMemberAssignment(
            4, [("orders", [0]), (LOG, [0, 1, 2]), ("orders", [3])], b""
        )
    )
    actives = {TP("orders", 0), TP("orders", 3), TP(LOG, 0)}
    assert (assignor.assigned_actives(), assignor.assigned_standbys()) == (
        actives,
        {TP(LOG, 1), TP(LOG, 2)},
    )
    assert assignor.awaited == Awaited(6, frozenset({TP(LOG, 2)}), {"orders": 7, LOG: 9})
    assert (assignor.generation, assignor.is_uniform, assignor.decision_id) == (6, True, "d-1")
    assert (assignor.group_for_topic("orders"), assignor.group_for_topic(LOG)) == (7, 9)
    assert (assignor.read_to, assignor.is_unheard, dict(assignor.counters)) == ({}, False, {})
    former = PartitionAssignor(app)._memory_file.former()
    assert (former.generation, former.offers) == (6, {})
    assert {t: list(n) for t, n in former.actives.items()} == {"orders": [0, 3], LOG: [0]}
    for taken in (assignor.assigned_actives(), assignor.assigned_standbys()):
        taken.clear()
    assert assignor.assigned_actives() == actives, "a caller gets a set of its own"


def test_a_worker_that_stops_remembers_no_further_assignment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a joint stop the worker has these partitions for a moment only."""
    app = make_app("http://w", datadir=str(tmp_path))
    Path(app.conf.appdir).mkdir(parents=True)
    for generation in (6, 7):
        answer = answered(actives={"orders": Runs.of([generation])}, generation=generation)
        monkeypatch.setattr(member, "decode_answer", answer)
        app.assignor.on_assignment(
            ConsumerProtocolMemberAssignment(4, [("orders", [generation])], b"")
        )
        app._stopped.set()
    assert app.assignor.assigned_actives() == {TP("orders", 7)}
    former = PartitionAssignor(app)._memory_file.former()
    assert (former.generation, list(former.actives["orders"])) == (6, [6])


def test_the_rows_of_one_table_are_found_by_worker() -> None:
    """A worker without partitions of the table is listed without any; other tables are left out."""
    assignor = make_app("http://w").assignor
    by_url = {"http://a": {LOG: [0], "other": [1]}, "http://b": {"other": [0]}}
    assignor._memory = Mock(changelog_distribution=by_url)
    assert assignor.table_metadata(LOG) == {"http://a": {LOG: [0]}, "http://b": {}}
    assert assignor.tables_metadata() is by_url


def test_a_member_says_what_it_does_and_what_took_too_long() -> None:
    """Overdue copies are listed by topic; ``joined_with`` lasts until a failed encoding."""
    assignor = assignor_of(group(2))
    assignor.overdue = frozenset({TP(LOG, 3), TP(LOG, 1)})
    assignor.cooperative = True
    assignor.metadata(TOPICS)
    said = assignor.joined_with
    assert said is not None
    assert (said.overdue, said.cooperative, said.holds) == ({LOG: [1, 3]}, True, False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "said_by", Mock(side_effect=ZeroDivisionError))
        assignor.metadata(TOPICS)
    assert assignor.joined_with is None


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
