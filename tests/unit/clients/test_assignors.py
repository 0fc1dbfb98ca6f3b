"""Assignors for plain aiokafka consumers: the promise of each kind, over reports as bytes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.protocol.metadata import MetadataResponse_v1

from faust_assigner.clients import (
    CoPartitionedAssignor,
    MetadataAssignor,
    PlannedAssignor,
    RackAwareAssignor,
    RedundantAssignor,
    StickyAssignor,
)
from faust_assigner.clients.assignors import Assigned, Joined
from faust_assigner.clients.redundant import _even_out_spares
from faust_assigner.clients.user_data import (
    LABELS,
    LAST_ROUND,
    NUMBERS,
    Answer,
    UserData,
    decode_answer,
    decode_user_data,
    encode_answer,
    encode_user_data,
    next_round,
)
from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Member
from faust_assigner.wire.bounded import LARGEST_INT, TOPICS

RACKS = ("a", "b", "c")


def cluster(topics: Mapping[str, int]) -> ClusterMetadata:
    """Return three brokers in three racks; broker p modulo 3 leads partition p."""
    answer = MetadataResponse_v1(
        [(node, "127.0.0.1", 9092 + node, rack) for node, rack in enumerate(RACKS)],
        0,
        [
            (0, topic, False, [(0, p, p % 3, [p % 3], [p % 3]) for p in range(count)])
            for topic, count in topics.items()
        ],
    )
    made = ClusterMetadata()
    made.update_metadata(answer)
    return made


class Group:
    """Consumers by name with their assignors; every report and every answer is encoded as bytes."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.cluster = cluster(topics)
        self.members: dict[str, tuple[PlannedAssignor, Sequence[str]]] = {}
        self.reports: dict[str, bytes] = {}
        self.given: dict[str, set[tuple[str, int]]] = {}

    def join(self, name: str, assignor: PlannedAssignor, *topics: str) -> Group:
        """Add a consumer."""
        self.members[name] = (assignor, topics or tuple(sorted(self.cluster.topics())))
        return self

    def round(self, leader: str | None = None) -> int:
        """Run a rebalance; return the number of partitions that consumers gained."""
        told = {
            name: ConsumerProtocolMemberMetadata.decode(assignor.metadata(topics).encode())
            for name, (assignor, topics) in self.members.items()
        }
        for name, data in self.reports.items():
            told[name] = ConsumerProtocolMemberMetadata(0, told[name].subscription, data)
        answers = self.members[leader or min(self.members)][0].assign(self.cluster, told)
        before = self.given
        self.given = {}
        for name, (assignor, _) in self.members.items():
            answer = ConsumerProtocolMemberAssignment.decode(answers[name].encode())
            assignor.on_assignment(answer)
            self.given[name] = {(tp.topic, tp.partition) for tp in answer.partitions()}
        return sum(len(now - before.get(name, set())) for name, now in self.given.items())

    @property
    def loads(self) -> list[int]:
        """Return each member's number of partitions, by name."""
        return [len(self.given[name]) for name in sorted(self.given)]

    def owners(self) -> Counter[tuple[str, int]]:
        """Return each partition's number of members."""
        return Counter(tp for given in self.given.values() for tp in given)


def test_sticky_moves_what_balance_wants_and_nothing_else() -> None:
    """A new member's fair share is three of twelve partitions, and only three partitions move."""
    group = Group({"orders": 12})
    for name in "abc":
        group.join(name, StickyAssignor())
    group.round()
    assert group.round() == 0
    assert group.join("d", StickyAssignor()).round(leader="d") == 3
    assert group.loads == [3, 3, 3, 3]


