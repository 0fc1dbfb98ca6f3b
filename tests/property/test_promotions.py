"""Orphans of this round: their placement is optimal for the whole objective among the holders."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from faust_assigner import Member, Plan, plan
from faust_assigner.actives.counts import rates
from faust_assigner.actives.semi_matching import Orphans
from faust_assigner.checks.case import Case
from faust_assigner.checks.reading import copies_of
from faust_assigner.model import NOBODY
from tests.property.instances import carried
from tests.property.orphans_oracle import min_cost, terms

TOPICS = {"orders": 7, "orders-log": 7, "users": 5, "users-log": 5, "clicks": 9}
LOGS = frozenset({"orders-log", "users-log"})


def sized(members: int) -> dict[str, int]:
    """Return partition counts for ``members``: some groups wider than the group, some narrower."""
    return {topic: count * max(1, members // 6) for topic, count in TOPICS.items()}


def answered(members: list[Member], partitions: dict[str, int], replicas: int) -> Plan:
    """Return the planner's answer."""
    return plan(members, partitions, replicas=replicas, changelogs=LOGS)


def restarted(member: Member, *, remembers: bool) -> Member:
    """Return a restarted member: its files, and its former partitions if ``remembers``."""
    held = {t: sorted({*member.actives.get(t, ()), *member.standbys.get(t, ())}) for t in LOGS}
    former = dict(member.actives) if remembers else {}
    return replace(
        member,
        actives={},
        standbys=held,
        former_actives=former,
        generation=member.generation if remembers else -1,
    )


def orphans_of(
    members: list[Member], partitions: dict[str, int], made: Plan, replicas: int
) -> tuple[Orphans, list[int]]:
    """Return the plan's orphans as an oracle's case, and their placement in the plan."""
    case = Case(sorted(members, key=lambda m: m.member_id), partitions, LOGS, replicas, frozenset())
    rows, width = [u for u, unit in enumerate(case.units) if unit.adds_load], len(members)
    settled = np.zeros((len(rows), width), dtype=np.int64)
    group, former, target, where, holders = [], [], [], [], []
    for row, u in enumerate(rows):
        unit = case.units[u]
        g = next(i for i, one in enumerate(made.groups) if unit.topics[0] in one.topics)
        copies = copies_of(unit, case.members) if unit.changelogs else [{}] * unit.count
        for p in range(unit.count):
            if case.before[u][p] != NOBODY or not copies[p]:
                settled[row, made.owner[g][p]] += 1
                continue
            most = max(copies[p].values())
            group.append(row)
            former.append(case.last[u][p])
            target.append(int(made.target[g][p]))
            where.append(int(made.owner[g][p]))
            holders.append(sorted(m for m, logs in copies[p].items() if logs == most))
    return Orphans(
        group=np.array(group, dtype=np.int64),
        former=np.array(former, dtype=np.int64),
        target=np.array(target, dtype=np.int64),
        orphan=np.repeat(np.arange(len(group)), [len(h) for h in holders]).astype(np.int64),
        holder=np.array([m for h in holders for m in h], dtype=np.int64),
        settled=settled,
        state=None,
        rate=rates(np.array([m.capacity for m in case.members])),
    ), where


