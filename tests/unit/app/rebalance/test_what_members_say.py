"""A member's metadata at a join, and its use of an answer: files, names, racks, generations."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from faust.types import TP

from faust_assigner.app.host.group_member import kafka_generation
from tests.support.faust_group import WireGroup, make_app
from tests.support.shop import LOG, TOPICS, assignor_of, group, said
from tests.unit.app.tables.test_disk import rocksdb_app, write


def test_a_restarted_worker_claims_its_files_as_state(tmp_path: Path) -> None:
    """The files count at the first join; afterwards the assignment replaces them."""
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
    """Among the tasks that must move, tasks with files on the restarted worker come first."""
    found = group(2)
    before = found.actives(LOG)
    app = rocksdb_app(tmp_path, "totals", replicas=1)
    app.conf.canonical_url = "http://w9:6066"
    files = [
        min(p for p, m in before.items() if m == "m0"),
        max(p for p, m in before.items() if m == "m1"),
    ]
    for partition in files:
        write(app, "totals", partition)
    found.add("m9", app, TOPICS)
    found.rebalance("m0")
    assert sorted(p for p, m in found.actives(LOG).items() if m == "m9") == sorted(files)


def test_a_static_member_keeps_its_partitions_over_a_restart() -> None:
    """It returns with a new member id and without memory; its instance id is enough."""
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
    """After its session the new owners' claims are newer."""
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


def test_rack_and_capacity_come_from_keywords_and_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A keyword precedes the environment; a wrong value is logged and replaced by the default."""
    found = WireGroup(TOPICS)
    found.add(
        "m0", make_app("http://a", faust_assigner_rack="r1", faust_assigner_capacity=2), TOPICS
    )
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
    """aiokafka passes no generation to metadata(); the consumer's coordinator has the number."""
    found = group(1)
    app = found.apps["m0"]
    assert kafka_generation(app) == -1
    app._consumer = Mock(_thread=Mock(_consumer=Mock(_coordinator=Mock(generation=17))))
    found.rebalance()
    assert app.assignor.last_round.inputs.generation == 17
    found.rebalance()
    assert said(found, "m0").generation == 17


def test_without_kafkas_generation_a_logical_clock_counts() -> None:
    """The number is the highest claimed generation plus one."""
    found = group(2)
    first = said(found, "m0").generation
    for _ in range(3):
        found.rebalance()
    assert (first, said(found, "m0").generation, said(found, "m1").generation) == (-1, 2, 2)


def test_an_answer_that_cannot_be_read_leaves_the_worker_at_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Assigned partitions count as active: a restore is safer than an empty table."""
    app = make_app("http://w", tables=["totals"])
    app.assignor.on_assignment(
        Mock(assignment=[("orders", [0, 1]), (LOG, [0, 1, 5])], user_data=b"noise")
    )
    assert app.assignor.assigned_actives() == {
        TP("orders", 0),
        TP("orders", 1),
        TP(LOG, 0),
        TP(LOG, 1),
        TP(LOG, 5),
    }
    assert app.assignor.counters["unreadable_answers"] == 1
    assert "Could not decode the leader's answer" in caplog.text


def test_what_was_not_given_is_not_claimed() -> None:
    """Roles are limited to the consumer's partitions."""
    found = group(2)
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

    answer = ConsumerProtocolMemberAssignment.decode(found.synced["m0"])
    answer.assignment = [(t, numbers) for t, numbers in answer.assignment if t == "orders"]
    assignor_of(found).on_assignment(answer)
    assert {tp.topic for tp in assignor_of(found).assigned_actives()} == {"orders"}
    assert assignor_of(found).assigned_standbys() == set()


def test_a_leaders_two_billion_partitions_cost_nothing() -> None:
    """Runs in an answer are looked up and never iterated."""
    from faust_assigner.wire.answer import AnswerWriter
    from faust_assigner.wire.directory import Directory

    app = make_app("http://w", global_tables={"rates": {}})
    writer = AnswerWriter(Directory(), {}, generation=3, is_uniform=True)
    raw = writer.for_ours({LOG: [0]}, {}, "http://w", writes={LOG: range(2**31)})
    app.assignor.on_assignment(Mock(assignment=[(LOG, [0])], user_data=raw))
    assert app.assignor.assigned_actives() == {TP(LOG, 0)}
    assert len(app.assignor.metadata({LOG}).user_data) < 1000


