"""PartitionAssignor: Faust's contract, method by method."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import faust
import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from faust.types import TP

import faust_assigner
from faust_assigner.app.assignor import kafka_generation
from faust_assigner.app.round import leader
from faust_assigner.planner import Plan
from faust_assigner.wire.join import decode_join
from tests.support.faust_group import PartitionAssignor, WireGroup, cluster_of, make_app
from tests.unit.app.restore.test_disk import rocksdb_app, write

LOG = "shop-totals-changelog"
TOPICS = {"orders": 6, LOG: 6, "shop-__assignor-__leader": 1}


def group(members: int = 3, partitions: dict[str, int] | None = None, **options: Any) -> WireGroup:
    """``members`` apps with one table, joined once."""
    found = WireGroup(partitions or TOPICS)
    for i in range(members):
        found.add(f"m{i}", make_app(f"http://w{i}:6066", tables=["totals"], **options), found.partitions)
    found.rebalance()
    return found


def assignor_of(found: WireGroup, member: str = "m0") -> PartitionAssignor:
    """One member's assignor."""
    assignor: PartitionAssignor = found.apps[member].assignor
    return assignor


def said(found: WireGroup, member: str) -> Any:
    """What a member said at the last rebalance."""
    metadata = ConsumerProtocolMemberMetadata.decode(found.joined[member])
    return decode_join(metadata.user_data, metadata.subscription)


def test_faust_finds_the_class_by_its_name() -> None:
    """The one line of an app: the setting, and nothing else."""
    app = faust.App("x", PartitionAssignor="faust_assigner:PartitionAssignor", table_standby_replicas=2)
    assert isinstance(app.assignor, faust_assigner.PartitionAssignor)
    assert (app.assignor.name, app.assignor.version, app.assignor.replicas) == ("faust", 4, 2)


def test_roles_as_tables_and_producers_ask_for_them() -> None:
    """Actives and standbys are sets of TP, disjoint, and single questions agree with them."""
    found = group()
    for app in found.apps.values():
        actives, standbys = app.assignor.assigned_actives(), app.assignor.assigned_standbys()
        assert all(isinstance(tp, TP) for tp in actives | standbys)
        assert not actives & standbys
        assert {tp.topic for tp in standbys} == {LOG}
        assert all(app.assignor.is_active(tp) and not app.assignor.is_standby(tp) for tp in actives)
        assert all(app.assignor.is_standby(tp) and not app.assignor.is_active(tp) for tp in standbys)
    assert found.actives("orders") == found.actives(LOG)
    assert all(len(members) == 1 for members in found.standbys(LOG).values())


def test_the_leader_topic_is_an_ordinary_topic() -> None:
    """Exactly one member leads timers."""
    assert len(group().actives("shop-__assignor-__leader")) == 1


def test_nobody_asks_before_the_first_assignment() -> None:
    """A fresh assignor has no partitions, no groups and no owners to route to."""
    assignor = make_app("http://w", tables=["totals"]).assignor
    assert assignor.assigned_actives() == assignor.assigned_standbys() == set()
    assert assignor.tables_metadata() == assignor.external_topics_metadata() == {}
    with pytest.raises(KeyError):
        assignor.group_for_topic("orders")


def test_the_router_finds_every_owner() -> None:
    """Tables by their changelogs, topics by themselves; the same on every member."""
    found = group()
    urls = {m: f"http://w{m[1:]}:6066" for m in found.apps}
    for m, app in found.apps.items():
        assignor = app.assignor
        tables, topics = assignor.tables_metadata(), assignor.external_topics_metadata()
        for owner, url in urls.items():
            held = found.apps[owner].assignor.assigned_actives()
            assert tables[url][LOG] == sorted(tp.partition for tp in held if tp.topic == LOG)
            assert topics[url]["orders"] == sorted(tp.partition for tp in held if tp.topic == "orders")
        assert assignor.table_metadata(LOG) == tables
        for partition, owner in found.actives(LOG).items():
            app.producer = Mock(key_partition=lambda topic, key, p=partition: TP(topic, p))
            assert str(assignor.key_store(LOG, b"k")) == urls[owner], m
            assert str(assignor.external_key_store("orders", b"k")) == urls[owner]
            with pytest.raises(KeyError):
                assignor.key_store("orders", b"k")
            with pytest.raises(KeyError):
                assignor.external_key_store(LOG, b"k")