@pytest.mark.parametrize("members", [3, 4, 7, 20, 60, 200])
def test_after_deaths_and_stops_orphans_are_where_the_oracle_would_put_them(members: int) -> None:
    """Some members die and some restart with files: all four terms equal the oracle's."""
    partitions, replicas = sized(members), 1
    for seed in range(12 if members < 60 else 2):
        rng = Random(f"{members} {seed}")
        group = [Member(f"m{m:03d}", TOPICS) for m in range(members)]
        group = carried(group, answered(group, partitions, replicas), 1)
        gone = set(rng.sample(range(members), rng.randint(0, max(1, members // 4))))
        back = 1.0 if seed % 3 == 0 else 0.4
        group = [
            restarted(m, remembers=rng.random() < 0.8) if rng.random() < back else m
            for i, m in enumerate(group)
            if i not in gone
        ]
        made = answered(group, partitions, replicas)
        case, where = orphans_of(group, partitions, made, replicas)
        if where:
            assert terms(case, where) == min_cost(case), (members, seed)


@pytest.mark.parametrize("members", [1, 2, 3, 5, 12, 50, 200])
@pytest.mark.parametrize("replicas", [0, 1, 2])
def test_stop_all_start_all_moves_nothing(members: int, replicas: int) -> None:
    """All members return with files and former partitions: the owners stay, on target and warm."""
    partitions = sized(members)
    group = [Member(f"m{m:03d}", TOPICS) for m in range(members)]
    rng = Random(members)
    for generation in range(1, 4):  # earlier joins leave the owners in no simple order
        group = carried(group, answered(group, partitions, replicas), generation)
        group = [m for m in group if len(group) == 1 or rng.random() < 0.9] or group
        group.append(Member(f"n{generation}", TOPICS))
    for _ in range(3):
        before = answered(group, partitions, replicas)
        group = carried(group, before, 9)
    group = [restarted(m, remembers=True) for m in group]
    after = answered(group, partitions, replicas)
    for topic_before, topic_after in zip(before.owner, after.owner, strict=True):
        assert topic_before.tolist() == topic_after.tolist()
    assert after.report()["off_target"] == 0
    assert after.report()["cold_moves"] == 0


@pytest.mark.parametrize(
    ("owned", "spare"),
    [
        ({"a": [0, 5], "b": [1, 3], "c": [2, 4]}, {"a": [1, 2], "b": [0, 4], "c": [3, 5]}),
        ({"a": [4, 5], "b": [2, 3], "c": [0, 1]}, {"a": [0, 2], "b": [1, 4], "c": [3, 5]}),
    ],
)
def test_three_workers_of_six_partitions_come_back_as_they_were(
    owned: dict[str, list[int]], spare: dict[str, list[int]]
) -> None:
    """Each worker owned two partitions and has files of two more; no partition moves."""
    members = [
        Member(
            m,
            ["orders", "orders-log"],
            former_actives={"orders": owned[m], "orders-log": owned[m]},
            standbys={"orders-log": sorted(owned[m] + spare[m])},
            generation=4,
        )
        for m in owned
    ]
    found = plan(members, {"orders": 6, "orders-log": 6}, replicas=1, changelogs={"orders-log"})
    assert {m: found.actives(m)["orders"] for m in owned} == owned
    assert {m: found.standbys(m)["orders-log"] for m in owned} == spare


def test_the_newer_memory_of_two_is_believed() -> None:
    """Member a, away for long, does not know the later owners of partition 1."""
    members = [
        Member("a", ["t"], former_actives={"t": [0, 1]}, generation=3),
        Member("b", ["t"], former_actives={"t": [1, 2, 3]}, generation=7),
    ]
    found = plan(members, {"t": 4})
    assert found.previous.former.tolist() == [0, 1, 1, 1]
    assert 0 in found.actives("a")["t"]
    assert len(set(found.actives("b")["t"]) & {1, 2, 3}) == 2


def test_a_memory_is_no_claim() -> None:
    """The owner keeps its task against an older member's former ownership."""
    members = [
        Member("a", ["t"], actives={"t": [0, 1]}, generation=3),
        Member("b", ["t"], former_actives={"t": [0, 1]}, generation=9),
    ]
    found = plan(members, {"t": 2})
    assert found.moves == 1
    assert found.previous.former.tolist() == [NOBODY, NOBODY]
    assert len(found.actives("a")["t"]) == 1


def test_a_memory_without_the_state_gives_way() -> None:
    """The former owner lost its disk: the task goes to the member with the files."""
    members = [
        Member("a", ["t", "t-log"], former_actives={"t": [0], "t-log": [0]}, generation=3),
        Member("b", ["t", "t-log"], standbys={"t-log": [0]}),
    ]
    found = plan(members, {"t": 1, "t-log": 1}, replicas=0, changelogs={"t-log"})
    assert found.actives("b") == {"t": [0], "t-log": [0]}
    assert found.report()["off_target"] == 0