def test_a_large_member_leaves_out_the_copy_for_stock_leaders() -> None:
    """Thousands of contiguous partitions need few bytes among our members."""
    found = WireGroup({"orders": 9_000, LOG: 9_000})
    for m in ("m0", "m1"):
        found.add(m, make_app(f"http://{m}", tables=["totals"]), found.partitions)
    found.rebalance()
    before = found.actives("orders")
    found.rebalance()
    assert all(len(raw) < 2_000 for raw in found.joined.values())
    assert found.actives("orders") == before


def static_app(folder: Path, **options: Any) -> Any:
    """Return a process of static member w1 with its data directory, created at its start."""
    app = make_app(
        "http://w1",
        tables=["totals"],
        datadir=str(folder),
        consumer_group_instance_id="w1",
        **options,
    )
    Path(app.conf.appdir).mkdir(parents=True, exist_ok=True)
    return app


@pytest.mark.parametrize(
    ("options", "unheard"),
    [
        ({}, False),
        ({"faust_assigner_capacity": 1e-6}, True),
        ({"faust_assigner_rack": "r2"}, True),
        ({"subscribes": [*TOPICS, "returns"]}, True),
        ({"subscribes": [*TOPICS][1:]}, True),
        ({"subscribes": [*TOPICS][::-1]}, False),
    ],
)
def test_a_static_member_knows_whether_the_leader_knows_what_it_offers_and_wants(
    tmp_path: Path, options: dict[str, Any], unheard: bool
) -> None:
    """A restart within the session gets the old assignment, and no leader reads its metadata."""
    wanted = options.pop("subscribes", TOPICS)
    found = WireGroup(TOPICS)
    found.add("m0", make_app("http://w0", tables=["totals"], datadir=str(tmp_path / "0")), TOPICS)
    found.add("m1", static_app(tmp_path / "1"), TOPICS)
    found.rebalance("m0")
    found.rebalance("m0")
    assert not found.apps["m1"].assignor.is_unheard
    for _ in range(2):
        back = static_app(tmp_path / "1", **options)
        back.assignor.metadata(wanted)
        back.assignor.on_assignment(ConsumerProtocolMemberAssignment.decode(found.synced["m1"]))
        assert back.assignor.is_unheard is unheard
    found.add("m1", back, wanted)
    found.rebalance("m0")
    assert not back.assignor.is_unheard
    again = static_app(tmp_path / "1", **options)
    again.assignor.metadata(wanted)
    again.assignor.on_assignment(ConsumerProtocolMemberAssignment.decode(found.synced["m1"]))
    assert not again.assignor.is_unheard


@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize("wanted", [[*TOPICS, "returns"], [*TOPICS][1:]])
def test_a_member_without_files_finds_other_topics_in_its_first_answer(
    tmp_path: Path, is_static: bool, wanted: list[str]
) -> None:
    """A static member's old answer lacks a topic or has a wrong topic; a dynamic member's never."""
    found = WireGroup(TOPICS)
    found.add("m0", make_app("http://w0", tables=["totals"], datadir=str(tmp_path / "0")), TOPICS)
    found.add("m1", static_app(tmp_path / "1"), TOPICS)
    found.rebalance("m0")
    found.rebalance("m0")
    options = {"tables": ["totals"], "datadir": str(tmp_path / "2")}
    back = make_app("http://w1", consumer_group_instance_id="w1" if is_static else None, **options)
    for unheard in (is_static, False):  # it requests a single round only
        back.assignor.metadata(wanted)
        back.assignor.on_assignment(ConsumerProtocolMemberAssignment.decode(found.synced["m1"]))
        assert back.assignor.is_unheard is unheard


def test_what_a_round_tells_the_leader_is_heard(tmp_path: Path) -> None:
    """A process that returns after its session sends its capacity in the round."""
    found = WireGroup(TOPICS)
    found.add("m0", make_app("http://w0", tables=["totals"], datadir=str(tmp_path / "0")), TOPICS)
    found.add("m1", static_app(tmp_path / "1"), TOPICS)
    found.rebalance("m0")
    found.rebalance("m0")
    back = static_app(tmp_path / "1", faust_assigner_capacity=4.0)
    found.add("m1", back, TOPICS)
    found.rebalance("m0")
    assert not back.assignor.is_unheard