def test_fausts_own_router_works_on_it() -> None:
    """app.router asks by table name and by topic, as web views do."""
    found = group()
    app = found.apps["m1"]
    app.producer = Mock(key_partition=lambda topic, key: TP(topic, 2))
    assert str(app.router.key_store("totals", "key")) == f"http://w{found.actives(LOG)[2][1:]}:6066"
    assert app.router.tables_metadata() == app.assignor.tables_metadata()
    assert app.router.external_topics_metadata() == app.assignor.external_topics_metadata()


def test_members_that_share_a_url_keep_their_partitions(caplog: pytest.LogCaptureFixture) -> None:
    """Stock forgets all but one of them; we merge, say so and count it."""
    found = WireGroup(TOPICS)
    for m in ("m0", "m1"):
        found.add(m, make_app("http://same:6066", tables=["totals"]), found.partitions)
    found.rebalance()
    assert assignor_of(found).tables_metadata() == {"http://same:6066": {LOG: [0, 1, 2, 3, 4, 5]}}
    assert assignor_of(found).counters["duplicate_urls"] == 1
    assert "http://same:6066" in caplog.text


def test_group_ids_stay_when_topics_come(caplog: pytest.LogCaptureFixture) -> None:
    """Transactional ids are built from them: a new topic renumbers nothing, also under a new leader."""
    found = group()
    before = {t: assignor_of(found).group_for_topic(t) for t in TOPICS}
    assert before["orders"] == before[LOG] != before["shop-__assignor-__leader"]
    found.partitions["a-first-one"] = 3
    for m in found.topics:
        found.topics[m].add("a-first-one")
    found.rebalance("m2")
    assert {t: assignor_of(found).group_for_topic(t) for t in TOPICS} == before
    assert assignor_of(found).group_for_topic("a-first-one") not in before.values()


def test_group_ids_outlive_their_topics_and_unreadable_answers() -> None:
    """A producer ends the transactions of what was revoked after the new assignment has come."""
    found = group()
    clicks = {m: app.assignor.group_for_topic("orders") for m, app in found.apps.items()}
    for m in found.topics:
        found.topics[m] = {LOG}
    found.rebalance()
    assert {m: app.assignor.group_for_topic("orders") for m, app in found.apps.items()} == clicks
    assignor_of(found).on_assignment(Mock(assignment=[(LOG, [0])], user_data=b"noise"))
    assert assignor_of(found).group_for_topic(LOG) == clicks["m0"]
    found.topics["m0"] = set(TOPICS)
    found.rebalance("m0")
    assert said(found, "m0").group_ids["orders"] == clicks["m0"]


def test_a_global_table_is_everywhere() -> None:
    """Every member recovers all of it; standbys are what it does not write itself."""
    for flags, full in (({}, False), ({"use_partitioner": True}, True),
                        ({"synchronize_all_active_partitions": True}, True)):
        found = WireGroup({"orders": 4, "shop-rates-changelog": 4})
        for i in range(2):
            found.add(f"m{i}", make_app(f"http://w{i}", global_tables={"rates": flags}), found.partitions)
        found.rebalance()
        everything = {TP("shop-rates-changelog", p) for p in range(4)}
        for m, app in found.apps.items():
            own = {tp for tp in app.assignor.assigned_actives() if tp.topic == "orders"}
            mine = {TP("shop-rates-changelog", tp.partition) for tp in own}
            assert app.assignor.assigned_actives() - own == everything, m
            assert app.assignor.assigned_standbys() == (everything if full else everything - mine)


@pytest.mark.parametrize("flags", [{}, {"use_partitioner": True}])
def test_a_global_table_moves_nothing(flags: dict[str, bool]) -> None:
    """Its synthetic actives are no claims: rebalances without a change move no partition."""
    found = WireGroup({"orders": 9, "shop-rates-changelog": 9, "shop-names-changelog": 2})
    for i in range(3):
        app = make_app(f"http://w{i}", global_tables={"rates": flags, "names": flags})
        found.add(f"m{i}", app, found.partitions)
    found.rebalance()
    before = found.actives("orders")
    for leader_id in ("m2", "m1", "m0"):
        found.rebalance(leader_id)
        assert found.actives("orders") == before
        assert list(said(found, "m0").actives["shop-rates-changelog"]) == sorted(
            p for p, m in before.items() if m == "m0")


