"""The planner's input from the view, and the later changes to its targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.model import Member
from faust_assigner.service import values as codec
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.leading import targets
from faust_assigner.service.leading.copartitioned import bound_topics, copartitioned_with
from faust_assigner.service.leading.record import Suitability
from faust_assigner.service.leading.targets import Targets, choose, claimants, hinted
from faust_assigner.service.records import KEEPS_REPLICAS, Consumer, Pin, Status
from faust_assigner.service.store.base import Event, KeyValue
from faust_assigner.service.view import View
from tests.unit.service.stories import ALL, view_of

T0, T1, T2, T3 = (TopicPartition("t", n) for n in range(4))
U0, U1 = TopicPartition("u", 0), TopicPartition("u", 1)


class Planned:
    """A fake planner that keeps its input, and returns these owners and standbys."""

    def __init__(
        self,
        owners: Mapping[TopicPartition, str],
        standbys: Mapping[str, Sequence[TopicPartition]] | None = None,
    ) -> None:
        self.owners, self.kept = owners, standbys or {}
        self.members: list[Member] = []
        self.counts: Any = None
        self.options: dict[str, Any] = {}

    def plan(self, members: list[Member], counts: Any, **options: Any) -> Any:
        """Keep the input."""
        self.members, self.counts, self.options = members, counts, options
        self.member_ids = tuple(member.member_id for member in members)
        return self

    def actives(self, name: str) -> dict[str, list[int]]:
        """The targets of a consumer."""
        return self._by_topic(at for at, owner in self.owners.items() if owner == name)

    def standbys(self, name: str) -> dict[str, list[int]]:
        """The replicas of a consumer."""
        return self._by_topic(self.kept.get(name, ()))

    @staticmethod
    def _by_topic(ats: Any) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for at in ats:
            found.setdefault(at.topic, []).append(at.partition)
        return found


def put(view: View, key: str, value: bytes) -> None:
    """Add a key to the view."""
    view.apply(Event(key, 900, KeyValue(key, value, 900, 900)))


def chosen(
    monkeypatch: pytest.MonkeyPatch,
    view: View,
    planned: Planned,
    *,
    consumers: Sequence[Consumer] | None = None,
    standing: Suitability = Suitability(),  # noqa: B008
) -> Targets:
    """Choose targets with this planner and two replicas."""
    monkeypatch.setattr(targets, "plan", planned.plan)
    return choose(view, consumers or view.ready(), replicas=2, standing=standing)


def test_the_planner_gets_everything_that_the_consumers_and_the_view_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The input has owners, hand-offs, pins, weights, racks, capacities, replicas and bonds."""
    a = Consumer(
        name="a",
        topics=("t", "u"),
        rack="r1",
        capacity=2.5,
        holds={"t": (3, 1), "x": (0,)},
        weights={"t": {0: 3.0, 9: 5.0}, "nosuch": {0: 2.0}},
        co_partitioned=(("u", "t"), ("t", "u", "u")),
        capabilities=(KEEPS_REPLICAS,),
    )
    b = Consumer(name="b", weights={"t": {0: 4.0, 1: 0.5}}, co_partitioned=(("x",),))
    view = view_of(
        b, a, Consumer(name="out", status=Status.DRAINING),
        topics={"u": 2, "t": 4, "v": 1},
        owners={T0: "a", T1: "b", T2: "out", T3: "a", U0: "gone", U1: "b"},
        handoffs=[Handoff(T3, "a", "b", Phase.WARMING, 1.0), Handoff(T1, "b", "out", Phase.READY, 1.0)],
    )  # fmt: skip
    put(view, ALL.pin(U1), codec.dump_pin(Pin(U1, "a")))
    planned = Planned({T0: "a", T1: "a", U1: "a", T2: "b"}, {"a": [T3, U0], "b": [T0]})
    found = chosen(monkeypatch, view, planned)
    assert planned.members == [
        Member(
            "a",
            ("t", "u"),
            actives={"t": [0], "u": [1]},
            rack_id="r1",
            standbys={"t": [3, 1], "x": [0]},
            capacity=2.5,
            generation=0,
        ),
        Member("b", ("t", "u", "v"), actives={"t": [1, 3]}, generation=0),
    ]
    counts = {"t": 4, "u": 2, "v": 1}
    assert (planned.counts, planned.options) == (
        counts,
        {
            "changelogs": counts,
            "replicas": 2,
            "weights": {("t", 0): 4.0, ("t", 1): 0.5},
            "co_partitioned": [("t", "u"), ("x",)],
        },
    )
    assert found == Targets({T0: "a", T1: "a", U1: "a", T2: "b"}, {"a": (T3, U0)})