def test_co_partitioned_topics_meet_on_one_consumer() -> None:
    """In topics of equal size, equal partition numbers share a consumer, even after a join."""
    group = Group({"orders": 6, "payments": 6, "audit": 4})
    for name, orders, payments in (("a", [0, 1, 2], [3, 4, 5]), ("b", [3, 4, 5], [0, 1, 2])):
        group.join(name, CoPartitionedAssignor())
        group.reports[name] = encode_user_data(
            UserData(round=1, active={"orders": orders, "payments": payments})
        )
    group.round()
    group.reports.clear()
    for more in (False, True):
        if more:
            group.join("c", CoPartitionedAssignor()).round()
        for given in group.given.values():
            assert (
                {n for t, n in given if t == "orders"}
                == {n for t, n in given if t == "payments"}
                != set()
            )
    assert all(count == 1 for count in group.owners().values())


def test_named_topics_travel_together_and_others_do_not() -> None:
    """Four topics of a partition each are spread over four consumers; two of them stay together."""
    group = Group({"one": 1, "two": 1, "three": 1, "four": 1})
    for name in "abcd":
        group.join(name, CoPartitionedAssignor(("one", "two")))
    group.round()
    assert sorted(group.loads) == [0, 1, 1, 2]
    assert any({("one", 0), ("two", 0)} <= given for given in group.given.values())


def test_each_named_set_of_topics_travels_together() -> None:
    """Two sets of two topics on two consumers: each consumer gets a set."""
    group = Group({"one": 1, "two": 1, "three": 1, "four": 1})
    for name in "ab":
        group.join(name, CoPartitionedAssignor(("one", "four"), ("two", "three")))
    group.round()
    sets = [{topic for topic, _ in given} for given in group.given.values()]
    assert sorted(map(sorted, sets)) == [["four", "one"], ["three", "two"]]


@pytest.mark.parametrize(("members", "copies"), [(4, 2), (5, 3), (7, 2), (3, 3), (2, 3)])
def test_each_partition_goes_to_as_many_members_as_asked_for(members: int, copies: int) -> None:
    """No member gets a partition twice; small groups copy to all members; loads are even."""
    group = Group({"orders": 10, "audit": 3})
    for number in range(members):
        group.join(f"m{number}", RedundantAssignor(copies))
    group.round()
    assert set(group.owners().values()) == {min(copies, members)}
    assert len(group.owners()) == 13
    assert max(group.loads) - min(group.loads) <= 1
    assert group.round() == 0


def test_after_a_death_only_its_copies_find_new_members() -> None:
    """Four members hold twelve partitions twice: only the dead member's six copies move."""
    group = Group({"orders": 12})
    for name in "abcd":
        group.join(name, RedundantAssignor(2))
    group.round()
    del group.members["b"]
    assert group.round() == 6
    assert group.loads == [8, 8, 8]


def test_to_even_loads_out_a_spare_that_its_member_never_held_goes_first() -> None:
    """A move of the member's former spare would throw away an existing copy."""
    heavy = Joined(
        member_id="heavy", topics=("orders",), data=UserData(round=1, spare={"orders": [1]})
    )
    light = Joined(member_id="light", topics=("orders",), data=UserData())
    active = {"heavy": {("orders", 0)}, "light": set[tuple[str, int]]()}
    spare = {
        "heavy": {("orders", 1), ("orders", 2), ("orders", 3)},
        "light": set[tuple[str, int]](),
    }
    _even_out_spares([heavy, light], active, spare)
    assert spare == {"heavy": {("orders", 1)}, "light": {("orders", 2), ("orders", 3)}}


def test_to_even_loads_out_a_spare_goes_where_its_copy_is() -> None:
    """The receiver has held the third spare before; the sender has held none."""
    heavy = Joined(member_id="heavy", topics=("orders",), data=UserData())
    light = Joined(
        member_id="light", topics=("orders",), data=UserData(round=1, active={"orders": [3]})
    )
    active = {"heavy": {("orders", 0)}, "light": {("orders", 9)}}
    spare = {
        "heavy": {("orders", 1), ("orders", 2), ("orders", 3)},
        "light": set[tuple[str, int]](),
    }
    _even_out_spares([heavy, light], active, spare)
    assert spare == {"heavy": {("orders", 1), ("orders", 2)}, "light": {("orders", 3)}}


