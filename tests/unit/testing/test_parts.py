"""The kit's parts: reports of rounds, rests, moves, faults of clients, and records."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.testing import rest as under_test
from faust_assigner.testing.faults import Faults, _client_id
from faust_assigner.testing.log import _partition_of_key, decoded, encoded
from faust_assigner.testing.moves import join_phrases, move_phrases, moves, owners
from faust_assigner.testing.reporting import (
    Part,
    State,
    _awaited_copies,
    _claimed_partitions,
    generation_of,
    report,
)
from faust_assigner.testing.rest import owners_at_rest
from faust_assigner.testing.waiting import wait_until


def assigned(*actives: tuple[str, int], **more: Any) -> dict[str, Any]:
    """Return a worker's row: partitions of group 1, with a table behind ``log``."""
    base: dict[str, Any] = {
        "kind": "assigned",
        "generation": 3,
        "actives": [[topic, number, 1] for topic, number in actives],
        "standbys": [],
        "changelogs": ["log"],
        "claimed": None,
        "awaited": 0,
    }
    return base | more


# -- reports


def test_a_state_is_that_of_the_last_rows() -> None:
    """A round is ready after its own restore."""
    state = State()
    state.take(assigned(("orders", 0), standbys=[["log", 1, 1]], awaited=2))
    assert (state.generation, state.ready, state.awaited) == (3, -1, 2)
    assert state.actives == {Part("orders", 0, 1)}
    assert state.standbys == {Part("log", 1, 1)}
    state.take({"kind": "ready", "generation": 3})
    assert (state.generation, state.ready) == (3, 3)
    state.take({"kind": "later version"})
    assert str(state) == "generation 3, ready 3, waits for 2 copies"


def test_only_a_table_partition_without_state_on_the_worker_is_a_cold_move() -> None:
    """A standby, an earlier or a claimed partition has state; a source topic needs no state."""
    state = State()
    state.take(assigned(("log", 0), ("orders", 0), standbys=[["log", 1, 1]]))
    assert state.cold == {Part("log", 0, 1)}
    state.begin()
    row = assigned(("log", 0), ("log", 1), ("log", 2), ("log", 3), claimed=[["log", 2]])
    state.take(row)
    assert state.cold == {Part("log", 3, 1)}
    state.take(assigned(("log", 4)))
    assert state.cold == {Part("log", 3, 1), Part("log", 4, 1)}


def test_the_end_of_a_life_forgets_partitions_and_keeps_the_cold_moves() -> None:
    """A restarted worker has none of its former partitions."""
    state = State()
    state.take(assigned(("log", 0), standbys=[["log", 1, 1]], awaited=1))
    state.take({"kind": "ready", "generation": 3})
    state.end()
    assert (state.generation, state.ready, state.awaited) == (-1, -1, 0)
    assert (state.actives, state.standbys) == (frozenset(), frozenset())
    assert state.cold == {Part("log", 0, 1)}


def test_the_generation_of_the_assignor_goes_before_fausts_own() -> None:
    """Stock Faust's assignor has no generation, and ours has none before its first round."""
    app = SimpleNamespace(assignor=SimpleNamespace(generation=7), consumer_generation_id="4")
    assert generation_of(app) == 7
    app.assignor.generation = 0
    assert generation_of(app) == 4
    app.assignor = SimpleNamespace()
    assert generation_of(app) == 4


def test_a_worker_claims_what_is_in_memory_and_on_disk() -> None:
    """Each changelog partition counts once; stock Faust reports no claims."""
    joined = SimpleNamespace(
        actives={"log": [0]}, standbys={"log": [1, 2]}, on_disk={"log": [2, 3], "b": [0]}
    )
    found = _claimed_partitions(SimpleNamespace(joined_with=joined))
    assert found == [("b", 0), ("log", 0), ("log", 1), ("log", 2), ("log", 3)]
    assert _claimed_partitions(SimpleNamespace()) is None
    awaited = SimpleNamespace(tps={1, 2}, follows=True)
    assert _awaited_copies(SimpleNamespace(awaited=awaited)) == 3
    assert _awaited_copies(SimpleNamespace()) == 0


class Signal(list[Any]):
    """A signal of Faust, with its receivers."""

    def connect(self, receiver: Any, *, weak: bool) -> None:
        """Add the receiver."""
        assert not weak
        self.append(receiver)


async def test_a_worker_reports_its_rounds_without_fausts_leader_topic() -> None:
    """The partitions are sorted, each with its group; the changelogs belong to its tables."""
    tps = [SimpleNamespace(topic=t, partition=p) for t, p in (("b", 1), ("a", 0))]
    leader = SimpleNamespace(topic="shop-__assignor-__leader", partition=0)
    table = SimpleNamespace(changelog_topic=SimpleNamespace(get_topic_name=lambda: "log"))
    app = SimpleNamespace(
        assignor=SimpleNamespace(
            generation=5,
            group_for_topic=lambda topic: len(topic),
            assigned_actives=lambda: [*tps, leader],
            assigned_standbys=lambda: tps[1:],
        ),
        tables={"t": table},
        on_partitions_assigned=Signal(),
        on_rebalance_complete=Signal(),
    )
    told: list[Mapping[str, Any]] = []
    report(app, told.append)
    await app.on_partitions_assigned[0](app, assigned=set())
    await app.on_rebalance_complete[0](app)
    assert told[0] == {
        "kind": "assigned",
        "generation": 5,
        "actives": [("a", 0, 1), ("b", 1, 1)],
        "standbys": [("a", 0, 1)],
        "changelogs": ["log"],
        "claimed": None,
        "awaited": 0,
    }
    assert told[1] == {"kind": "ready", "generation": 5}


