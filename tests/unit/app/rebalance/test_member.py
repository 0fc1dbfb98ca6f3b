"""A member's metadata at a join, field by field, and its memory after an answer."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import faust_assigner
from faust_assigner.app.rebalance import member
from faust_assigner.app.rebalance.member import Memory, collect_join_data, remember, user_data
from faust_assigner.app.rebalance.memory_file import FormerPartitions
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.settings import table as settings_table
from faust_assigner.wire.answer import Answer
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.join import JoinData
from faust_assigner.wire.runs import Runs

#: A table, a global table partly written here, and a table of each kind without a topic here.
TABLES = TableFacts(frozenset({"log", "prices", "old", "far"}), {"prices": True, "far": False})
TOPICS = ("log", "orders", "prices")


class Told:
    """The modules around a member, with their answers and their calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files = {"log": [0, 1, 5], "old": [2]}
        self.looked: list[Any] = []
        self.positions_asked: list[Any] = []
        self.takes_part = True
        answers = {settings_table.RACK: "r1", settings_table.CAPACITY: 2.5}
        monkeypatch.setattr(
            member.settings, "read_or_default", lambda app, setting: answers[setting]
        )
        monkeypatch.setattr(member.settings, "or_default", lambda read, app, default: "static-1")
        monkeypatch.setattr(member, "partitions_on_disk", self._files)
        monkeypatch.setattr(member, "positions_of", self._positions)
        monkeypatch.setattr(member, "uses_warmups", lambda app: self.takes_part)
        self.app: Any = SimpleNamespace(
            conf=SimpleNamespace(canonical_url="http://w1"),
            tables=SimpleNamespace(
                _changelogs={name: f"table {name}" for name in TABLES.changelogs}
            ),
        )

    def _files(self, app: Any, tables: Any) -> dict[str, list[int]]:
        self.looked.append(dict(tables))
        return {topic: found for topic, found in self.files.items() if topic in tables}

    def _positions(self, app: Any, held: Any, owned: Any) -> Any:
        self.positions_asked.append((held, owned))
        return {"log": {0: 9}}

    def say(self, memory: Memory, **more: Any) -> JoinData:
        """Return the member's metadata."""
        former = FormerPartitions(4, {"orders": Runs.of([7])})
        return collect_join_data(self.app, memory, TABLES, TOPICS, lambda: former, **more)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """The patched modules."""
    return Told(monkeypatch)


def test_a_new_member_tells_of_its_files_and_of_its_former_process(told: Told) -> None:
    """Every member has the global tables, so their files are no claim."""
    assert told.say(Memory()) == JoinData(
        "http://w1",
        {},
        {},
        {"log": [0, 1, 5], "old": [2]},
        former_actives={"orders": Runs.of([7])},
        former_generation=4,
        instance_id="static-1",
        rack_id="r1",
        capacity=2.5,
        changelogs=frozenset({"log", "prices"}),
        globals_={"prices": True},
        software=faust_assigner.__version__,
        positions={"log": {0: 9}},
    )
    assert told.looked == [{"log": "table log", "old": "table old"}]
    assert told.positions_asked == [({"log": {0, 1, 5}}, {"log": set()})]


def test_a_member_with_an_assignment_claims_that_and_files_of_promised_partitions(
    told: Told,
) -> None:
    """Older files are ignored; of a global table the member claims its writes and no copy."""
    answer = Answer(
        {},
        {},
        writes={"prices": Runs.of([1])},
        awaited={"log": Runs.of([3])},
        promised={"log": Runs.of([1, 2])},
        among=3,
    )
    memory = Memory(
        answer,
        8,
        {"orders": Runs.of([0]), "log": Runs.of([0]), "prices": Runs.of([0, 1, 2])},
        {"log": Runs.of([3]), "prices": Runs.of([0, 2]), "unknown": Runs.of([1])},
        {"orders": 1, "gone": 4},
    )
    said = told.say(memory, overdue={"log": [6]}, holds=True, leaves=True, cooperative=True)
    assert dict(said.actives) == {
        "orders": Runs.of([0]),
        "log": Runs.of([0]),
        "prices": Runs.of([1]),
    }
    assert said.standbys == {"log": Runs.of([3])}
    assert said.on_disk == {"log": [1]}
    assert told.looked == [{"log": "table log"}]
    assert told.positions_asked == [({"log": {0, 1, 3}}, {"log": {0}})]
    assert (said.promised, said.awaited) == (answer.promised, answer.awaited)
    assert (said.among, said.generation, said.overdue) == (3, 8, {"log": [6]})
    assert (said.holds, said.leaves, said.cooperative) == (True, True, True)
    assert said.group_ids == {"orders": 1, "gone": 4}


@pytest.mark.parametrize("reason", ["no part", "unreadable"])
def test_a_member_that_asks_for_no_round_or_cannot_read_has_no_positions(
    told: Told, monkeypatch: pytest.MonkeyPatch, caplog: Any, reason: str
) -> None:
    """A leader would wait for its copies for ever."""
    told.takes_part = reason != "no part"

    def unreadable(*_: Any) -> Any:
        raise OSError("the disk is gone")

    monkeypatch.setattr(member, "positions_of", unreadable)
    assert told.say(Memory()).positions is None
    assert ("Could not read the positions" in caplog.text) == (reason == "unreadable")