def test_a_global_table_whose_changelog_is_missing_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Stock raises KeyError here and the group hangs."""
    found = WireGroup({"orders": 4})
    app = make_app("http://w", global_tables={"rates": {}})
    found.add("m0", app, ["orders", "shop-rates-changelog"])
    found.rebalance()
    assert len(found.actives("orders")) == 4
    assert app.assignor.counters["missing_topics"] == 1
    assert "shop-rates-changelog" in caplog.text


def test_missing_and_shrunk_topics_are_said(caplog: pytest.LogCaptureFixture) -> None:
    """A topic that is not there is left out, one created anew with fewer partitions is cut."""
    found = group()
    found.partitions = {"orders": 3, LOG: 3, "shop-__assignor-__leader": 1}
    for m in found.topics:
        found.topics[m].add("nowhere")
    caplog.clear()
    found.rebalance()
    assert sorted(found.actives("orders")) == [0, 1, 2]
    counters = assignor_of(found).counters
    assert (counters["missing_topics"], counters["shrunk_topics"]) == (1, 2)
    assert "nowhere" in caplog.text
    assert f"{LOG} (" in caplog.text


def test_a_table_the_leader_does_not_know_keeps_its_standbys() -> None:
    """A rolling deploy adds a table: the old leader takes the new members' word for its changelog."""
    found = WireGroup({**TOPICS, "shop-new-changelog": 6})
    for i in range(2):
        found.add(f"old{i}", make_app(f"http://old{i}", tables=["totals"]), TOPICS)
    for i in range(2):
        app = make_app(f"http://new{i}", tables=["totals", "new"])
        found.add(f"new{i}", app, found.partitions)
    found.rebalance("old0")
    assert set(found.actives("shop-new-changelog").values()) == {"new0", "new1"}
    assert all(len(m) == 1 for m in found.standbys("shop-new-changelog").values())
    assert assignor_of(found, "old0").counters["unknown_tables"] == 1
    found.rebalance("new0")
    assert assignor_of(found, "new0").counters["unknown_tables"] == 0


def test_one_member_cannot_turn_anothers_source_into_a_changelog() -> None:
    """A topic is a changelog when all its subscribers say so."""
    found = WireGroup(TOPICS)
    found.add("m0", make_app("http://w0", tables=["totals"]), TOPICS)
    liar = make_app("http://w1", tables=["totals"])
    liar.Table("lie", changelog_topic=liar.topic("orders"))
    found.add("m1", liar, TOPICS)
    found.rebalance("m0")
    assert all(not members for members in found.standbys("orders").values())


def test_a_restarted_worker_claims_its_files_as_state(tmp_path: Path) -> None:
    """At its first join, as files; once it was assigned something, the assignment tells."""
    app = rocksdb_app(tmp_path, "totals")
    for partition in (1, 4):
        write(app, "totals", partition)
    found = WireGroup(TOPICS)
    found.add("m0", app, TOPICS)
    found.rebalance()
    assert said(found, "m0").on_disk.keys() == {LOG}
    assert list(said(found, "m0").on_disk[LOG]) == [1, 4]
    assert said(found, "m0").actives == {}
    found.rebalance()
    assert said(found, "m0").on_disk == {}


def test_files_decide_which_tasks_come_back(tmp_path: Path) -> None:
    """Of the tasks that must move to a restarted worker, those whose files it holds come first."""
    found = group(2)
    before = found.actives(LOG)
    app = rocksdb_app(tmp_path, "totals", replicas=1)
    app.conf.canonical_url = "http://w9:6066"
    files = [min(p for p, m in before.items() if m == "m0"), max(p for p, m in before.items() if m == "m1")]
    for partition in files:
        write(app, "totals", partition)
    found.add("m9", app, TOPICS)
    found.rebalance("m0")
    assert sorted(p for p, m in found.actives(LOG).items() if m == "m9") == sorted(files)


