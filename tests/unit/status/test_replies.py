"""Whose answer counts for a member, and with which limits and offsets workers and brokers are asked."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from faust_assigner.status import collect, end_offsets
from faust_assigner.status.collect import Looks, Where
from faust_assigner.status.evidence import Evidence, Heard
from faust_assigner.status.members import views_of
from faust_assigner.status.report import ANSWERED, NOT_ASKED, OTHER, SILENT
from faust_assigner.wire.worker_status import Peer, Peers, WorkerStatus
from tests.unit.status.test_looks import MOVING, group, member, net


def status(app: str, member_id: str) -> Heard:
    """The answer of a worker of this app."""
    return Heard(answer=ANSWERED, status=WorkerStatus(app=app, member_id=member_id))


SILENCE = Heard(answer=SILENT, detail="http://w5:5 did not answer")


def test_each_member_gets_its_own_answer_or_the_reason_against_it() -> None:
    """An answer belongs to the member whose id it has, at any URL, and only to an app of the same name."""
    own, moved, rejoining = (status("shop", "m1"), status("shop", "m2"), status("shop", ""))
    heard = {
        "http://w1:1": own,
        "http://other:2": moved,
        "http://w3:3": rejoining,
        "http://w4:4": status("shop-2", "m4b"),
        "http://w5:5": SILENCE,
        "http://w6:6": status("shop", "m9"),
        "http://w8:8": status("sho", ""),
    }
    urls = ("w1:1", "w2:2", "w3:3", "w4:4", "w5:5", "w6:6", "w7:7", "w8:8")
    members = [member(f"m{number}", f"http://{at}") for number, at in enumerate(urls, start=1)]
    found = views_of(Evidence(group=group(*members, member("m0")), heard=heard))
    assert {view.member.member_id: view.heard for view in found} == {
        "m0": Heard(answer=NOT_ASKED, detail="its URL is not known"),
        "m1": own,
        "m2": moved,
        "m3": rejoining,
        "m4": Heard(answer=OTHER, detail="http://w4:4 serves a different app, shop-2"),
        "m5": SILENCE,
        "m6": Heard(answer=OTHER, detail="http://w6:6 is served by the member m9"),
        "m7": Heard(answer=NOT_ASKED, detail="http://w7:7 was not queried"),
        "m8": Heard(answer=OTHER, detail="http://w8:8 serves a different app, sho"),
    }
    assert [view.name for view in found] == ["m0", *(f"w{number}" for number in range(1, 9))]


def test_a_silent_worker_of_the_last_round_is_listed_with_its_host() -> None:
    """During a rebalance its member id is unknown, and members without keys are not guessed by them."""
    peer = Peer(url="http://w5:5", instance_id=None, actives={"orders": (3,)})
    hidden = [member("m1", address=""), member("m2", address="")]
    found = views_of(
        Evidence(
            group=group(*hidden, state=MOVING),
            heard={"http://w5:5": SILENCE, "http://w6:6": status("shop", "m2")},
            peers=(peer, Peer(url="http://w6:6")),
        )
    )
    told = [(one.name, one.member.member_id, one.member.address, one.url) for one in found]
    assert told == [("w5", "m1", "", "http://w5:5"), ("w6", "m2", "", "http://w6:6")]
    rivals = [member(name, address="") for name in ("m1", "m3", "m4")]
    found = views_of(
        Evidence(
            group=group(*rivals, state=MOVING),
            heard={"http://w5:5": SILENCE},
            peers=(peer, Peer(url="http://w7:7")),
        )
    )
    [unknown] = [one for one in found if not one.member.member_id]
    assert (unknown.name, unknown.member.address, unknown.url) == ("w5", "w5", "http://w5:5")
    assert (unknown.heard, unknown.peer, unknown.actives) == (SILENCE, peer, {"orders": (3,)})
    assert [one.url for one in found if one.member.member_id] == ["", "", ""]


@pytest.mark.parametrize("state", ["Stable", MOVING])
async def test_workers_are_asked_within_the_given_limit(
    monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """The limit applies to each request for a status, for the peers, and for the rounds."""
    made = net(monkeypatch, group(member("m1", "http://w1:1"), state=state), deadline_s=7.5)
    asked: list[Any] = []

    async def ask_status(urls: Iterable[str], *, deadline_s: float) -> dict[str, Heard]:
        asked.append(("status", deadline_s))
        return dict.fromkeys(urls, status("shop", "m1"))

    async def ask_peers(urls: Iterable[str], *, deadline_s: float) -> dict[str, Peers]:
        asked.append(("peers", deadline_s))
        return {}

    async def ask_rounds(urls: Iterable[str], *, deadline_s: float) -> dict[str, Any]:
        asked.append(("rounds", sorted(urls), deadline_s))
        return {}

    for name, fake in (("status", ask_status), ("peers", ask_peers), ("rounds", ask_rounds)):
        monkeypatch.setattr(collect, f"ask_{name}", fake)
    found = await made.looks.look()
    assert await made.looks.rounds(found) == ()
    kinds = {"Stable": {"status"}, MOVING: {"status", "peers"}}[state]
    assert {entry[0] for entry in asked[:-1]} == kinds
    assert {entry[-1] for entry in asked} == {7.5}
    assert asked[-1][1] == sorted(found.heard)


async def test_end_offsets_are_those_of_the_existing_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One consumer is started for all looks; a topic that was deleted has no partition.

    Partitions without a leader are not asked for: the request would wait for their leader.
    """
    told: list[Any] = []
    lost = set[tuple[str, int]]()

    class Consumer:
        def __init__(self, **options: Any) -> None:
            told.append(options)
            all_ = {"a": {3, 1}, "b": {0}}
            cluster = SimpleNamespace(
                partitions_for_topic=all_.get,
                available_partitions_for_topic=lambda topic: {
                    number for number in all_.get(topic, ()) if (topic, number) not in lost
                },
            )

            async def fetch() -> Any:
                return cluster

            self._client = SimpleNamespace(fetch_all_metadata=fetch)

        async def start(self) -> None:
            told.append("start")

        async def stop(self) -> None:
            told.append("stop")

        async def end_offsets(self, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
            told.append([tuple(one) for one in wanted])
            return {one: 10 * (at + 1) for at, one in enumerate(wanted)}

    monkeypatch.setattr(end_offsets, "AIOKafkaConsumer", Consumer)
    looks = Looks(Where(connection={"client_id": "c"}, group_id="g", deadline_s=9.0), lambda: 0.0)
    for _ in range(2):
        found = await looks._ends.of(frozenset({"b", "gone", "a"}))
        assert found == ({("a", 1): 10, ("a", 3): 20, ("b", 0): 30}, ())
    assert await looks._ends.of(frozenset()) == ({}, ())
    assert looks._ends.leaderless == frozenset()
    lost |= {("a", 3), ("b", 0)}
    assert await looks._ends.of(frozenset({"b", "a"})) == (
        {("a", 1): 10},
        ("Lags are unknown of partitions without a leader: a 3; b 0",),
    )
    assert looks._ends.leaderless == lost
    await looks.close()
    wanted = [("a", 1), ("a", 3), ("b", 0)]
    assert told == [{"client_id": "c"}, "start", wanted, wanted, [("a", 1)], "stop"]


async def test_the_loopback_of_the_coordinators_own_machine_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The coordinator may have an IPv6 address, whose colons are no separators of a port."""
    made = net(monkeypatch, group())
    at: Any = SimpleNamespace(coordinator="::1:9092")
    found = await made.looks._ask(at, ["http://127.0.0.1:6066"])
    assert {one.answer for one in found.values()} == {SILENT}
    far: Any = SimpleNamespace(coordinator="fd00::1:9092")
    found = await made.looks._ask(far, ["http://127.0.0.1:6066"])
    assert {one.answer for one in found.values()} == {NOT_ASKED}
    assert made.asked == [{"http://127.0.0.1:6066"}, set()]
