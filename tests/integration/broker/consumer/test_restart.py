"""kill -9 of the broker under real members of the consumer protocol: settled, moving, migrating."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.testing.broker import BrokerProcess
from tests.support.coordination.librdkafka_members import Cluster, Ledger, Member, until

SETTINGS = (
    "group.consumer.heartbeat.interval.ms=500",
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.assignment.interval.ms=0",
)
CLASSIC = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 30_000,
    "heartbeat.interval.ms": 500,
}
Start = Callable[..., Member]


def member_ids(cluster: Cluster, group: str) -> dict[str, str]:
    """Member ids by client id."""
    return {m.client_id: m.member_id for m in cluster.group(group).members}


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("phase", ["settled", "moving", "migrating"])
def test_members_go_on_after_a_kill(tmp_path: Path, phase: str) -> None:
    """The same ids, nothing held twice, nothing given up that was not asked for; all is read."""
    broker = BrokerProcess(tmp_path, *SETTINGS)
    ledger, group = Ledger(), f"group-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        stack.callback(lambda: broker.kill())
        cluster = Cluster(broker.bootstrap)
        stack.callback(cluster.close)
        cluster.create("t", 6, 5)

        def start(name: str, **config: Any) -> Member:
            return stack.enter_context(Member(broker.bootstrap, group, ["t"], ledger, name, **config))

        one, two = start("one"), start("two")
        until(lambda: len(one.owned) == len(two.owned) == 3, lambda: f"3 and 3: {ledger.moves}")
        members, shares = [one, two], [3, 3]
        ids = member_ids(cluster, group)
        if phase != "settled":
            members.append(start("three", **(CLASSIC if phase == "migrating" else {})))
            shares = [2, 2, 2]
            until(lambda: len(member_ids(cluster, group)) == 3, "a third member")
        moves = len(ledger.moves)
        broker.kill()
        broker = BrokerProcess(tmp_path, *SETTINGS, port=broker.port)
        until(
            lambda: [len(m.owned) for m in members] == shares and len(ledger.owner) == 6,
            lambda: f"{shares}: {ledger.moves}",
        )
        cluster.produce("t", 6, 1)
        until(lambda: sum(s[2] == 5 for m in members for s in m.seen) == 6, "the records after the kill")
        after = member_ids(cluster, group)
        assert ledger.doubles == []
        assert {name: after[name] for name in ids} == ids
        given_up = {
            who: sum(len(p) for w, sign, p in ledger.moves[moves:] if (w, sign) == (who, "-")) for who in ids
        }
        assert all(count <= 1 for count in given_up.values()), ledger.moves
        assert cluster.group(group).state.name == "STABLE"