@pytest.mark.parametrize(
    ("capacity", "spares", "kept"), [(1.0, 3, {2, 3}), (2.0, 3, {1, 2, 3}), (0.5, 1, set[int]())]
)
def test_loads_are_evened_out_relative_to_the_capacities(
    capacity: float, spares: int, kept: set[int]
) -> None:
    """Four copies on a member of double capacity weigh as much as two on the second member."""
    heavy = Joined(member_id="heavy", topics=("orders",), data=UserData(capacity=capacity))
    light = Joined(member_id="light", topics=("orders",), data=UserData())
    active = {"heavy": {("orders", 0)}, "light": {("orders", 8)}}
    held = {("orders", n) for n in range(1, spares + 1)}
    spare = {"heavy": set(held), "light": {("orders", 9)}}
    _even_out_spares([heavy, light], active, spare)
    assert spare["heavy"] == {("orders", n) for n in kept}
    assert spare["light"] == {("orders", 9)} | held - spare["heavy"]


def test_to_even_loads_out_no_member_gets_a_spare_of_what_it_owns() -> None:
    """Otherwise the partition would have too few copies."""
    heavy, light = (
        Joined(member_id=name, topics=("orders",), data=UserData()) for name in ("heavy", "light")
    )
    active = {"heavy": {("orders", 0)}, "light": {("orders", 1)}}
    spare = {
        "heavy": {("orders", 1), ("orders", 2), ("orders", 3)},
        "light": set[tuple[str, int]](),
    }
    _even_out_spares([heavy, light], active, spare)
    assert spare == {"heavy": {("orders", 1), ("orders", 3)}, "light": {("orders", 2)}}


def test_to_even_loads_out_no_member_gets_a_spare_of_a_topic_that_it_does_not_read() -> None:
    """The member could not serve such a spare; a spare of a shared topic moves instead."""
    heavy = Joined(member_id="heavy", topics=("audit", "orders"), data=UserData())
    light = Joined(member_id="light", topics=("orders",), data=UserData())
    active = {"heavy": {("audit", 9)}, "light": set[tuple[str, int]]()}
    spare = {"heavy": {("audit", 1), ("audit", 2), ("orders", 3)}, "light": set[tuple[str, int]]()}
    _even_out_spares([heavy, light], active, spare)
    assert spare == {"heavy": {("audit", 1), ("audit", 2)}, "light": {("orders", 3)}}


def test_partitions_go_to_the_rack_of_their_leader() -> None:
    """Each of three racks has a consumer and gets its own partitions; a second round moves none."""
    group = Group({"orders": 9, "audit": 6})
    for name, rack in zip("abc", RACKS, strict=True):
        group.join(name, RackAwareAssignor(rack))
    group.round()
    for name, rack in zip("abc", RACKS, strict=True):
        assert {RACKS[number % 3] for _, number in group.given[name]} == {rack}
    assert group.round() == 0


def test_balance_goes_before_racks_and_partitions_come_home_when_they_can() -> None:
    """The third rack's first consumer gets that rack's partitions from the two older consumers."""
    group = Group({"orders": 9})
    group.join("a", RackAwareAssignor("a")).join("b", RackAwareAssignor("b")).round()
    assert sorted(group.loads) == [4, 5]
    assert group.round() == 0
    group.join("c", RackAwareAssignor("c")).round()
    assert group.given["c"] == {("orders", 2), ("orders", 5), ("orders", 8)}


def test_any_facts_may_be_liked() -> None:
    """A consumer with a fast disk prefers the first partitions."""

    class Disks(MetadataAssignor):
        def liked(
            self, labels: Mapping[str, str], topic: str, cluster: ClusterMetadata
        ) -> Sequence[int]:
            return [0, 1] if labels["disk"] == "fast" else []

    group = Group({"orders": 6})
    group.join("a", Disks({"disk": "slow"})).join("b", Disks({"disk": "slow"})).round()
    group.join("c", Disks({"disk": "fast"})).round()
    assert group.given["c"] == {("orders", 0), ("orders", 1)}