# -- groups


def worker(name: str, *actives: tuple[str, int], **more: Any) -> Any:
    """Return a worker at rest in generation 4."""
    state = State(
        generation=4,
        ready=4,
        actives=frozenset(Part(topic, number, 1) for topic, number in actives),
    )
    for key, value in more.items():
        setattr(state, key, value)
    return SimpleNamespace(name=name, state=state)


@pytest.mark.parametrize(
    ("workers", "is_at_rest"),
    [
        ([worker("a", ("t", 0)), worker("b", ("t", 1))], True),
        ([worker("a", ("t", 0), ("t", 1)), worker("b")], True),
        ([worker("a", ("t", 0))], False),
        ([worker("a", ("t", 0), ("t", 1)), worker("b", ("t", 1))], False),
        ([worker("a", ("t", 0)), worker("b", ("t", 1), generation=5, ready=5)], False),
        ([worker("a", ("t", 0)), worker("b", ("t", 1), ready=3)], False),
        ([worker("a", ("t", 0)), worker("b", ("t", 1), awaited=1)], False),
        ([worker("a", ("t", 0), ("t", 2))], False),
        ([worker("a")], False),
        ([], False),
    ],
)
def test_a_group_is_at_rest_if_each_partition_has_one_owner_and_no_worker_waits(
    workers: list[Any], is_at_rest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All workers are in the same generation; the topic has two partitions."""
    monkeypatch.setattr(under_test.log, "ends", lambda broker, topic: [0, 0])
    found = owners_at_rest(workers, None)  # type: ignore[arg-type]
    assert (found is not None) is is_at_rest
    if found is not None:
        assert found == (4, owners(workers))


def test_a_move_is_a_task_of_both_states_with_another_owner() -> None:
    """A new or removed task has not moved; a long list of moves is shortened."""
    before = owners([worker("a", ("t", 0), ("t", 1), ("t", 2))])
    now = {(1, 0): "a", (1, 1): "b", (1, 3): "b"}
    found = moves(before, now)
    assert found == {(1, 1): ("a", "b")}
    assert move_phrases(found) == ["task 1-1 from a to b"]
    phrases = [str(n) for n in range(12)]
    assert join_phrases(phrases, most=11).endswith("10 and 1 more")
    assert join_phrases(phrases[:10]) == ", ".join(phrases[:10])


# -- faults


def test_a_lost_response_is_of_the_client_the_api_and_the_number_that_were_named() -> None:
    """Another client's responses are sent, as is the response after the last lost response."""
    faults = Faults()
    faults.lose("a", 11, times=2)
    assert [
        faults.loses(*one) for one in (("b", 11), ("a", 12), ("a", 11), ("a", 11), ("a", 11))
    ] == [False, False, True, True, False]
    faults.lose("a")
    assert faults.loses("a", 3)
    assert not faults.loses("a", 3)
    assert faults.lost == 3


def test_a_stall_ends_with_the_requests_that_waited() -> None:
    """A second stall keeps the connections of the first; a resume clears them."""
    served: list[str] = []
    line = [SimpleNamespace(process_held_data=lambda n=n: served.append(n)) for n in "xy"]
    faults = Faults()
    faults.stall("a")
    faults.stalled["a"].extend(line)  # type: ignore[arg-type]
    faults.stall("a")
    faults.resume("a")
    faults.resume("a")
    assert served == ["x", "y"]
    assert faults.stalled == {}


@pytest.mark.parametrize(
    ("name", "found"), [(b"client", "client"), (b"", ""), (None, ""), (b"\xff", "\ufffd")]
)
def test_the_name_of_a_client_is_known_from_the_first_whole_name(
    name: bytes | None, found: str
) -> None:
    """A partly received name is not known yet; a missing name is empty."""
    head = struct.pack(">ihhih", 0, 3, 1, 7, -1 if name is None else len(name))
    data = head + (name or b"")
    assert _client_id(data) == _client_id(data + b"more") == found
    assert _client_id(head[:-1]) is None
    if name:
        assert _client_id(data[:-1]) is None


# -- records


def test_values_of_records_are_read_as_they_were_written() -> None:
    """Values are JSON, text and bytes; a Faust record is read by its serializer."""
    for value in ({"a": [1]}, "plain words", b"\xff\xfe", None, 3):
        assert decoded(encoded(value)) == value
    record = SimpleNamespace(
        dumps=lambda serializer: serializer.encode(), _options=SimpleNamespace(serializer=None)
    )
    assert encoded(record) == b"json"
    record._options.serializer = "raw"
    assert encoded(record) == b"raw"


@pytest.mark.parametrize(("key", "partition"), [(b"21", 4), (b"foobar", 6), (b"c", 2), (None, 0)])
def test_a_key_has_the_partition_that_kafkas_clients_choose(
    key: bytes | None, partition: int
) -> None:
    """The topic has eight partitions; without a key the first is used."""
    assert _partition_of_key(key, 8) == partition


def test_a_wait_ends_with_the_fact_or_with_its_name() -> None:
    """The description is computed only at the end."""
    facts = iter((False, False, True))
    wait_until(lambda: next(facts))
    began = time.monotonic()
    with pytest.raises(AssertionError, match=r"waited 0\.02 s for: a fact"):
        wait_until(lambda: False, lambda: "a fact", seconds=0.02)
    assert time.monotonic() - began >= 0.02
