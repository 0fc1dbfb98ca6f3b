"""A heartbeat's cost grows neither with the members nor with the lists that a client sends.

The cost is a number of instructions, not a time: a set difference is a single instruction.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from faust_assigner.coordinator.events import ConsumerGroupHeartbeat
from faust_assigner.coordinator.settings import ConsumerLimits
from tests.support.coordination.consumer_bench import Bench, topic_id
from tests.support.work import instructions

FEW, MANY = 20, 400
STRANGE = tuple(f"strange{number}" for number in range(2 * MANY))


def settled(members: int) -> Bench:
    """Return a group whose next target computation is far away."""
    bench = Bench(ConsumerLimits(assignment_interval_ms=600_000), a=4)
    for number in range(members):
        bench.join(f"m{number}")
    return bench


def says_other_names(count: int) -> Callable[[], object]:
    """Return a heartbeat with many unknown topics, all but the first as before."""
    bench = settled(1)
    bench.join("m0", *STRANGE[:count])
    said = {"subscribed_topic_names": STRANGE[1 : count + 1], "rebalance_timeout_ms": 60_000}
    event = ConsumerGroupHeartbeat(0, "m0", 0, owned={}, **said)  # type: ignore[arg-type]
    return lambda: bench.group.step(event, bench.now)


def claims_what_it_has_not(count: int) -> Callable[[], object]:
    """Return a heartbeat that claims many partitions, with the member's pending revocations."""
    bench = Bench(a=4)
    epoch = bench.join("m0").member_epoch
    bench.join("m1")
    assert bench.given(bench.heartbeat("m0", epoch, {"a": (0, 1, 2, 3)})) == {"a": (0, 1)}
    owned = {topic_id("0"): tuple(range(count)), topic_id("a"): (0, 1, 2, 3)}
    event = ConsumerGroupHeartbeat(0, "m0", epoch, owned=owned)
    return lambda: bench.group.step(event, bench.now)


def joins(members: int) -> Callable[[], object]:
    """Return a join to a group of this many members."""
    bench = settled(members)
    fields = {"subscribed_topic_names": ("a",), "rebalance_timeout_ms": 60_000, "owned": {}}
    event = ConsumerGroupHeartbeat(0, "new", 0, **fields)  # type: ignore[arg-type]
    return lambda: bench.group.step(event, bench.now)


def joins_by_its_own_words(members: int) -> Callable[[], object]:
    """Return a join with a regular expression; every member has its own expression."""
    bench = Bench(ConsumerLimits(assignment_interval_ms=600_000), a=4)
    for number in range(members):
        bench.join(f"m{number}", subscribed_topic_regex=f"a|b{number}")
    fields = {"subscribed_topic_regex": "a|c", "rebalance_timeout_ms": 60_000, "owned": {}}
    event = ConsumerGroupHeartbeat(0, "new", 0, **fields)  # type: ignore[arg-type]
    return lambda: bench.group.step(event, bench.now)


def beats(members: int) -> Callable[[], object]:
    """Return an unchanged member's heartbeat."""
    bench = settled(members)
    epoch = bench.group.book.at("m0").epoch  # type: ignore[attr-defined]
    return lambda: bench.group.step(ConsumerGroupHeartbeat(0, "m0", epoch), bench.now)


def asks_when(members: int) -> Callable[[], object]:
    """Return the question for the next deadline, which follows every heartbeat."""
    bench = settled(members)
    return lambda: bench.group.next_deadline_ms


@pytest.mark.parametrize(
    "heartbeat_of",
    [says_other_names, claims_what_it_has_not, joins, joins_by_its_own_words, beats, asks_when],
)
def test_a_heartbeat_costs_the_same_for_twenty_times_the_list_or_the_members(
    heartbeat_of: Callable[[int], Callable[[], object]],
) -> None:
    """The limit allows a logarithm."""
    few, many = instructions(heartbeat_of(FEW)), instructions(heartbeat_of(MANY))
    assert 0 < many <= 2 * few + 50, f"{few} -> {many}"
