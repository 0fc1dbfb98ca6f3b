"""All workers stop and return: how the leader uses their former assignments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from faust_assigner import plan
from faust_assigner.app.rebalance import member_claims
from faust_assigner.app.rebalance.member import user_data
from faust_assigner.app.rebalance.memory_file import NAME
from faust_assigner.model import NOBODY
from faust_assigner.wire.answer import AnswerWriter
from faust_assigner.wire.bounded import USER_DATA_BYTES
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.join import JoinData, decode_join
from tests.support.faust_group import StockAssignor, WireGroup, make_app

LOG = "shop-totals-changelog"
LEADER = "shop-__assignor-__leader"
TOPICS = {"orders": 6, LOG: 6, LEADER: 1}
NAMES = ("a", "b", "c")


def worker(folder: Path, **options: Any) -> Any:
    """Return an app with its folders, as at a worker's start."""
    options.setdefault("tables", ["totals"])
    app = make_app(f"http://{folder.name}:6066", datadir=str(folder), **options)
    app._create_directories()
    return app


def started(
    folder: Path,
    *names: str,
    topics: dict[str, int] | None = None,
    prefix: str = "",
    **options: Any,
) -> WireGroup:
    """Return a group of new processes with the old folders; Kafka assigns new member ids."""
    found = WireGroup(topics or TOPICS)
    for name in names or NAMES:
        found.add(prefix + name, worker(folder / name, **options), found.partitions)
    return found


def scrambled(folder: Path, **options: Any) -> WireGroup:
    """Return three members with an irregular assignment: a dies, and a new a joins."""
    found = started(folder, **options)
    found.rebalance()
    found.remove("a")
    found.rebalance("b")
    memory(folder, "a").unlink()  # else the new a would get its old partitions
    found.add("a", worker(folder / "a", **options), found.partitions)
    found.rebalance("b")
    return found


def owners(found: WireGroup, topic: str = "orders") -> dict[int, str]:
    """Return each partition's worker, regardless of its member id."""
    return {p: m[-1] for p, m in found.actives(topic).items()}


def memory(folder: Path, name: str) -> Path:
    """Return the path of a worker's file."""
    return folder / name / "v1" / NAME


@pytest.mark.parametrize("prefix", ["", "zz-"])
def test_a_restart_of_everybody_moves_nothing(prefix: str, tmp_path: Path) -> None:
    """The order of member ids does not matter, and no member claims current partitions."""
    before = owners(scrambled(tmp_path))
    again = started(tmp_path, prefix=prefix)
    again.rebalance()
    assert owners(again) == before
    assert owners(again, LOG) == before
    inputs = again.apps[prefix + "a"].assignor.last_round.inputs
    assert all(member.actives == {} and member.former_actives for member in inputs.members)


def test_without_the_files_it_moves(tmp_path: Path) -> None:
    """The test above depends on the files."""
    before = owners(scrambled(tmp_path))
    for name in NAMES:
        memory(tmp_path, name).unlink()
    again = started(tmp_path)
    again.rebalance()
    assert owners(again) != before


def test_it_is_said_as_long_as_the_process_lives(tmp_path: Path) -> None:
    """The claim keeps its generation, for late starters; the file follows the assignments."""
    scrambled(tmp_path)
    again = started(tmp_path)
    words = [
        decode_join(again.apps["a"].assignor.metadata(TOPICS).user_data, sorted(TOPICS))
        for _ in "12"
    ]
    assert all(said.former_actives and said.generation == -1 for said in words)
    again.rebalance()
    said = decode_join(again.apps["a"].assignor.metadata(TOPICS).user_data, sorted(TOPICS))
    assert (said.former_actives, said.former_generation) == (words[0].former_actives, 2)
    assert said.generation > said.former_generation
    written = json.loads(memory(tmp_path, "a").read_text())
    assert written["generation"] == said.generation
    assert written["actives"]["orders"] == list(said.actives["orders"])


def test_a_worker_that_ends_remembers_what_it_owned_before(tmp_path: Path) -> None:
    """In a joint stop the last workers take part in rounds without the first."""
    found = scrambled(tmp_path)
    before = owners(found)
    for app in found.apps.values():
        app._stopped.set()
    for name in ("b", "a"):
        found.remove(name)
        found.rebalance("c")
    again = started(tmp_path)
    again.rebalance()
    assert owners(again) == before


def test_a_worker_that_lost_its_partitions_while_alive_remembers_that(tmp_path: Path) -> None:
    """After its removal from the group its file has its last assignment, as always."""
    found = started(tmp_path)
    found.rebalance()
    lost = found.apps["a"]
    found.remove("a")
    found.rebalance("b")
    lost.assignor.on_assignment(Mock(assignment=[], user_data=b""))
    assert json.loads(memory(tmp_path, "a").read_text())["actives"] == {}