def test_a_static_member_keeps_its_partitions_over_a_restart() -> None:
    """It comes back with another member id and without memory; its instance id is enough."""
    found = WireGroup(TOPICS)
    for i in range(3):
        app = make_app(f"http://w{i}", tables=["totals"], consumer_group_instance_id=f"worker-{i}")
        found.add(f"m{i}", app, TOPICS)
    found.rebalance()
    before, standbys = found.actives(LOG), found.standbys(LOG)
    found.remove("m1")
    app = make_app("http://w1", tables=["totals"], consumer_group_instance_id="worker-1")
    found.add("zz-another-id", app, TOPICS)
    found.rebalance("m2")
    assert said(found, "zz-another-id").instance_id == "worker-1"
    after = {p: "m1" if m == "zz-another-id" else m for p, m in found.actives(LOG).items()}
    assert after == before
    unmoved = {p: {m for m in members if m != "m1"} for p, members in standbys.items()}
    assert all(members <= found.standbys(LOG)[p] for p, members in unmoved.items())


def test_a_static_member_whose_partitions_were_taken_over_does_not_get_them_back_by_name() -> None:
    """Once the session was over and others own them, the newer claim wins."""
    found = WireGroup(TOPICS)
    for i in range(3):
        app = make_app(f"http://w{i}", tables=["totals"], consumer_group_instance_id=f"worker-{i}")
        found.add(f"m{i}", app, TOPICS)
    found.rebalance()
    found.remove("m1")
    found.rebalance("m0")
    before = found.actives(LOG)
    back = make_app("http://w1", tables=["totals"], consumer_group_instance_id="worker-1")
    found.add("m1b", back, TOPICS)
    found.rebalance("m0")
    after = found.actives(LOG)
    moved = [p for p in before if after[p] != before[p]]
    assert len(moved) == 2
    assert all(after[p] == "m1b" for p in moved)


def test_rack_and_capacity_come_from_keywords_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keyword before environment; a wrong value is said and the default taken."""
    found = WireGroup(TOPICS)
    found.add("m0", make_app("http://a", faust_assigner_rack="r1", faust_assigner_capacity=2), TOPICS)
    found.add("m1", make_app("http://b", faust_assigner_capacity="none"), TOPICS)
    found.rebalance()
    assert (said(found, "m0").rack_id, said(found, "m0").capacity) == ("r1", 2.0)
    assert (said(found, "m1").rack_id, said(found, "m1").capacity) == (None, 1.0)
    assert len([m for m in found.actives("orders").values() if m == "m0"]) == 4
    monkeypatch.setenv("FAUST_ASSIGNER_RACK", "r2")
    found.add("m2", make_app("http://c", env={"FAUST_ASSIGNER_RACK": "r3"}), TOPICS)
    found.rebalance()
    assert said(found, "m2").rack_id == "r3"
    assert said(found, "m1").rack_id == "r2"
    assert said(found, "m0").rack_id == "r1"


def test_generation_is_kafkas_where_the_consumer_knows_it() -> None:
    """aiokafka gives no generation to metadata(); the coordinator behind the app's consumer has it."""
    found = group(1)
    app = found.apps["m0"]
    assert kafka_generation(app) == -1
    app._consumer = Mock(_thread=Mock(_consumer=Mock(_coordinator=Mock(generation=17))))
    found.rebalance()
    assert app.assignor.last_round.inputs.generation == 17
    found.rebalance()
    assert said(found, "m0").generation == 17


def test_without_kafkas_generation_a_logical_clock_counts() -> None:
    """One more than the highest any member claims."""
    found = group(2)
    first = said(found, "m0").generation
    for _ in range(3):
        found.rebalance()
    assert (first, said(found, "m0").generation, said(found, "m1").generation) == (-1, 2, 2)


def test_sensors_see_every_round() -> None:
    """Start and completion with the state in between; an error when the planner fails."""
    found = group(2)
    sensor = MagicMock(name="sensor")
    found.apps["m0"].sensors.add(sensor)
    found.rebalance("m0")
    sensor.on_assignment_start.assert_called_once_with(assignor_of(found))
    state = sensor.on_assignment_start.return_value
    sensor.on_assignment_completed.assert_called_once_with(assignor_of(found), state)
    sensor.on_assignment_error.assert_not_called()