def test_without_consumers_there_is_no_plan_and_without_weights_none_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A missing weight differs from a weight of zero."""
    planned = Planned({})
    view = view_of(topics={"t": 4})
    assert chosen(monkeypatch, view, planned, consumers=[]) == Targets({}, {})
    assert planned.members == []
    chosen(monkeypatch, view, planned, consumers=[Consumer(name="a")])
    assert planned.options["weights"] is None
    assert planned.members == [Member("a", ("t",), actives={}, generation=0)]


# -- claims to partitions ------------------------------------------------------------------------------


def test_an_unassigned_partition_is_claimed_by_the_first_that_had_it() -> None:
    """The order is by name; assigned and missing partitions and absent consumers do not count."""
    b, a = (
        Consumer(name="b", former={"t": (0, 1, 9), "x": (0,)}),
        Consumer(name="a", former={"t": (1,)}),
    )
    view = view_of(b, a, topics={"t": 4}, owners={T2: "gone"})
    assert hinted(view, ["a", "b", "c"]) == {T0: "b", T1: "a"}
    assert hinted(view, ["b"]) == {T0: "b", T1: "b"}
    assert claimants(view, ["a", "b"]) == {}
    put(view, ALL.awaiting, b"known")
    assert claimants(view, ["a", "b"]) == {T0: "b", T1: "a"}


def test_owners_and_incomplete_hand_offs_claim_before_former_owners() -> None:
    """Only the given consumers count."""
    going = Handoff(T1, "a", "b", Phase.READY, 1.0)
    view = view_of(
        Consumer(name="a"),
        Consumer(name="b"),
        Consumer(name="c", former={"t": (3,)}),
        topics={"t": 4},
        owners={T0: "a", T1: "a", T2: "b"},
        handoffs=[
            going,
            replace(going, at=T0, phase=Phase.COMPLETE),
            replace(going, at=T2, new_owner="x"),
        ],
    )
    put(view, ALL.awaiting, b"known")
    assert claimants(view, ["a", "b", "c"]) == {T0: "a", T1: "b", T2: "b", T3: "c"}
    assert claimants(view, ["a"]) == {T0: "a", T1: "a"}


def test_topics_are_bound_by_any_chain_if_their_counts_are_equal() -> None:
    """The order is by topic; an unbound topic stands alone."""
    view = view_of(
        Consumer(name="a", co_partitioned=(("t", "u"), ("x", "nosuch"))),
        Consumer(name="b", co_partitioned=(("v", "u"), ("u", "w"))),
        topics={"t": 2, "u": 2, "v": 3, "w": 2, "x": 2},
    )
    bound = bound_topics(view)
    together = ("t", "u", "w")
    assert bound == {"t": together, "u": together, "w": together, "v": ("v",), "x": ("x",)}
    assert copartitioned_with(T1, bound) == (T1, U1, TopicPartition("w", 1))
    assert copartitioned_with(TopicPartition("y", 3), bound) == (TopicPartition("y", 3),)


# -- forbidden targets ---------------------------------------------------------------------------------


def cooling(view: View, *pairs: tuple[TopicPartition, str]) -> View:
    """Add cooldowns for these consumers."""
    for at, name in pairs:
        put(view, ALL.cooldown(at, name), codec.dump_until(1.0))
    return view


def test_several_targets_that_cool_down_are_spread_by_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change counts for the next, and the load of the bad target falls."""
    everything = {TopicPartition("t", n): "bad" for n in range(4)}
    view = view_of(*(Consumer(name=name) for name in ("bad", "a", "b")), topics={"t": 4, "u": 2})
    cooling(view, *((at, "bad") for at in everything))
    found = chosen(monkeypatch, view, Planned(everything | {U0: "b"}))
    assert found.owner == {T0: "a", T1: "a", T2: "b", T3: "a", U0: "b"}


def test_a_consumer_that_lost_a_target_may_take_another_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The consumer's load counts without its lost target."""
    view = view_of(*(Consumer(name=name) for name in "wxy"), topics={"t": 5, "u": 3})
    cooling(view, (T0, "x"), (T1, "y"), (T0, "w"))
    loads = {U0: "x", T2: "y", U1: "y", T3: "w", TopicPartition("t", 4): "w"}
    found = chosen(monkeypatch, view, Planned({T0: "x", T1: "y", **loads}))
    assert found.owner == {T0: "y", T1: "x", **loads}