def test_two_workers_in_one_folder_are_believed_neither(tmp_path: Path) -> None:
    """Both read the last writer's assignment; the third worker's file counts."""
    found = WireGroup(TOPICS)
    for name, folder in (("a", "shared"), ("b", "shared"), ("c", "c")):
        found.add(name, worker(tmp_path / folder), TOPICS)
    found.rebalance()
    before = {p for p, m in owners(found).items() if m == "c"}
    again = WireGroup(TOPICS)
    for name, folder in (("a", "shared"), ("b", "shared"), ("c", "c")):
        again.add(name, worker(tmp_path / folder), TOPICS)
    again.rebalance()
    made = again.apps["a"].assignor.last_round.plan
    orders = next(g for g, group in enumerate(made.groups) if "orders" in group.topics)
    former = made.previous.former[made.layout.start[orders] : made.layout.start[orders + 1]]
    assert {p for p in range(6) if former[p] != NOBODY} == before
    assert {p for p, m in owners(again).items() if m == "c"} == before
    assert [len([m for m in owners(again).values() if m == name]) for name in NAMES] == [2, 2, 2]


def test_a_memory_from_the_future_is_dated_below_the_round(tmp_path: Path) -> None:
    """A file kept over a group's deletion, or edited, counts as of the last generation."""
    scrambled(tmp_path)
    path = memory(tmp_path, "a")
    path.write_text(json.dumps({**json.loads(path.read_text()), "generation": 2**31 - 2}))
    again = started(tmp_path)
    for app in again.apps.values():
        app._consumer = Mock(_thread=Mock(_consumer=Mock(_coordinator=Mock(generation=4))))
    again.rebalance()
    assert [m.generation for m in again.apps["a"].assignor.last_round.inputs.members] == [3, 2, 2]


def test_without_kafkas_generation_the_round_is_later_than_any_memory(tmp_path: Path) -> None:
    """The round's number stays encodable with a claim of the largest generation."""
    scrambled(tmp_path)
    path = memory(tmp_path, "a")
    path.write_text(json.dumps({**json.loads(path.read_text()), "generation": 2**31 - 2}))
    again = started(tmp_path)
    again.rebalance()
    again.rebalance()
    assert sorted(owners(again)) == list(range(6))
    assert all(app.assignor.counters["unreadable_answers"] == 0 for app in again.apps.values())


def test_an_owner_goes_before_a_memory(tmp_path: Path) -> None:
    """A member that returns alone gets its share and takes no owned partition by its claim."""
    found = started(tmp_path)
    found.rebalance()
    old = worker(tmp_path / "a")
    found.remove("a")
    found.rebalance("b")
    before = owners(found)
    found.add("a", old, TOPICS)
    found.rebalance("b")
    kept = [p for p, m in owners(found).items() if before[p] == m]
    assert len(kept) == 4


def test_a_memory_of_an_app_with_fewer_topics_is_one_of_those(tmp_path: Path) -> None:
    """A deploy adds a table: sources stay, and the new changelog joins their owners."""
    before = owners(scrambled(tmp_path))
    new = "shop-new-changelog"
    again = started(tmp_path, topics={**TOPICS, new: 6}, tables=["totals", "new"])
    again.rebalance()
    assert owners(again) == before
    assert owners(again, new) == before


def test_a_memory_of_topics_that_are_gone_or_shrunk_is_cut(tmp_path: Path) -> None:
    """Only existing partitions are assigned."""
    scrambled(tmp_path)
    again = started(tmp_path, topics={"orders": 2, LEADER: 1}, tables=[])
    again.rebalance()
    assert sorted(owners(again)) == [0, 1]


def test_of_a_global_table_what_a_member_wrote_is_remembered(tmp_path: Path) -> None:
    """The synthetic actives are not stored: every member has all of them."""
    topics = {"orders": 6, "shop-rates-changelog": 6}
    tables = {"tables": [], "global_tables": {"rates": {}}}
    before = owners(scrambled(tmp_path, topics=topics, **tables))
    written = json.loads(memory(tmp_path, "a").read_text())["actives"]
    mine = sorted(p for p in before if before[p] == "a")
    assert written["shop-rates-changelog"] == written["orders"] == mine
    again = started(tmp_path, topics=topics, **tables)
    again.rebalance()
    assert owners(again) == before


def test_a_stock_leader_takes_no_notice(tmp_path: Path) -> None:
    """A stock leader reads the metadata as before."""
    found = started(tmp_path)
    found.rebalance()
    again = started(tmp_path)
    again.add("s", make_app("http://s:6066", assignor=StockAssignor, tables=["totals"]), TOPICS)
    again.rebalance("s")
    assert sorted(owners(again)) == list(range(6))