def test_a_tracer_gets_a_span_like_stocks() -> None:
    """Operation, host name, default tags and the assignment."""
    found = group(2)
    tracer = MagicMock(name="tracer")
    found.apps["m0"].tracer = tracer
    found.apps["m0"]._span_add_default_tags = Mock()
    found.rebalance("m0")
    (call,) = tracer.get_tracer.return_value.start_span.call_args_list
    assert call.kwargs["operation_name"] == "coordinator_assignment"
    span = tracer.get_tracer.return_value.start_span.return_value
    span.set_tag.assert_called_once()


def broken(*_: Any, **__: Any) -> Any:
    """Raises what nobody expects."""
    raise ZeroDivisionError("broken on purpose")


def test_a_failing_planner_costs_stickiness_and_nothing_else(monkeypatch: pytest.MonkeyPatch,
                                                             caplog: pytest.LogCaptureFixture) -> None:
    """Every partition is dealt out, with standbys; said, counted, and told to the sensors as an error."""
    found = group(3)
    monkeypatch.setattr(leader, "plan", broken)
    sensor = MagicMock(name="sensor")
    found.apps["m0"].sensors.add(sensor)
    found.rebalance("m0")
    assert sorted(found.actives("orders")) == list(range(6))
    assert found.actives("orders") == found.actives(LOG)
    assert all(len(m) == 1 for m in found.standbys(LOG).values())
    assert assignor_of(found).counters["fallbacks"] == 1
    assert "broken on purpose" in caplog.text
    assert isinstance(sensor.on_assignment_error.call_args.args[2], ZeroDivisionError)
    sensor.on_assignment_completed.assert_not_called()


@pytest.mark.parametrize("name", ["read_members", "agreed", "claims_of", "directory_of", "AnswerWriter"])
def test_whatever_breaks_in_the_leader_the_group_has_an_answer(monkeypatch: pytest.MonkeyPatch,
                                                               name: str) -> None:
    """assign() never raises: aiokafka would leave every worker without partitions."""
    found = group(3)
    monkeypatch.setattr(leader, name, broken)
    found.rebalance("m0")
    assert sorted(found.actives("orders")) == list(range(6))
    assert assignor_of(found).counters["fallbacks"] == 1
    monkeypatch.undo()
    found.rebalance("m0")
    assert sorted(found.actives("orders")) == list(range(6))


def test_failing_sensors_tracer_weights_and_observers_stop_nothing() -> None:
    """What others plug in cannot cost the group its assignment."""
    found = group(2)
    app = found.apps["m0"]
    app.sensors.add(MagicMock(on_assignment_start=broken, on_assignment_completed=broken))
    app.tracer = MagicMock(get_tracer=broken)
    app.assignor.weights_provider = broken
    app.assignor.on_decision(broken)
    found.rebalance("m0")
    app.assignor.decisions.join()
    assert len(found.actives("orders")) == 6
    counters = app.assignor.counters
    assert (counters["sensor_failures"], counters["weights_failures"]) == (2, 1)
    assert app.assignor.decisions.failed == 1


def test_observers_are_told_inputs_and_plan() -> None:
    """Enough to plan again and get the same."""
    found = group(3)
    told: list[tuple[Any, Plan]] = []
    assignor_of(found).on_decision(lambda inputs, made: told.append((inputs, made)))
    found.rebalance("m0")
    assignor_of(found).decisions.join()
    ((inputs, made),) = told
    again = faust_assigner.plan(inputs.members, inputs.partitions, replicas=inputs.replicas,
                                changelogs=inputs.changelogs, weights=inputs.weights,
                                previous_ids=inputs.previous_ids)
    assert {m: again.actives(m) for m in again.member_ids} == {m: made.actives(m) for m in made.member_ids}
    assert (inputs.group_id, inputs.generation) == ("shop", 1)
    assert inputs.software == dict.fromkeys(found.apps, faust_assigner.__version__)
    assert inputs.solve_ms > 0