def test_a_wish_for_topics_that_a_member_does_not_read_moves_nothing() -> None:
    """The member can get no partition of such a topic."""

    class Greedy(MetadataAssignor):
        def liked(
            self, labels: Mapping[str, str], topic: str, cluster: ClusterMetadata
        ) -> Sequence[int]:
            return range(4) if labels["likes"] == "all" else []

    group = Group({"orders": 4, "audit": 4})
    for name, held in (("a", [0, 3]), ("b", [1, 2])):
        group.join(name, Greedy({"likes": "none"}), "orders")
        report = UserData(round=1, active={"orders": held}, labels={"likes": "none"})
        group.reports[name] = encode_user_data(report)
    group.join("c", Greedy({"likes": "all"}), "audit")
    group.round()
    assert {name: sorted(n for _, n in group.given[name]) for name in "ab"} == {
        "a": [0, 3],
        "b": [1, 2],
    }


def test_a_consumer_tells_its_capacity_and_labels_in_every_round() -> None:
    """The consumer's report after its first assignment has them as well."""
    group = Group({"orders": 6})
    assignor = RackAwareAssignor("a", capacity=2.0)
    group.join("a", assignor).join("b", RackAwareAssignor("b"))
    for number in range(2):
        group.round()
        told = decode_user_data(assignor.metadata(["orders"]).user_data)
        assert (told.capacity, dict(told.labels), told.round) == (2.0, {"rack": "a"}, number)
        assert sum(map(len, told.active.values())) == len(group.given["a"])


def test_a_member_keeps_what_no_member_likes() -> None:
    """Only preferred partitions move; the remaining ones stay where balance allows."""

    class First(MetadataAssignor):
        def liked(
            self, labels: Mapping[str, str], topic: str, cluster: ClusterMetadata
        ) -> Sequence[int]:
            return [0] if labels["likes"] == "first" else []

    group = Group({"orders": 6})
    for name, likes, held in (("a", "none", [0, 2, 4]), ("b", "first", [1, 3, 5])):
        group.join(name, First({"likes": likes}))
        group.reports[name] = encode_user_data(
            UserData(round=1, active={"orders": held}, labels={"likes": likes})
        )
    group.given = {"a": {("orders", n) for n in (0, 2, 4)}, "b": {("orders", n) for n in (1, 3, 5)}}
    assert group.round() == 2
    assert ("orders", 0) in group.given["b"]


def test_as_many_labels_as_are_allowed_can_be_told() -> None:
    """A label more is refused."""
    labels = {f"l{n}": "x" for n in range(LABELS + 1)}
    with pytest.raises(MetadataRefused):
        decode_user_data(encode_user_data(UserData(labels=labels)))
    del labels["l0"]
    assert decode_user_data(encode_user_data(UserData(labels=labels))).labels == labels


def test_as_many_topics_as_are_allowed_can_be_claimed() -> None:
    """A topic more is refused."""
    claims = {f"t{n}": [0] for n in range(TOPICS + 1)}
    with pytest.raises(MetadataRefused):
        decode_user_data(encode_user_data(UserData(active=claims)))
    del claims["t0"]
    assert decode_user_data(encode_user_data(UserData(active=claims))).active == claims


def test_the_limit_of_claimed_partitions_holds_for_all_topics_together() -> None:
    """A short text of runs must not expand into any number of partitions."""
    half = NUMBERS // 2
    full = {"clicks": range(half), "orders": range(NUMBERS - half)}
    found = decode_user_data(encode_user_data(UserData(active=full))).active
    assert {topic: len(numbers) for topic, numbers in found.items()} == {
        topic: len(numbers) for topic, numbers in full.items()
    }
    beyond = full | {"orders": range(NUMBERS - half + 1)}
    with pytest.raises(MetadataRefused, match="more than"):
        decode_user_data(encode_user_data(UserData(active=beyond)))