CLAIMS = JoinData(
    actives={"a": [0]},
    standbys={"a": [1]},
    on_disk={"a": [2]},
    former_actives={"a": [3]},
    awaited={"a": [1]},
    overdue={"a": [1]},
    positions={"a": {0: 1}},
)


@pytest.mark.parametrize("left_out", range(6))
def test_a_member_with_too_many_claims_leaves_out_the_least_valuable_first(
    monkeypatch: pytest.MonkeyPatch, caplog: Any, left_out: int
) -> None:
    """The order is positions, former process, files, copies, actives; the log names each."""
    steps = (
        {"positions": None, "awaited": {}, "overdue": {}},
        {"former_actives": {}},
        {"on_disk": {}},
        {"standbys": {}},
        {"actives": {}},
    )
    fits = CLAIMS
    for step in steps[:left_out]:
        fits = replace(fits, **step)

    def encode(data: JoinData, topics: Any, *, for_stock: bool = True) -> bytes:
        is_small = data == fits and not for_stock
        return b"x" * (member.USER_DATA_BYTES + (not is_small))

    monkeypatch.setattr(member, "encode_join", encode)
    assert len(user_data(CLAIMS, ["a"], is_uniform=True)) == member.USER_DATA_BYTES
    names = ["its position", "what it owned", "files", "standbys", "actives"]
    line = f"it joins without these claims: {', '.join(names[:left_out])}"
    assert caplog.text.rstrip().endswith(line) == bool(left_out)


@pytest.mark.parametrize(
    ("size", "is_uniform", "for_stock"),
    [
        (member.STOCK_PART_BYTES, True, True),
        (member.STOCK_PART_BYTES + 1, True, False),
        (member.USER_DATA_BYTES, False, True),
        (member.USER_DATA_BYTES + 1, False, False),
    ],
)
def test_the_copy_for_stock_leaders_is_there_while_it_may_be_read(
    monkeypatch: pytest.MonkeyPatch, size: int, is_uniform: bool, for_stock: bool
) -> None:
    """A group with only our members does not need a large copy."""
    monkeypatch.setattr(
        member,
        "encode_join",
        lambda data, topics, *, for_stock=True: b"x" * size if for_stock else b"ours",
    )
    packed = user_data(CLAIMS, ["a"], is_uniform=is_uniform)
    assert (packed != b"ours") == for_stock


@pytest.mark.parametrize(
    ("answered", "kafkas", "generation"),
    [(5, 9, 5), (0, 9, 0), (-1, 9, 9), (-1, 0, 0), (-1, -1, 4)],
)
def test_an_answer_is_dated_by_its_leader_by_kafka_or_by_one_more(
    answered: int, kafkas: int, generation: int
) -> None:
    """A stock leader sends no date, and a consumer may not know Kafka's generation."""
    before = Memory(generation=3, group_ids={"gone": 1, "kept": 2})
    answer = Answer({}, {}, generation=answered, group_ids={"kept": 7})
    found = remember(answer, {}, kafkas=kafkas, before=before)
    assert found.generation == generation
    assert found.group_ids == {"gone": 1, "kept": 7}


def test_a_stock_leaders_distributions_are_used_as_they_are() -> None:
    """Our leader sends a directory with both views; before any answer both are empty."""
    logs, others = {"http://a": {"log": [0]}}, {"http://b": {"orders": [1]}}
    stock = Memory(Answer({}, {}, changelog_distribution=logs, external_topic_distribution=others))
    assert (stock.changelog_distribution, stock.external_topic_distribution) == (logs, others)
    owners = {"log": np.array([0]), "orders": np.array([0])}
    ours = Memory(Answer({}, {}))
    vars(ours)["directory"] = Directory(("http://c",), owners, (), frozenset({"log"}))
    assert ours.changelog_distribution == {"http://c": {"log": [0]}}
    assert ours.external_topic_distribution == {"http://c": {"orders": [0]}}
    assert (Memory().changelog_distribution, Memory().external_topic_distribution) == ({}, {})
    assert (Memory().directory, Memory().owned(TABLES)) == (Directory(), {})


def test_a_memory_has_what_was_given_and_each_partition_has_a_role(caplog: Any) -> None:
    """A partition without a role is restored: an empty table would be worse."""
    answer = Answer(
        {"log": Runs.of([0, 9])},
        {"log": Runs.of([1, 8]), "orders": Runs.of([0])},
        writes={"log": Runs.of([0, 5])},
        awaited={"log": Runs.of([1, 2])},
    )
    found = remember(answer, {"log": [0, 1, 2]}, kafkas=3, before=Memory())
    assert found.actives == {"log": Runs.of([0, 2])}
    assert found.standbys == {"log": Runs.of([1])}
    assert found.answer is not None
    assert (found.answer.writes, found.answer.awaited) == (
        {"log": Runs.of([0])},
        {"log": Runs.of([1])},
    )
    assert "log: partitions [2] were assigned without a role" in caplog.text
