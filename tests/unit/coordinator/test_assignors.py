"""The server-side assignors: even, sticky, contiguous, together; and exact where it says so."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping

import pytest

from faust_assigner.coordinator.assignors import ASSIGNORS, GroupSpec, MemberSpec, Target, compute
from faust_assigner.coordinator.catalogue import Topic
from tests.support.coordination.consumer_bench import topic_id


def spec(
    assignor: str,
    reads: Mapping[str, str],
    partitions: Mapping[str, int],
    before: Target | None = None,
    instances: Mapping[str, str] | None = None,
) -> GroupSpec:
    """A group: member -> topics as letters, topic -> partitions."""
    topics = {
        topic_id(name): Topic(name, topic_id(name), count) for name, count in partitions.items()
    }
    members = {
        m: MemberSpec(
            frozenset(map(topic_id, names)),
            (instances or {}).get(m),
            None,
            (before or {}).get(m, {}),
        )
        for m, names in reads.items()
    }
    return GroupSpec(assignor, members, topics)


def loads(target: Target) -> list[int]:
    """Partitions per member, ascending."""
    return sorted(sum(map(len, share.values())) for share in target.values())


def flat(target: Target) -> dict[tuple[bytes, int], str]:
    """Whose each partition is; every one once."""
    pairs = [
        ((t, p), m) for m, share in target.items() for t, parts in share.items() for p in parts
    ]
    assert max(Counter(pair for pair, _ in pairs).values(), default=1) == 1
    return dict(pairs)


def stays(one: Target, other: Target) -> int:
    """How many partitions have the same owner in both."""
    before = flat(other)
    return sum(before.get(pair) == m for pair, m in flat(one).items())


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
def test_every_partition_of_every_topic_read_is_given_once_to_a_reader(assignor: str) -> None:
    """Mixed subscriptions included; a member that reads nothing is given an empty share."""
    group = spec(assignor, {"m1": "ab", "m2": "b", "m3": "bc", "m4": ""}, {"a": 3, "b": 5, "c": 2})
    target = compute(group)
    assert set(target) == set(group.members)
    assert len(flat(target)) == 10
    for member_id, share in target.items():
        assert share.keys() <= group.members[member_id].topics


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
def test_the_same_group_in_another_order_gives_the_same_target(assignor: str) -> None:
    """Neither the order of members nor that of topics matters."""
    reads, partitions = {"m1": "ab", "m2": "b", "m3": "ab"}, {"a": 5, "b": 4}
    one = compute(spec(assignor, reads, partitions))
    backwards = spec(assignor, dict(reversed(reads.items())), dict(reversed(partitions.items())))
    assert compute(backwards) == one


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
def test_an_unchanged_group_keeps_its_target(assignor: str) -> None:
    """What was assigned stays as it is."""
    reads, partitions = {"m1": "ab", "m2": "bc", "m3": "a"}, {"a": 7, "b": 4, "c": 3}
    one = compute(spec(assignor, reads, partitions))
    assert compute(spec(assignor, reads, partitions, one)) == one


def test_range_gives_equal_topics_alike_in_contiguous_runs() -> None:
    """Members read both topics, so number p of each is with one member."""
    target = compute(spec("range", {"m1": "ab", "m2": "ab"}, {"a": 3, "b": 3}))
    both = {topic_id("a"), topic_id("b")}
    assert target == {"m1": dict.fromkeys(both, (0, 1)), "m2": dict.fromkeys(both, (2,))}


def test_range_keeps_a_static_members_place_in_line() -> None:
    """Under another member id, the same instance has the same run."""
    at_first = compute(spec("range", {"x": "a", "y": "a"}, {"a": 2}, None, {"x": "i1", "y": "i2"}))
    later = compute(spec("range", {"z": "a", "y": "a"}, {"a": 2}, None, {"z": "i1", "y": "i2"}))
    assert (later["z"], later["y"]) == (at_first["x"], at_first["y"])


def test_copartition_keeps_numbers_together_while_it_moves_few() -> None:
    """A third member takes a third of the numbers, both topics of each."""
    before = compute(spec("copartition", {"m1": "ab", "m2": "ab"}, {"a": 6, "b": 6}))
    after = compute(
        spec("copartition", {"m1": "ab", "m2": "ab", "m3": "ab"}, {"a": 6, "b": 6}, before)
    )
    for share in after.values():
        assert share[topic_id("a")] == share[topic_id("b")]
    assert (loads(after), stays(after, before)) == ([4, 4, 4], 8)


def test_uniform_moves_only_what_a_newcomer_needs() -> None:
    """Ten partitions, two members: the third gets three, seven stay."""
    before = compute(spec("uniform", {"m1": "a", "m2": "a"}, {"a": 10}))
    after = compute(spec("uniform", {"m1": "a", "m2": "a", "m3": "a"}, {"a": 10}, before))
    assert (loads(after), stays(after, before)) == ([3, 3, 4], 7)


def test_uniform_moves_first_what_has_not_arrived_yet() -> None:
    """m1 was to have all four and holds two of them: those it keeps."""
    everything = {topic_id("a"): (0, 1, 2, 3)}
    members = {
        "m1": MemberSpec(frozenset(everything), target=everything, held={topic_id("a"): (2, 3)}),
        "m2": MemberSpec(frozenset(everything)),
    }
    topics = {topic_id("a"): Topic("a", topic_id("a"), 4)}
    target = compute(GroupSpec("uniform", members, topics))
    assert target == {"m1": {topic_id("a"): (2, 3)}, "m2": {topic_id("a"): (0, 1)}}


def _best(group: GroupSpec) -> tuple[int, int]:
    """By trying everything: the least sum of squared loads, and with it the most that stays."""
    before = flat({m: s.target for m, s in group.members.items()})
    pairs = [(t, p) for t, topic in sorted(group.topics.items()) for p in range(topic.partitions)]
    readers = [[m for m in sorted(group.members) if t in group.members[m].topics] for t, _ in pairs]

    def worth(owners: tuple[str, ...]) -> tuple[int, int]:
        stay = sum(before.get(pair) == m for pair, m in zip(pairs, owners, strict=True))
        return sum(n * n for n in Counter(owners).values()), -stay

    return min(map(worth, itertools.product(*readers)))


@pytest.mark.parametrize("seed", range(60))
def test_uniform_is_exact_on_mixed_subscriptions(seed: int) -> None:
    """Against every possible assignment of small groups: the loads, and what stays."""
    draw = random.Random(seed)
    partitions = {name: draw.randint(1, 3) for name in "abc"}
    reads = {
        f"m{k}": "".join(draw.sample("abc", draw.randint(1, 3))) for k in range(draw.randint(2, 4))
    }
    partitions = {
        n: c for n, c in partitions.items() if any(n in names for names in reads.values())
    }
    old = {m: "".join(draw.sample("abc", draw.randint(1, 3))) for m in reads}
    old_topics = {n: c for n, c in partitions.items() if any(n in names for names in old.values())}
    earlier = compute(spec("range", old, old_topics))
    readable = {
        m: {t: ps for t, ps in share.items() if t in map(topic_id, reads[m])}
        for m, share in earlier.items()
    }
    group = spec("uniform", reads, partitions, readable)
    target = compute(group)
    squares = sum(n * n for n in loads(target))
    assert (squares, -stays(target, readable)) == _best(group)
