"""The broker is killed or restarted under real members: settled, moving, and in each migration."""

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
NEW: dict[str, Any] = {}
PROTOCOLS = {  # of the first two members, and of the third
    "settled": (NEW, NEW), "moving": (NEW, NEW), "migrating": (NEW, CLASSIC),
    "upgraded": (CLASSIC, NEW), "downgraded": (CLASSIC, NEW),
}  # fmt: skip
Start = Callable[..., Member]


def member_ids(cluster: Cluster, group: str) -> dict[str, str]:
    """Return client id -> member id."""
    return {m.client_id: m.member_id for m in cluster.group(group).members}


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(
    ("phase", "ends"),
    [("settled", "kill"), ("moving", "kill"), ("migrating", "kill"), ("upgraded", "kill"),
     ("downgraded", "kill"), ("moving", "stop"), ("migrating", "stop")],
)  # fmt: skip
def test_members_go_on_after_a_kill(tmp_path: Path, phase: str, ends: str) -> None:
    """Ids stay, no partition has two owners or is revoked in vain; all records are read."""
    broker = BrokerProcess(tmp_path, *SETTINGS)
    ledger, group = Ledger(), f"group-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        stack.callback(lambda: broker.kill())
        cluster = Cluster(broker.bootstrap)
        stack.callback(cluster.close)
        cluster.create("t", 6, 5)

        def start(name: str, **config: Any) -> Member:
            return stack.enter_context(
                Member(broker.bootstrap, group, ["t"], ledger, name, **config)
            )

        first, third = PROTOCOLS[phase]
        one, two = start("one", **first), start("two", **first)
        until(lambda: len(one.owned) == len(two.owned) == 3, lambda: f"3 and 3: {ledger.moves}")
        members, shares = [one, two], [3, 3]
        ids = member_ids(cluster, group)
        if phase != "settled":
            members.append(start("three", **third))
            shares = [2, 2, 2]
            until(lambda: len(member_ids(cluster, group)) == 3, "a third member")
        if phase == "downgraded":
            until(
                lambda: [len(m.owned) for m in members] == shares,
                lambda: f"{shares}: {ledger.moves}",
            )
            members.pop().stop()
            shares = [3, 3]
        moves = len(ledger.moves)
        getattr(broker, ends)()
        broker = BrokerProcess(tmp_path, *SETTINGS, port=broker.port)
        # librdkafka's admin client may repeat a call to a coordinator that it gave up meanwhile.
        cluster = Cluster(broker.bootstrap)
        stack.callback(cluster.close)
        until(
            lambda: [len(m.owned) for m in members] == shares and len(ledger.owner) == 6,
            lambda: f"{shares}: {ledger.moves}",
        )
        cluster.produce("t", 6, 1)
        until(
            lambda: sum(s[2] == 5 for m in members for s in m.seen) == 6,
            "the records after the kill",
        )
        after = member_ids(cluster, group)
        assert ledger.doubles == []
        assert {name: after[name] for name in ids} == ids
        given_up = {
            who: sum(len(p) for w, sign, p in ledger.moves[moves:] if (w, sign) == (who, "-"))
            for who in ids
        }
        assert all(count <= 1 for count in given_up.values()), ledger.moves
        until(lambda: cluster.group(group).state.name == "STABLE", "rest")
        assert cluster.group(group).type.name == (
            "CLASSIC" if phase == "downgraded" else "CONSUMER"
        )
