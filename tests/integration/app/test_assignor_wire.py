"""Faust's own four properties (its tests/meticulous) through our class, over the wire.

Each partition has one owner, replicas as configured, even loads, and stickiness under changes. Each
member is a real Faust app; its memory travels as metadata bytes alone. There are 64 members here;
``make wire`` takes 1,024, as Faust's own tests do. Those call the algorithm below the assignor,
never ``assign()``.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache

import faust
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis.strategies import integers

from tests.support.examples import examples
from tests.support.faust_group import PartitionAssignor, WireGroup, make_app

MEMBERS = int(os.environ.get("WIRE_MEMBERS", str(examples(64, 24))))
EXAMPLES = int(os.environ.get("WIRE_EXAMPLES", str(examples(12, 5))))
SOURCE, LOGS = "foo", ("shop-bar-changelog", "shop-baz-changelog")
MOST_CHANGED = 16


@cache
def app_of(member: int) -> faust.App:
    """Return the app of a member: apps are costly, and keep no state but the assignor."""
    return make_app(f"http://w{member}:6066", tables=["bar", "baz"])


slow = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
partition_counts = integers(min_value=0, max_value=256)
replica_counts = integers(min_value=0, max_value=64)
member_counts = integers(min_value=1, max_value=MEMBERS)
changes = integers(min_value=1, max_value=MOST_CHANGED)


def group_of(members: range, partitions: int, replicas: int) -> WireGroup:
    """A group of new members after one rebalance."""
    group = WireGroup(dict.fromkeys((SOURCE, *LOGS), partitions))
    join(group, members, replicas)
    group.rebalance()
    return group


def join(group: WireGroup, members: range, replicas: int) -> None:
    """Add new members, each with an assignor without memory."""
    for i in members:
        app_of(i).__dict__["assignor"] = PartitionAssignor(app_of(i), replicas=replicas)
        group.add(f"{i:04}", app_of(i), group.partitions)


def check(group: WireGroup, replicas: int) -> dict[int, str]:
    """Check that each partition has one active and ``replicas`` standbys; return the owners."""
    owners = group.actives(SOURCE)
    assert sorted(owners) == list(range(group.partitions[SOURCE]))
    for log in LOGS:
        assert group.actives(log) == owners
        for partition, members in group.standbys(log).items():
            assert len(members) == replicas
            assert owners[partition] not in members
    assert not any(group.standbys(SOURCE).values())
    assert all(app.assignor.counters["fallbacks"] == 0 for app in group.apps.values())
    return owners


def spread(group: WireGroup, owners: dict[int, str]) -> int:
    """Return the largest load minus the smallest load."""
    loads = Counter(dict.fromkeys(group.apps, 0))
    loads.update(owners.values())
    return max(loads.values()) - min(loads.values())


@slow
@given(partition_counts, replica_counts, member_counts)
def test_fresh_assignment(partitions: int, replicas: int, members: int) -> None:
    """Members without memory get a valid, replicated and even assignment."""
    assume(replicas < members)
    group = group_of(range(members), partitions, replicas)
    owners = check(group, replicas)
    assert spread(group, owners) <= 1


@pytest.mark.slow
@slow
@given(partition_counts, replica_counts, member_counts, changes)
def test_add_new_members(partitions: int, replicas: int, members: int, added: int) -> None:
    """Former members only give, new members only take, and loads are even at once."""
    assume(replicas < members)
    group = group_of(range(members), partitions, replicas)
    before = check(group, replicas)
    join(group, range(members, members + added), replicas)
    group.rebalance(f"{members:04}")
    after = check(group, replicas)
    assert all(before[p] == m or int(m) >= members for p, m in after.items())
    assert spread(group, after) <= 1


@pytest.mark.slow
@slow
@given(partition_counts, replica_counts, member_counts, changes)
def test_remove_members(partitions: int, replicas: int, members: int, removed: int) -> None:
    """Only their partitions move, to standbys where possible; the next round evens the loads."""
    assume(removed < members and replicas < members - removed)
    group = group_of(range(members), partitions, replicas)
    before, standbys = check(group, replicas), group.standbys(LOGS[0])
    for i in range(members - removed, members):
        group.remove(f"{i:04}")
    group.rebalance()
    after = check(group, replicas)
    for partition, owner in before.items():
        if owner in group.apps:
            assert after[partition] == owner
        elif alive := standbys[partition] & group.apps.keys():
            assert after[partition] in alive
    group.rebalance()
    assert spread(group, check(group, replicas)) <= 1


@slow
@given(
    integers(min_value=2, max_value=256),
    integers(min_value=2, max_value=MEMBERS),
    integers(min_value=1, max_value=8),
)
def test_standby_assignment_terminates_and_settles(
    partitions: int, members: int, replicas: int
) -> None:
    """Stock can loop here; with ours a second round under another leader moves no partition."""
    assume(replicas < members)
    group = group_of(range(members), partitions, replicas)
    before = check(group, replicas), group.standbys(LOGS[0])
    group.rebalance(f"{members - 1:04}")
    assert (check(group, replicas), group.standbys(LOGS[0])) == before


def test_the_largest_group() -> None:
    """All members and twice as many partitions; a member joins and a member leaves."""
    group = group_of(range(MEMBERS), 2 * MEMBERS, 1)
    before = check(group, 1)
    join(group, range(MEMBERS, MEMBERS + 1), 1)
    group.rebalance()
    after = check(group, 1)
    assert [m for p, m in after.items() if m != before[p]] == [f"{MEMBERS:04}"]
    group.remove("0000")
    group.rebalance()
    check(group, 1)