def test_a_memory_that_does_not_fit_is_the_first_claim_left_out() -> None:
    """Files come next, then standbys; the owned partitions come last."""
    some, many = range(0, 120_000, 2), range(0, 300_000, 2)
    topics = [f"t{i}" for i in range(3)]
    data = JoinData(
        "http://w",
        {"t0": [1]},
        {"t1": some},
        {"t2": some},
        former_actives={"t0": many},
        former_generation=3,
    )
    packed = user_data(data, topics, is_uniform=True)
    assert len(packed) <= USER_DATA_BYTES
    read = decode_join(packed, topics)
    assert (read.former_actives, read.former_generation) == ({}, -1)
    assert (read.on_disk.keys(), read.standbys.keys(), read.actives.keys()) == (
        {"t2"},
        {"t1"},
        {"t0"},
    )


def test_a_memory_counts_in_the_rounds_budget(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Twelve complete claims exceed the limit: the last four are refused with a reason."""
    monkeypatch.setattr(member_claims, "LEAST_BUDGET", 0)
    topics = {"t4": 4, "t5": 5, "t6": 6}
    found = started(tmp_path, *"abcdefghijkl", topics=topics, tables=[])
    for name in found.apps:
        boast = {topic: list(range(count)) for topic, count in topics.items()}
        memory(tmp_path, name).write_text(
            json.dumps({"version": 1, "app": "shop", "generation": 1, "actives": boast})
        )
    found.rebalance()
    made = found.apps["a"].assignor.last_round
    assert sorted(made.refused) == list("ijkl")
    assert [bool(member.former_actives) for member in made.inputs.members] == [True] * 8 + [
        False
    ] * 4
    assert all("exceeds the round's limit" in reason for reason in made.refused.values())


def test_a_static_members_name_goes_before_its_memory(tmp_path: Path) -> None:
    """The leader knows the member's partitions; its file is old."""
    found = WireGroup(TOPICS)
    for name in NAMES:
        found.add(name, worker(tmp_path / name, consumer_group_instance_id=name), TOPICS)
    found.rebalance()
    before = owners(found)
    path = memory(tmp_path, "b")
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "actives": {"orders": [0, 1, 2, 3, 4, 5]}})
    )
    found.remove("b")
    found.add("b", worker(tmp_path / "b", consumer_group_instance_id="b"), TOPICS)
    found.rebalance("a")
    assert owners(found) == before
    assert found.apps["a"].assignor.last_round.plan.moves == 0


# -- Faust's leader topic


def holding(held: dict[str, dict[str, list[int]]], partitions: dict[str, int]) -> WireGroup:
    """Return a group whose leader assigned these partitions."""
    found = WireGroup(partitions)
    for name, actives in held.items():
        found.add(name, make_app(f"http://{name}"), partitions)
        given = AnswerWriter(Directory(), {}, generation=1, is_uniform=True).for_ours(
            actives, {}, ""
        )
        found.apps[name].assignor.on_assignment(
            Mock(assignment=list(actives.items()), user_data=given)
        )
    return found


def test_the_leader_topic_is_no_work() -> None:
    """The loads 4, 3 and 2 are uneven although the third member has the leader topic."""
    found = holding(
        {
            "a": {"orders": [0, 1], "clicks": [0, 1]},
            "b": {"orders": [2, 3], "clicks": [2]},
            "c": {"orders": [4], "clicks": [3], LEADER: [0]},
        },
        {"orders": 5, "clicks": 4, LEADER: 1},
    )
    found.rebalance()
    loads = [
        sum(tp.topic != LEADER for tp in app.assignor.assigned_actives())
        for app in found.apps.values()
    ]
    assert loads == [3, 3, 3]
    assert found.actives(LEADER) == {0: "c"}


def test_a_decision_is_planned_again_with_what_weighs_nothing() -> None:
    """The observers' inputs have the weightless topics; without them the plan would differ."""
    found = WireGroup({"orders": 5, "clicks": 4, LEADER: 1})
    for name in NAMES:
        found.add(name, make_app(f"http://{name}"), found.partitions)
    found.rebalance()
    inputs = found.apps["a"].assignor.last_round.inputs
    assert inputs.weightless == {LEADER}

    def again(weightless: frozenset[str]) -> dict[str, Any]:
        made = plan(
            inputs.members,
            inputs.partitions,
            replicas=inputs.replicas,
            changelogs=inputs.changelogs,
            weightless=weightless,
            weights=inputs.weights,
            previous_ids=inputs.previous_ids,
        )
        return {m: made.actives(m) for m in made.member_ids}

    assert again(inputs.weightless) == {
        m: found.apps["a"].assignor.last_round.plan.actives(m) for m in found.apps
    }


def test_a_group_that_never_had_the_topic_has_none_without_weight() -> None:
    """``topic_disable_leader`` is set."""
    found = WireGroup({"orders": 5})
    found.add("a", make_app("http://a"), found.partitions)
    found.rebalance()
    assert found.apps["a"].assignor.last_round.inputs.weightless == frozenset()