def test_slow_observers_lose_decisions_instead_of_holding_the_group() -> None:
    """What does not fit into the short queue is dropped and counted."""
    import threading

    found = group(1)
    gate = threading.Event()
    assignor_of(found).on_decision(lambda *_: gate.wait(10))
    for _ in range(15):
        found.rebalance("m0")
    dropped = assignor_of(found).decisions.dropped
    gate.set()
    assignor_of(found).decisions.join()
    assert dropped >= 6


def test_weights_are_asked_for_at_every_round() -> None:
    """What the provider returns reaches the planner."""
    found = group(2)
    assignor_of(found).weights_provider = lambda: {("orders", 0): 3.0}
    found.rebalance("m0")
    assert assignor_of(found).last_round.inputs.weights == {("orders", 0): 3.0}  # type: ignore[union-attr]


def test_an_answer_that_cannot_be_read_leaves_the_worker_at_work(caplog: pytest.LogCaptureFixture) -> None:
    """What the consumer was given counts as active: a table must rather recover than be used empty."""
    app = make_app("http://w", tables=["totals"])
    app.assignor.on_assignment(Mock(assignment=[("orders", [0, 1]), (LOG, [0, 1, 5])], user_data=b"noise"))
    assert app.assignor.assigned_actives() == {TP("orders", 0), TP("orders", 1), TP(LOG, 0), TP(LOG, 1),
                                               TP(LOG, 5)}
    assert app.assignor.counters["unreadable_answers"] == 1
    assert "cannot be read" in caplog.text


def test_what_was_not_given_is_not_claimed() -> None:
    """Roles are cut to the partitions the consumer really has."""
    found = group(2)
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

    answer = ConsumerProtocolMemberAssignment.decode(found.synced["m0"])
    answer.assignment = [(t, numbers) for t, numbers in answer.assignment if t == "orders"]
    assignor_of(found).on_assignment(answer)
    assert {tp.topic for tp in assignor_of(found).assigned_actives()} == {"orders"}
    assert assignor_of(found).assigned_standbys() == set()


def test_a_leaders_two_billion_partitions_cost_nothing() -> None:
    """Runs in an answer are looked up, never walked through."""
    from faust_assigner.wire.answer import AnswerWriter
    from faust_assigner.wire.directory import Directory

    app = make_app("http://w", global_tables={"rates": {}})
    writer = AnswerWriter(Directory(), {}, generation=3, is_uniform=True)
    raw = writer.for_ours({LOG: [0]}, {}, "http://w", writes={LOG: range(2**31)})
    app.assignor.on_assignment(Mock(assignment=[(LOG, [0])], user_data=raw))
    assert app.assignor.assigned_actives() == {TP(LOG, 0)}
    assert len(app.assignor.metadata({LOG}).user_data) < 1000


def test_a_bad_member_is_named_once_per_round_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """With the reason, without its bytes; and it takes part as one that remembers nothing."""
    found = group(2)
    metadata = {m: ConsumerProtocolMemberMetadata.decode(raw) for m, raw in found.join_bytes().items()}
    metadata["bad"] = ConsumerProtocolMemberMetadata(4, list(TOPICS), b"canary-secret" * 3)
    caplog.clear()
    answers = assignor_of(found).assign(cluster_of(TOPICS), metadata)
    lines = [r.getMessage() for r in caplog.records if "bad" in r.getMessage()]
    assert len(lines) == 1
    assert "stateless" in lines[0]
    assert "not JSON" in lines[0]
    assert "canary" not in caplog.text
    assert assignor_of(found).counters["refused_members"] == 1
    assert len(dict(answers["bad"].assignment)["orders"]) == 2