def test_capacity_weighs_a_share() -> None:
    """A member of double capacity gets twice the partitions."""
    group = Group({"orders": 9})
    group.join("a", StickyAssignor(capacity=2.0)).join("b", StickyAssignor()).round()
    assert group.loads == [6, 3]


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"[]",
        b"{" * 9000,
        b'{"round": 1e99}',
        b'{"active": {"orders": [0, 2000000000]}}',
        b'{"active": {"orders": [5]}}',
        b'{"capacity": 1e999}',
        b'{"labels": {"rack": 3}}',
        b'{"round": true}',
        b'{"active": {"a\\nb": [0, 1]}}',
        b'{"spare": 7}',
        b" " * 300_000,
    ],
)
@pytest.mark.parametrize("kind", [StickyAssignor(), RedundantAssignor(2), RackAwareAssignor("a")])
def test_a_bad_word_makes_its_member_new_and_stops_nobody(
    data: bytes, kind: PlannedAssignor
) -> None:
    """The report is refused and counted; all partitions are still assigned."""
    group = Group({"orders": 6})
    for name in "ab":
        group.join(name, kind)
    group.reports["b"] = data
    before = kind.refused
    group.round()
    assert kind.refused == before + 1
    assert len(group.owners()) == 6


def test_a_word_of_an_older_round_never_wins() -> None:
    """A member that missed a round claims reassigned partitions: it gets only its share back."""
    group = Group({"orders": 8})
    group.join("a", StickyAssignor()).join("b", StickyAssignor()).round()
    asleep, claimed = group.members.pop("a"), group.given["a"]
    group.join("c", StickyAssignor()).round()
    assert group.given["c"] == claimed
    group.members["a"] = asleep
    assert group.round() == 2
    assert group.loads == [2, 3, 3]


def test_each_round_is_dated_one_later_than_all_that_members_have_seen() -> None:
    """The number rises whichever member leads and even if a member missed the last round."""
    group = Group({"orders": 8})
    group.join("a", StickyAssignor()).join("b", StickyAssignor())
    dates = []
    for leader in "aba":
        group.round(leader)
        dates.append(
            {
                decode_user_data(one.metadata(()).user_data).round
                for one, _ in group.members.values()
            }
        )
    asleep = group.members.pop("a")
    group.round()
    group.members["a"] = asleep
    group.round("a")
    dates.append(
        {decode_user_data(one.metadata(()).user_data).round for one, _ in group.members.values()}
    )
    assert dates == [{0}, {1}, {2}, {4}]


def test_a_topic_without_partitions_is_nobodys() -> None:
    """The subscription may precede the topic's creation: no round fails."""
    group = Group({"orders": 2})
    group.join("a", StickyAssignor(), "orders", "later").round()
    assert group.given["a"] == {("orders", 0), ("orders", 1)}


def test_an_assignor_is_asked_for_topics_with_partitions_only() -> None:
    """The assignor's subclass gets no empty topic."""
    asked: list[str] = []

    class Liking(MetadataAssignor):
        def liked(
            self, labels: Mapping[str, str], topic: str, cluster: ClusterMetadata
        ) -> Sequence[int]:
            asked.append(topic)
            return [0]

    group = Group({"orders": 2})
    group.join("a", Liking({}), "orders", "later").round()
    assert set(asked) == {"orders"}


def test_members_that_like_nothing_keep_everything() -> None:
    """An equally preferred division is no reason for a move."""

    class Indifferent(MetadataAssignor):
        def liked(
            self, labels: Mapping[str, str], topic: str, cluster: ClusterMetadata
        ) -> Sequence[int]:
            return []

    group = Group({"orders": 3})
    held = {"a": [2], "b": [0, 1]}
    for name, numbers in held.items():
        group.join(name, Indifferent({}))
        group.reports[name] = encode_user_data(UserData(round=1, active={"orders": numbers}))
    group.round()
    assert {name: sorted(n for _, n in group.given[name]) for name in held} == held


def test_what_others_would_refuse_is_refused_when_it_is_made() -> None:
    """A capacity or label that leaders refuse raises an error in the consumer that sets it."""
    with pytest.raises(MetadataRefused):
        StickyAssignor(capacity=0)
    with pytest.raises(MetadataRefused):
        RackAwareAssignor("a\nb")
    with pytest.raises(ValueError, match="copies"):
        RedundantAssignor(0)


