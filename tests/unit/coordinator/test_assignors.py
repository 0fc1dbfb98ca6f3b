"""The server-side assignors: even, sticky, contiguous, co-partitioned, and exact where promised."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from faust_assigner.coordinator.assignors import (
    ASSIGNORS,
    GroupSpec,
    MemberSpec,
    Target,
    compute,
    uniform,
)
from faust_assigner.coordinator.catalogue import Topic
from tests.support.coordination.consumer_bench import topic_id


def spec(
    assignor: str,
    reads: Mapping[str, str],
    partitions: Mapping[str, int],
    before: Target | None = None,
    instances: Mapping[str, str] | None = None,
) -> GroupSpec:
    """Return a group of members with topics as letters, and topics with partition counts."""
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
    """Return each member's number of partitions, in ascending order."""
    return sorted(sum(map(len, share.values())) for share in target.values())


def flat(target: Target) -> dict[tuple[bytes, int], str]:
    """Return the owner of each partition; no partition has two owners."""
    pairs = [
        ((t, p), m) for m, share in target.items() for t, parts in share.items() for p in parts
    ]
    assert max(Counter(pair for pair, _ in pairs).values(), default=1) == 1
    return dict(pairs)


def stays(one: Target, other: Target) -> int:
    """Return the number of partitions with the same owner in both targets."""
    before = flat(other)
    return sum(before.get(pair) == m for pair, m in flat(one).items())


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
def test_every_partition_of_every_topic_read_is_given_once_to_a_reader(assignor: str) -> None:
    """Members' subscriptions differ; a member without topics gets an empty share."""
    group = spec(assignor, {"m1": "ab", "m2": "b", "m3": "bc", "m4": ""}, {"a": 3, "b": 5, "c": 2})
    target = compute(group)
    assert set(target) == set(group.members)
    assert len(flat(target)) == 10
    for member_id, share in target.items():
        assert share.keys() <= group.members[member_id].topics


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
def test_the_same_group_in_another_order_gives_the_same_target(assignor: str) -> None:
    """Neither the order of members nor the order of topics matters."""
    reads, partitions = {"m1": "ab", "m2": "b", "m3": "ab"}, {"a": 5, "b": 4}
    one = compute(spec(assignor, reads, partitions))
    backwards = spec(assignor, dict(reversed(reads.items())), dict(reversed(partitions.items())))
    assert compute(backwards) == one


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
def test_a_topic_without_readers_or_partitions_is_in_no_target(assignor: str) -> None:
    """No member reads "c", and "d" has no partition."""
    partitions = {"a": 2, "c": 3, "d": 0}
    target = compute(spec(assignor, {"m1": "ad", "m2": "ad"}, partitions))
    assert target == {"m1": {topic_id("a"): (0,)}, "m2": {topic_id("a"): (1,)}}


@pytest.mark.parametrize("assignor", ["copartition", "uniform"])
def test_the_partitions_of_a_former_reader_are_free_for_the_readers(assignor: str) -> None:
    """m3 had two of three partitions and no longer reads "a": m1 gets both, m2 keeps its own."""
    before = {"m2": {topic_id("a"): (0,)}, "m3": {topic_id("a"): (1, 2)}}
    partitions = {"a": 3, "c": 2}
    target = compute(spec(assignor, {"m1": "a", "m2": "a", "m3": "c"}, partitions, before))
    assert target == {
        "m1": {topic_id("a"): (1, 2)},
        "m2": {topic_id("a"): (0,)},
        "m3": {topic_id("c"): (0, 1)},
    }


def test_the_size_of_a_group_counts_each_subscription_and_each_partition() -> None:
    """The size is 2 + 1 subscriptions, 1 for the member without topics, and 3 + 5 partitions."""
    group = spec("uniform", {"m1": "ab", "m2": "b", "m3": ""}, {"a": 3, "b": 5})
    assert group.size == 12


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
def test_an_unchanged_group_keeps_its_target(assignor: str) -> None:
    """Every partition keeps its owner."""
    reads, partitions = {"m1": "ab", "m2": "bc", "m3": "a"}, {"a": 7, "b": 4, "c": 3}
    one = compute(spec(assignor, reads, partitions))
    assert compute(spec(assignor, reads, partitions, one)) == one


def test_range_gives_equal_topics_alike_in_contiguous_runs() -> None:
    """All members read both topics, so partition p of both topics has the same member."""
    target = compute(spec("range", {"m1": "ab", "m2": "ab"}, {"a": 3, "b": 3}))
    both = {topic_id("a"), topic_id("b")}
    assert target == {"m1": dict.fromkeys(both, (0, 1)), "m2": dict.fromkeys(both, (2,))}


@pytest.mark.parametrize(
    ("partitions", "runs"),
    [
        (1, [(0,), None, None]),
        (3, [(0,), (1,), (2,)]),
        (4, [(0, 1), (2,), (3,)]),
        (5, [(0, 1), (2, 3), (4,)]),
        (8, [(0, 1, 2), (3, 4, 5), (6, 7)]),
    ],
)
def test_range_gives_the_longer_runs_to_the_first_members(
    partitions: int, runs: list[tuple[int, ...] | None]
) -> None:
    """Each run begins after its predecessor; a member without a run has no entry of the topic."""
    target = compute(spec("range", {"m3": "a", "m1": "a", "m2": "a"}, {"a": partitions}))
    assert [target[m].get(topic_id("a")) for m in ("m1", "m2", "m3")] == runs


def test_range_keeps_a_static_members_place_in_line() -> None:
    """An instance with a new member id has its former run."""
    at_first = compute(spec("range", {"x": "a", "y": "a"}, {"a": 2}, None, {"x": "i1", "y": "i2"}))
    later = compute(spec("range", {"z": "a", "y": "a"}, {"a": 2}, None, {"z": "i1", "y": "i2"}))
    assert (later["z"], later["y"]) == (at_first["x"], at_first["y"])