def test_a_crowd_of_bad_members_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The first twenty by name, the rest as a number."""
    found = group(1)
    metadata = {f"bad{i:03}": ConsumerProtocolMemberMetadata(4, ["orders"], b"x") for i in range(300)}
    caplog.clear()
    assignor_of(found).assign(cluster_of(TOPICS), metadata)
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 21
    assert assignor_of(found).counters["refused_members"] == 300


def test_the_protocol_version_is_the_lowest_members() -> None:
    """An older member reads the answer it knows."""
    found = group(2)
    metadata = {m: ConsumerProtocolMemberMetadata.decode(raw) for m, raw in found.join_bytes().items()}
    metadata["m1"].version = 3
    assert {a.version for a in assignor_of(found).assign(cluster_of(TOPICS), metadata).values()} == {3}
    metadata["m1"].version = -9
    assert {a.version for a in assignor_of(found).assign(cluster_of(TOPICS), metadata).values()} == {0}


def test_the_directory_is_left_out_before_kafka_refuses_the_group(caplog: pytest.LogCaptureFixture) -> None:
    """Owners and standbys still travel; requests cannot be routed, which is said."""
    found = group(2, faust_assigner_group_record_bytes=500)
    assert len(found.actives("orders")) == 6
    assert assignor_of(found).tables_metadata() == {}
    assert assignor_of(found).counters["directories_left_out"] == 1
    assert "FAUST_ASSIGNER_GROUP_RECORD_BYTES" in caplog.text
    found.rebalance()
    assert sorted(found.actives("orders")) == list(range(6))


def urls_of_copies(member: Any) -> list[tuple[str, ...]]:
    """Of each partition of the table, who has a copy."""
    return [tuple(map(str, member.standbys_of(TP(LOG, p)))) for p in range(6)]


def test_copies_are_named_where_the_leader_may_answer_from_them() -> None:
    """To every member alike: whoever is not the owner, of two."""
    found = group(2, faust_assigner_stale_reads=5)
    member = assignor_of(found)
    owners = [str(member.owner_of(TP(LOG, p))) for p in range(6)]
    everybody = {str(app.conf.canonical_url) for app in found.apps.values()}
    assert [{owner, *copies} for owner, copies in zip(owners, urls_of_copies(member), strict=True)] == [
        everybody] * 6
    assert urls_of_copies(assignor_of(group(2))) == [()] * 6


def test_copies_are_left_out_before_owners_are() -> None:
    """A group whose record would be too large with them goes on without."""
    least = next(size for size in range(500, 5000, 10) if assignor_of(
        group(2, faust_assigner_group_record_bytes=size)).tables_metadata())
    member = assignor_of(group(2, faust_assigner_group_record_bytes=least, faust_assigner_stale_reads=5))
    assert member.tables_metadata()
    assert urls_of_copies(member) == [()] * 6


def test_a_large_member_leaves_out_the_copy_for_stock_leaders() -> None:
    """Thousands of partitions stay a few bytes when they are contiguous and all members are ours."""
    found = WireGroup({"orders": 9_000, LOG: 9_000})
    for m in ("m0", "m1"):
        found.add(m, make_app(f"http://{m}", tables=["totals"]), found.partitions)
    found.rebalance()
    before = found.actives("orders")
    found.rebalance()
    assert all(len(raw) < 2_000 for raw in found.joined.values())
    assert found.actives("orders") == before


def test_the_same_bytes_for_any_hash_seed_and_member_order() -> None:
    """One digest over three hash seeds and two orders of members."""
    script = """
import hashlib, sys
from tests.support.faust_group import WireGroup, make_app
parts = {"orders": 30, "shop-a-changelog": 30, "shop-b-changelog": 7, "rates": 7, "shop-g-changelog": 5}
found = WireGroup(parts)
names = [f"m{i}" for i in range(9)]
for i in names if sys.argv[1] == "up" else reversed(names):
    found.add(i, make_app(f"http://{i}", tables=["a", "b"], global_tables={"g": {}}), set(parts))
digest = hashlib.sha256()
for leave in (None, "m3", "m7"):
    if leave:
        found.remove(leave)
    found.rebalance("m5")
    for m in sorted(found.joined):
        digest.update(found.joined[m] + found.synced[m])
print(digest.hexdigest())
"""
    runs = [subprocess.Popen([sys.executable, "-c", script, order], stdout=subprocess.PIPE, text=True,
                             env={"PYTHONHASHSEED": str(seed), "PATH": "/usr/bin:/bin"}, cwd=Path.cwd())
            for seed, order in ((0, "up"), (1, "down"), (4242, "up"))]
    digests = {run.communicate(timeout=60)[0] for run in runs}
    assert len(digests) == 1
    assert len(digests.pop()) == 65