def test_a_member_that_counts_to_the_end_leaves_the_others_answers_readable() -> None:
    """With a higher, unreadable number every member would mistake spare copies for first copies."""
    group = Group({"orders": 6})
    for name in "abc":
        group.join(name, RedundantAssignor(2))
    group.reports["c"] = encode_user_data(
        UserData(round=LAST_ROUND, active={"orders": list(range(6))})
    )
    for _ in range(3):
        group.round()
        assert all(count == 2 for count in group.owners().values())
        reports = [
            decode_user_data(assignor.metadata(("orders",)).user_data)
            for assignor, _ in (group.members[name] for name in "ab")
        ]
        assert all(data.spare["orders"] and data.round == LAST_ROUND for data in reports)


def test_a_rack_of_others_does_not_keep_partitions_from_their_own() -> None:
    """Two racks' consumers own a third rack's partitions and keep them; home partitions return."""
    group = Group({"orders": 12})
    held = {"a": [1, 2, 4, 5, 7, 8], "b": [0, 3, 6, 9, 10, 11]}
    for name, numbers in held.items():
        group.join(name, RackAwareAssignor(name))
        group.reports[name] = encode_user_data(
            UserData(round=1, active={"orders": numbers}, labels={"rack": name})
        )
    group.round()
    group.reports.clear()
    for name, home in (("a", {0, 3, 6, 9}), ("b", {1, 4, 7, 10})):
        assert home < {number for _, number in group.given[name]}
    assert ("orders", 11) in group.given["b"]
    assert group.round() == 0


def test_a_consumer_reports_its_topics_and_its_last_assignment_in_order() -> None:
    """Spare copies are separate from first copies of each topic; capacity and labels stay."""
    assignor = RackAwareAssignor("r", capacity=2.5)
    assert assignor.refused == 0
    answer = encode_answer(Answer(round=6, spare={"b": [1, 2], "c": [0], "x": [9]}))
    rows = [("b", [0, 1, 2]), ("a", [3]), ("c", [0])]
    assignor.on_assignment(ConsumerProtocolMemberAssignment(0, rows, answer))
    told = assignor.metadata(iter(["b", "c", "a"]))
    assert (told.version, told.subscription) == (0, ["a", "b", "c"])
    assert decode_user_data(told.user_data) == UserData(
        round=6,
        active={"a": [3], "b": [0]},
        spare={"b": [1, 2], "c": [0]},
        labels={"rack": "r"},
        capacity=2.5,
    )
    assignor.on_assignment(ConsumerProtocolMemberAssignment(0, [("b", [0, 1])], b"junk"))
    assert decode_user_data(assignor.metadata(["b"]).user_data) == UserData(
        round=-1, active={"b": [0, 1]}, labels={"rack": "r"}, capacity=2.5
    )


def test_a_leader_places_every_topic_of_any_member_and_answers_each_in_full() -> None:
    """Only the last member reads "z"; a topic without partitions is not placed."""
    asked: list[tuple[list[Joined], list[tuple[str, int]]]] = []

    class Placing(PlannedAssignor):
        def place(
            self, joined: Sequence[Joined], partitions: Mapping[str, int], cluster: ClusterMetadata
        ) -> dict[str, Assigned]:
            asked.append((list(joined), list(partitions.items())))
            return {
                "m1": Assigned(active={"b": [1], "a": [0]}, spare={"b": [0], "c": [2, 1]}),
                "m2": Assigned(active={}, spare={"z": [0]}),
            }

    report = UserData(round=4, active={"a": [1]}, capacity=3.0)
    members = {
        "m2": ConsumerProtocolMemberMetadata(0, ["z", "later", "b"], encode_user_data(report)),
        "m1": ConsumerProtocolMemberMetadata(0, ["b", "a", "b"], b""),
    }
    given = Placing().assign(cluster({"z": 1, "b": 2, "a": 3}), members)
    assert asked == [
        (
            [
                Joined(member_id="m1", topics=("a", "b"), data=UserData()),
                Joined(member_id="m2", topics=("b", "later", "z"), data=report),
            ],
            [("a", 3), ("b", 2), ("z", 1)],
        )
    ]
    assert {name: (one.version, one.assignment) for name, one in given.items()} == {
        "m2": (0, [("z", [0])]),
        "m1": (0, [("a", [0]), ("b", [0, 1]), ("c", [1, 2])]),
    }
    assert {name: decode_answer(one.user_data) for name, one in given.items()} == {
        "m1": Answer(round=5, spare={"b": [0], "c": [1, 2]}),
        "m2": Answer(round=5, spare={"z": [0]}),
    }