def test_copartition_keeps_numbers_together_while_it_moves_few() -> None:
    """The third member gets a third of the partition numbers, for both topics."""
    before = compute(spec("copartition", {"m1": "ab", "m2": "ab"}, {"a": 6, "b": 6}))
    after = compute(
        spec("copartition", {"m1": "ab", "m2": "ab", "m3": "ab"}, {"a": 6, "b": 6}, before)
    )
    for share in after.values():
        assert share[topic_id("a")] == share[topic_id("b")]
    assert (loads(after), stays(after, before)) == ([4, 4, 4], 8)


def test_uniform_moves_only_what_a_newcomer_needs() -> None:
    """The third member gets three of ten partitions; seven stay."""
    before = compute(spec("uniform", {"m1": "a", "m2": "a"}, {"a": 10}))
    after = compute(spec("uniform", {"m1": "a", "m2": "a", "m3": "a"}, {"a": 10}, before))
    assert (loads(after), stays(after, before)) == ([3, 3, 4], 7)


def test_uniform_moves_first_what_has_not_arrived_yet() -> None:
    """m1 has a target of four partitions and holds two of them, which it keeps."""
    everything = {topic_id("a"): (0, 1, 2, 3)}
    members = {
        "m1": MemberSpec(frozenset(everything), target=everything, held={topic_id("a"): (2, 3)}),
        "m2": MemberSpec(frozenset(everything)),
    }
    topics = {topic_id("a"): Topic("a", topic_id("a"), 4)}
    target = compute(GroupSpec("uniform", members, topics))
    assert target == {"m1": {topic_id("a"): (2, 3)}, "m2": {topic_id("a"): (0, 1)}}


def test_uniform_looks_at_every_member_and_topic_for_partitions_that_arrived() -> None:
    """m1 and m2 hold each topic's last partition; the newcomer gets partitions not yet held."""
    a, b = topic_id("a"), topic_id("b")
    targets = {"m1": {a: (0, 1, 2), b: (0, 1, 2)}, "m2": {a: (3, 4, 5), b: (3, 4, 5)}}
    held = {"m1": {a: (2,), b: (1, 2)}, "m2": {a: (5,), b: (4, 5)}}
    members = {m: MemberSpec(frozenset({a, b}), target=targets[m], held=held[m]) for m in targets}
    members["m3"] = MemberSpec(frozenset({a, b}))
    topics = {a: Topic("a", a, 6), b: Topic("b", b, 6)}
    target = compute(GroupSpec("uniform", members, topics))
    assert target == {
        "m1": {a: (0, 2), b: (1, 2)},
        "m2": {a: (3, 5), b: (4, 5)},
        "m3": {a: (1, 4), b: (0, 3)},
    }


CIRCLE = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=np.bool_)  # the readers of each class


@pytest.mark.parametrize(
    ("counts", "held", "after"),
    [
        ([[0, 1, 0], [0, 0, 1], [1, 0, 0]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], "held"),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[0, 1, 0], [0, 0, 1], [1, 0, 0]], "held"),
        ([[0, 1, 0], [0, 0, 1], [1, 0, 0]], [[1, 0, 0], [0, 1, 0], [1, 0, 0]], "turned"),
        ([[0, 1, 0], [0, 0, 1], [1, 0, 0]], [[1, 0, 0], [0, 0, 1], [1, 0, 0]], "counts"),
    ],
    ids=["one way", "the other way", "two won for one lost", "one won for two lost"],
)
def test_uniform_passes_partitions_around_a_circle_that_lets_more_stay(
    counts: list[list[int]], held: list[list[int]], after: str
) -> None:
    """No two members share two classes, so only all three members can exchange partitions."""
    turned = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    found = uniform.keep_more(np.array(counts), np.array(held), CIRCLE)
    assert found.tolist() == {"held": held, "counts": counts, "turned": turned}[after]


@pytest.mark.parametrize(("limit", "searches"), [(3, 1), (2, 0)])
def test_uniform_searches_for_the_last_avoidable_moves_up_to_a_number_of_members(
    monkeypatch: pytest.MonkeyPatch, limit: int, searches: int
) -> None:
    """The search costs members^3; members with a single class of topics need no search."""
    searched = []
    monkeypatch.setattr(uniform, "MOST_FOR_EXACT", limit)
    monkeypatch.setattr(
        uniform, "keep_more", lambda counts, held, allowed: searched.append(1) or counts
    )
    compute(spec("uniform", {"m1": "ab", "m2": "b", "m3": "b"}, {"a": 3, "b": 3}))
    assert len(searched) == searches
    compute(spec("uniform", {"m1": "ab", "m2": "ab", "m3": "ab"}, {"a": 3, "b": 3}))
    assert len(searched) == searches


def _best(group: GroupSpec) -> tuple[int, int]:
    """Try every assignment: return the least sum of squared loads and the most stays, negated."""
    before = flat({m: s.target for m, s in group.members.items()})
    pairs = [(t, p) for t, topic in sorted(group.topics.items()) for p in range(topic.partitions)]
    readers = [[m for m in sorted(group.members) if t in group.members[m].topics] for t, _ in pairs]

    def worth(owners: tuple[str, ...]) -> tuple[int, int]:
        stay = sum(before.get(pair) == m for pair, m in zip(pairs, owners, strict=True))
        return sum(n * n for n in Counter(owners).values()), -stay

    return min(map(worth, itertools.product(*readers)))


@pytest.mark.parametrize("seed", range(60))
def test_uniform_is_exact_on_mixed_subscriptions(seed: int) -> None:
    """Loads and stays equal the best of all assignments of small groups."""
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