def test_co_partitioned_targets_move_and_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair goes to a consumer of both topics without a cooldown for either partition."""
    names = ("bad", "half", "a", "b", "picky")
    bound = [Consumer(name=name, co_partitioned=(("t", "u"),)) for name in names]
    bound[-1] = replace(bound[-1], topics=("t",))
    view = view_of(*bound, topics={"t": 2, "u": 2, "v": 1})
    cooling(view, (T0, "bad"), (U1, "bad"), (U0, "half"), (T1, "half"))
    other = TopicPartition("v", 0)
    planned = Planned({**dict.fromkeys((T0, T1, U0, U1), "bad"), other: "b"})
    found = chosen(monkeypatch, view, planned)
    assert found.owner == {T0: "a", U0: "a", T1: "b", U1: "b", other: "b"}


@pytest.mark.parametrize(("topics", "target"), [(("u",), "a"), ((), "b")])
def test_a_target_stays_if_no_other_consumer_may_have_it_or_its_owner_cools_down(
    monkeypatch: pytest.MonkeyPatch, topics: tuple[str, ...], target: str
) -> None:
    """An owner with a cooldown got the partition later, so it keeps the partition."""
    b = Consumer(name="b", topics=topics)
    view = view_of(Consumer(name="a"), b, topics={"t": 2, "u": 1}, owners={T1: "a"})
    cooling(view, (T0, "a"), (T1, "a"))
    found = chosen(monkeypatch, view, Planned({T0: "a", T1: "a", U0: "b"}))
    assert found.owner == {T0: target, T1: "a", U0: "b"}


@pytest.mark.parametrize(
    ("standing", "target"),
    [
        (Suitability(), "bad"),
        (Suitability(stuck=frozenset({"bad"})), "good"),
        (Suitability(crowding=frozenset({"bad"})), "good"),
        (Suitability(overtaken=frozenset({"bad"})), "bad"),
    ],
)
def test_partitions_of_leaving_consumers_pass_over_stuck_and_crowding_ones(
    monkeypatch: pytest.MonkeyPatch, standing: Suitability, target: str
) -> None:
    """Partitions of other owners are unaffected."""
    leaves = Consumer(name="leaves", status=Status.DRAINING)
    view = view_of(
        leaves,
        Consumer(name="bad"),
        Consumer(name="good"),
        topics={"t": 2},
        owners={T0: "leaves", T1: "good"},
    )
    found = chosen(monkeypatch, view, Planned({T0: "bad", T1: "bad"}), standing=standing)
    assert found.owner == {T0: target, T1: "bad"}


@pytest.mark.parametrize(("incarnation", "target"), [("", "good"), ("2", "bad")])
def test_partitions_of_an_earlier_process_are_not_those_of_a_leaving_consumer(
    monkeypatch: pytest.MonkeyPatch, incarnation: str, target: str
) -> None:
    """Such a partition has no owner, and is assigned at once."""
    view = view_of(
        Consumer(name="leaves", incarnation=incarnation, status=Status.DRAINING),
        Consumer(name="bad"),
        Consumer(name="good"),
        topics={"t": 1},
        owners={T0: "leaves"},
    )
    standing = Suitability(stuck=frozenset({"bad"}))
    found = chosen(monkeypatch, view, Planned({T0: "bad"}), standing=standing)
    assert found.owner == {T0: target}


@pytest.mark.parametrize(("is_overtaken", "target"), [(False, "bad"), (True, "good")])
def test_a_stuck_consumer_keeps_its_hand_off_unless_a_later_one_overtook_it(
    monkeypatch: pytest.MonkeyPatch, is_overtaken: bool, target: str
) -> None:
    """A hand-off from a leaving consumer is open."""
    names = frozenset({"bad"})
    standing = Suitability(stuck=names, overtaken=names if is_overtaken else frozenset())
    view = view_of(
        Consumer(name="leaves", status=Status.DRAINING), Consumer(name="bad"), Consumer(name="good"),
        topics={"t": 1}, owners={T0: "leaves"},
        handoffs=[Handoff(T0, "leaves", "bad", Phase.WARMING, 1.0)],
    )  # fmt: skip
    found = chosen(monkeypatch, view, Planned({T0: "bad"}), standing=standing)
    assert found.owner == {T0: target}