def test_a_joined_member_is_the_planners_member_with_every_field() -> None:
    """The number of the report's round is the generation of its claims."""
    data = UserData(round=4, active={"a": [1]}, spare={"b": [2]}, capacity=3.0)
    member = Joined(member_id="m", topics=("a", "b"), data=data).member
    assert member == Member(
        "m", ("a", "b"), actives={"a": [1]}, standbys={"b": [2]}, generation=4, capacity=3.0
    )


def test_the_bytes_of_reports_and_answers_stay_the_same() -> None:
    """Consumers of two releases share a group: runs of numbers, keys in order, no spaces."""
    report = UserData(
        round=7, active={"b": [4, 0, 1, 2], "a": [5], "none": []}, spare={"c": [3, 2]},
        labels={"rack": "r"}, capacity=0.5,
    )  # fmt: skip
    assert encode_user_data(report) == (
        b'{"active":{"a":[5,5],"b":[0,2,4,4]},"capacity":0.5,"labels":{"rack":"r"},"round":7,'
        b'"spare":{"c":[2,3]},"v":1}'
    )
    assert encode_answer(Answer(round=7, spare={"c": [3, 2], "a": []})) == (
        b'{"round":7,"spare":{"c":[2,3]},"v":1}'
    )
    assert decode_user_data(b"{}") == UserData()
    assert decode_answer(b'{"spare":null,"more":1}') == Answer()


@pytest.mark.parametrize("field", ["round", "capacity", "number"])
def test_the_limits_of_a_report_are_allowed_and_the_next_values_are_not(field: str) -> None:
    """The values are the first and the last round, capacity and partition number."""
    allowed, refused = {
        "round": (
            [{"round": -1}, {"round": LAST_ROUND}],
            [{"round": -2}, {"round": LAST_ROUND + 1}, {"round": 1.0}, {"round": None}],
        ),
        "capacity": (
            [{"capacity": 1e-6}, {"capacity": 1e6}, {"capacity": 1}],
            [{"capacity": 9e-7}, {"capacity": 1000001}, {"capacity": True}, {"capacity": "1"}],
        ),
        "number": (
            [{"active": {"t": [0, 0]}}, {"active": {"t": [LARGEST_INT - 1, LARGEST_INT - 1]}}],
            [
                {"active": {"t": [-1, 0]}},
                {"active": {"t": [LARGEST_INT, LARGEST_INT]}},
                {"active": {"t": [0, 0, 1]}},
                {"active": {"t": [0, 1.0]}},
                {"active": {"t": {}}},
                {"active": []},
            ],
        ),
    }[field]
    for said in allowed:
        decode_user_data(json.dumps(said).encode())
    for said in refused:
        with pytest.raises(MetadataRefused):
            decode_user_data(json.dumps(said).encode())


@pytest.mark.parametrize(
    ("rounds", "following"), [((), 0), ((-1,), 0), ((3, 7, 5), 8), ((LAST_ROUND, 2), LAST_ROUND)]
)
def test_the_next_round_follows_the_highest_that_is_reported(
    rounds: tuple[int, ...], following: int
) -> None:
    """The next round is at most the last readable round."""
    assert next_round(UserData(round=number) for number in rounds) == following
