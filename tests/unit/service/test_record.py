"""The record of hand-offs: their times, and the standing of new owners at exact moments."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import Handoff, Phase, State, TopicPartition
from faust_assigner.service.keys import Keys
from faust_assigner.service.leading.moves import beginning
from faust_assigner.service.leading.record import Record, Suitability, most_s
from faust_assigner.service.records import Assigned, Consumer
from faust_assigner.service.store.base import Event, KeyValue
from faust_assigner.service.view import View
from faust_assigner.settings.service import ServiceSettings
from tests.unit.service.stories import ALL, view_of

#: A new owner without progress is stuck after 20 s.
SETTINGS = ServiceSettings(
    prefix="/g/",
    handoff_timeout_s=200.0,
    release_timeout_s=30.0,
    cooldown_s=8.0,
    max_handoffs=8,
    max_handoffs_per_consumer=3,
)
T0, T1, T2, T3 = (TopicPartition("t", n) for n in range(4))
WARMING = Handoff(T0, "old", "new", Phase.WARMING, 1.0)


def to(name: str, at: TopicPartition = T0, **more: object) -> Handoff:
    """A hand-off to the consumer's first process."""
    made = replace(WARMING, at=at, new_owner=name, new_incarnation=f"{name}1")
    return replace(made, **more)  # type: ignore[arg-type]


@dataclass
class Seen:
    """A view, and the record that follows its changes."""

    names: tuple[str, ...] = ("old", "new", "slow")
    record: Record = field(default_factory=lambda: Record(SETTINGS))
    keys: Keys = ALL
    revision: int = 500

    def __post_init__(self) -> None:
        consumers = [Consumer(name=name, incarnation=f"{name}1") for name in self.names]
        self.view: View = view_of(*consumers, topics={"t": 4})

    def write(self, key: str, value: bytes | None, now: float) -> None:
        """Write or delete a key at this time."""
        self.revision += 1
        before = self.view.raw.get(key)
        created = before.create_revision if before else self.revision
        kv = None if value is None else KeyValue(key, value, created, self.revision)
        change = self.view.apply(Event(key, self.revision, kv))
        assert change is not None
        self.record.on_changes(self.view, change, now)

    def handoff(self, handoff: Handoff, now: float) -> None:
        """Write the hand-off."""
        self.write(self.keys.handoff(handoff.at), codec.dump_handoff(handoff), now)

    def ended(self, at: TopicPartition, now: float) -> None:
        """Delete the hand-off."""
        self.write(self.keys.handoff(at), None, now)

    def failed(self, name: str, now: float) -> None:
        """Write a cooldown, like the leader."""
        self.write(self.keys.cooldown(T0, name), codec.dump_until(now), now)

    def process(self, name: str, incarnation: str | None, now: float) -> None:
        """Register a process of the consumer, or delete the registration."""
        consumer = Consumer(name=name, incarnation=incarnation or "")
        value = None if incarnation is None else codec.dump_consumer(consumer)
        self.write(self.keys.consumer(name), value, now)

    def owns(self, at: TopicPartition, name: str, incarnation: str) -> None:
        """Set the partition's owner."""
        value = codec.dump_assigned(Assigned(at, name, incarnation=incarnation))
        self.write(self.keys.assignment(at), value, 0.0)

    def stuck(self, now: float) -> set[str]:
        """The stuck consumers."""
        return set(self.record.standing(self.view, now).stuck)


@pytest.mark.parametrize(
    ("state", "limit"),
    [(state, 30.0 if state in (State.RELEASING, State.EXPELLED) else 200.0) for state in State],
)
def test_a_release_has_its_own_time_limit(state: State, limit: float) -> None:
    """The limit also covers the expelled owner's lease; other states have the hand-off's limit."""
    assert most_s(state, SETTINGS) == limit


def test_each_hand_off_is_late_from_its_own_moment_on() -> None:
    """A release counts from its state, readiness from the start; a new id restarts the time."""
    seen = Seen()
    assert (seen.record.late(1e9), seen.record.next_over_at()) == (set(), float("inf"))
    for at, now in ((T0, 100.0), (T1, 110.0), (T2, 120.0), (T3, 130.0)):
        seen.handoff(to("new", at, strict=at == T1), now)
    assert seen.record.next_over_at() == 300.0
    seen.handoff(to("new", T0, phase=Phase.READY), 150.0)
    seen.handoff(to("new", T1, phase=Phase.READY, strict=True), 160.0)
    seen.handoff(to("new", T1, phase=Phase.READY, strict=True, progress=0.5), 170.0)
    assert seen.record.next_over_at() == 190.0
    ages = [seen.record.age_s(at, 180.0) for at in (T0, T1, T2, T3, TopicPartition("u", 0))]
    assert ages == [80.0, 70.0, 60.0, 50.0, 0.0]
    late = [seen.record.late(now) for now in (189.9, 190.0, 299.9, 300.0, 319.9, 320.0)]
    assert late == [set(), {T1}, {T1}, {T0, T1}, {T0, T1}, {T0, T1, T2}]
    seen.ended(T1, 200.0)
    seen.ended(T2, 200.0)
    seen.handoff(to("new", T2), 210.0)
    assert seen.record.late(409.0) == {T0, T3}
    assert seen.record.late(410.0) == {T0, T2, T3}
    assert seen.record.age_s(T1, 410.0) == 0.0


def test_a_hand_off_with_a_new_id_begins_anew_although_its_end_was_not_seen() -> None:
    """A watch may deliver a deletion and a creation as one change."""
    seen = Seen()
    seen.handoff(to("new"), 100.0)
    seen.view.raw.clear()
    seen.handoff(to("new"), 170.0)
    assert seen.record.age_s(T0, 180.0) == 10.0


# -- the standing ------------------------------------------------------------------------------------


def test_a_new_owner_without_progress_is_stuck_after_a_tenth_of_the_time() -> None:
    """The time counts from its oldest hand-off; progress in one hand-off is enough."""
    seen = Seen()
    seen.handoff(to("new", T0), 100.0)
    seen.handoff(to("new", T1), 115.0)
    seen.handoff(to("new", T0, strict=True), 116.0)
    seen.handoff(to("slow", T2), 105.0)
    assert [seen.stuck(now) for now in (119.9, 120.0, 124.9, 125.0)] == [
        set(),
        {"new"},
        {"new"},
        {"new", "slow"},
    ]
    seen.handoff(to("new", T1, progress=0.1), 130.0)
    assert seen.stuck(140.0) == {"slow"}


def test_the_oldest_hand_off_counts_and_an_unheard_one_not_at_all() -> None:
    """Which of them was written last makes no difference."""
    seen = Seen()
    seen.handoff(to("new", T0), 100.0)
    seen.handoff(to("new", T1), 115.0)
    assert (seen.stuck(119.9), seen.stuck(120.0)) == (set(), {"new"})
    unheard = view_of(Consumer(name="x"), topics={"t": 4}, handoffs=[to("x", T2)])
    assert seen.record.standing(unheard, 1e6) == Suitability()


def test_a_new_owner_that_got_a_partition_ready_meanwhile_is_not_stuck() -> None:
    """Readiness counts only after the start of its oldest hand-off."""
    seen = Seen()
    seen.handoff(to("new", T0), 100.0)
    seen.handoff(to("new", T0, phase=Phase.READY), 101.0)
    seen.handoff(to("new", T1), 101.0)
    assert seen.stuck(200.0) == set()
    seen.handoff(to("new", T1, phase=Phase.READY), 201.0)
    seen.handoff(to("new", T2), 202.0)
    assert (seen.stuck(221.9), seen.stuck(222.0)) == (set(), {"new"})


@pytest.mark.parametrize(
    ("failures", "until"),
    [(1, 8.0), (2, 16.0), (3, 32.0), (6, 256.0), (7, 512.0), (8, 512.0), (40, 512.0)],
)
def test_each_failure_doubles_the_time_up_to_six_times(failures: int, until: float) -> None:
    """The time counts from the last failure."""
    seen = Seen()
    for number in range(failures):
        seen.failed("new", 100.0 + number)
    last = 100.0 + failures - 1
    assert [seen.stuck(last + s) for s in (until - 0.1, until)] == [{"new"}, set()]


def test_failures_count_for_the_process_that_failed() -> None:
    """Readiness or a successor ends them; an unregistered consumer has none."""
    seen = Seen()
    seen.failed("nobody", 100.0)
    seen.failed("new", 100.0)
    seen.failed("slow", 100.0)
    seen.process("new", "new1", 101.0)
    assert seen.stuck(102.0) == {"new", "slow"}
    seen.process("new", "new2", 102.0)
    assert seen.stuck(103.0) == {"slow"}
    seen.handoff(to("slow"), 103.0)
    seen.handoff(to("slow", phase=Phase.READY), 104.0)
    assert seen.stuck(104.5) == set()
    seen.failed("slow", 105.0)
    assert (seen.stuck(112.9), seen.stuck(113.0)) == ({"slow"}, set())


@pytest.mark.parametrize("successor", [None, "new2"])
def test_the_late_answer_of_an_ended_process_proves_no_consumer(successor: str | None) -> None:
    """Otherwise the record would keep an entry for each such name, for ever."""
    seen = Seen()
    seen.handoff(to("new"), 0.0)
    seen.process("new", successor, 1.0)
    seen.handoff(to("new", phase=Phase.READY), 2.0)
    assert "new" not in seen.record.standing(seen.view, 3.0).proven
    assert seen.record._trials == {}


@pytest.mark.parametrize(
    ("change", "is_ready"),
    [({"phase": Phase.READY}, True), ({"failed": "no"}, False), ({"progress": 0.9}, False)],
)
def test_only_readiness_ends_the_failures(change: dict[str, object], is_ready: bool) -> None:
    """A further failure or a progress report does not end them."""
    seen = Seen()
    seen.failed("new", 100.0)
    seen.handoff(to("new"), 101.0)
    seen.handoff(to("new", **change), 102.0)
    assert (seen.stuck(103.0) == set()) is is_ready


@pytest.mark.parametrize(
    ("waited_s", "last", "process", "is_stuck"),
    [
        (19.9, {}, "new1", False),
        (20.0, {}, "new1", True),
        (199.9, {}, "new1", True),
        (200.0, {}, "new1", False),
        (50.0, {"progress": 0.1}, "new1", False),
        (50.0, {"phase": Phase.READY}, "new1", False),
        (50.0, {}, "new2", False),
        (50.0, {}, None, False),
    ],
)
def test_the_withdrawal_of_a_silent_hand_off_is_a_failure(
    waited_s: float, last: dict[str, object], process: str | None, is_stuck: bool
) -> None:
    """A silent hand-off fails after a tenth of the time; at the deadline the leader writes the failure."""
    seen = Seen()
    seen.handoff(to("new"), 100.0)
    if last:
        seen.handoff(to("new", **last), 101.0)
    seen.process("new", process, 102.0)
    seen.ended(T0, 100.0 + waited_s)
    assert (seen.stuck(100.0 + waited_s) == {"new"}) is is_stuck


def test_a_stuck_consumer_is_overtaken_by_a_later_hand_off_that_got_ready() -> None:
    """Its oldest hand-off is older than the newest ready hand-off."""
    seen = Seen()
    seen.handoff(to("new", T0), 100.0)
    seen.handoff(to("slow", T1), 110.0)
    seen.handoff(to("old", T2), 105.0)
    seen.handoff(to("old", T2, phase=Phase.READY), 140.0)
    standing = seen.record.standing(seen.view, 150.0)
    assert (standing.stuck, standing.overtaken) == ({"new", "slow"}, {"new"})
    seen.handoff(to("old", T3), 110.0)
    seen.handoff(to("old", T3, phase=Phase.READY), 151.0)
    assert seen.record.standing(seen.view, 152.0).overtaken == {"new"}
    seen.handoff(to("old", T2, phase=Phase.COMPLETE), 153.0)
    for began, at in ((154.0, T2), (90.0, T3)):
        seen.ended(at, began)
        seen.handoff(to("old", at), began)
        seen.handoff(to("old", at, phase=Phase.READY), began + 1.0)
    assert seen.record.standing(seen.view, 156.0).overtaken == {"new", "slow"}


def test_the_end_of_a_ready_hand_off_is_no_second_readiness() -> None:
    """The new owner failed with a different partition meanwhile, and stays stuck."""
    seen = Seen()
    seen.handoff(to("new", phase=Phase.READY), 100.0)
    seen.failed("new", 101.0)
    seen.handoff(to("new", phase=Phase.COMPLETE), 102.0)
    assert seen.stuck(103.0) == {"new"}


def test_a_proven_consumer_owns_a_partition_or_got_one_ready() -> None:
    """Only its present process counts, and only while it is not stuck."""
    seen = Seen(("owns", "earlier", "ready", "fails", "fresh"))
    seen.owns(T0, "owns", "owns1")
    seen.owns(T1, "earlier", "earlier0")
    seen.handoff(to("ready", T2), 100.0)
    seen.handoff(to("ready", T2, phase=Phase.READY), 101.0)
    seen.owns(T3, "fails", "fails1")
    for number in range(10, 15):
        seen.owns(TopicPartition("t", number), "owns", "owns0")
    seen.failed("fails", 101.0)
    assert seen.record.standing(seen.view, 102.0) == Suitability(
        stuck=frozenset({"fails"}),
        overtaken=frozenset(),
        crowding=frozenset(),
        proven=frozenset({"owns", "ready"}),
    )


@pytest.mark.parametrize(
    ("places", "crowding"), [(2, {"new", "slow"}), (4, {"new", "slow"}), (5, set())]
)
def test_unproven_consumers_crowd_when_they_hold_all_places_that_are_not_kept(
    places: int, crowding: set[str]
) -> None:
    """The limit is three of four places; complete hand-offs and proven consumers' hand-offs hold none."""
    seen = Seen(record=Record(replace(SETTINGS, max_handoffs=places)))
    seen.owns(T0, "old", "old1")
    seen.handoff(to("slow", TopicPartition("t", 9), phase=Phase.COMPLETE), 100.0)
    seen.handoff(to("old", T0), 100.0)
    for handoff in (to("new", T1), to("new", T2), to("slow", T3)):
        seen.handoff(handoff, 100.0)
    assert seen.record.standing(seen.view, 101.0).crowding == crowding


# -- places --------------------------------------------------------------------------------------------

PROVEN = frozenset({"a", "b", "c"})


def begun(
    due: dict[TopicPartition, str],
    *handoffs: Handoff,
    leaving: frozenset[TopicPartition] = frozenset(),
    bound: dict[str, tuple[str, ...]] | None = None,
    proven: frozenset[str] = PROVEN,
    stuck: frozenset[str] = frozenset(),
) -> list[tuple[str, list[TopicPartition]]]:
    """The hand-offs that begin with 8 places, 6 of them for balance, and 3 per consumer."""
    view = view_of(topics={"t": 40, "u": 40}, handoffs=handoffs)
    standing = Suitability(proven=proven, stuck=stuck)
    return list(beginning(view, due, due, leaving, bound or {}, standing, SETTINGS))


def several(count: int, name: str, start: int = 0) -> dict[TopicPartition, str]:
    """Due partitions of one new owner."""
    return {TopicPartition("t", start + n): name for n in range(count)}


def test_each_consumer_begins_three_and_balance_begins_six() -> None:
    """The order is by number; two places are reserved for leaving consumers."""
    due = several(4, "b") | several(2, "a", 10) | several(4, "c", 20)
    assert begun(due) == [
        *(("b", [TopicPartition("t", n)]) for n in (0, 1, 2)),
        *(("a", [TopicPartition("t", n)]) for n in (10, 11)),
        ("c", [TopicPartition("t", 20)]),
    ]


def test_partitions_of_leaving_consumers_go_first_and_fill_the_kept_places() -> None:
    """The reserved places are only for proven consumers."""
    due = several(3, "a") | several(3, "b", 10) | several(3, "c", 20)
    leaving = frozenset(due) - several(3, "a").keys()
    assert [new for new, _ in begun(due, leaving=leaving)] == ["b", "b", "b", "c", "c", "c"]
    everything = frozenset(due)
    assert [new for new, _ in begun(due, leaving=everything)] == ["a"] * 3 + ["b"] * 3 + ["c"] * 2
    some = begun(due, leaving=everything, proven=frozenset("ab"))
    assert [new for new, _ in some] == ["a"] * 3 + ["b"] * 3


def test_hand_offs_under_way_hold_their_places_until_they_are_complete() -> None:
    """A hand-off holds a place of the group and a place of its new owner."""
    under_way = [
        to("a", TopicPartition("u", 0)),
        to("a", TopicPartition("u", 1), phase=Phase.READY),
        to("a", TopicPartition("u", 2), phase=Phase.COMPLETE),
        to("x", TopicPartition("u", 3)),
    ]
    due = several(2, "a") | several(9, "b", 10)
    assert [new for new, _ in begun(due, *under_way)] == ["a", "b", "b"]


def test_a_stuck_consumer_begins_one_at_a_time() -> None:
    """A stuck consumer begins no hand-off while one is open."""
    due = several(2, "a") | several(2, "b", 10)
    stuck = frozenset({"a"})
    assert [new for new, _ in begun(due, stuck=stuck)] == ["a", "b", "b"]
    under_way = to("a", TopicPartition("u", 0))
    assert [new for new, _ in begun(due, under_way, stuck=stuck)] == ["b", "b"]


def test_only_the_due_ones_of_co_partitioned_partitions_begin() -> None:
    """The other one has arrived already, or has a hand-off."""
    t0, u0 = TopicPartition("t", 0), TopicPartition("u", 0)
    bound = dict.fromkeys("tu", ("t", "u"))
    view = view_of(topics={"t": 1, "u": 1})
    wanted = {t0: "a", u0: "a"}
    found = list(beginning(view, wanted, {u0}, set(), bound, Suitability(), SETTINGS))
    assert found == [("a", [u0])]


def test_co_partitioned_hand_offs_begin_together_by_new_owner() -> None:
    """A set may exceed a free consumer's limit, but never the group's places."""
    names = ("t", "u", "v", "w")
    bound = dict.fromkeys(names, names)
    four = {TopicPartition(topic, n): "a" for topic in names for n in (0, 1)}
    one = [TopicPartition(topic, 0) for topic in names]
    assert begun(four, bound=bound) == [("a", one)]
    assert begun(four, to("a", T3), bound=bound) == []
    split = {one[0]: "b", one[1]: "a", one[2]: "c", one[3]: "b"}
    rest = [("b", [one[0], one[3]]), ("c", [one[2]])]
    assert begun(split, bound=bound) == [("a", [one[1]]), *rest]
    full = [to("a", TopicPartition("x", number)) for number in range(3)]
    assert begun(split, *full, bound=bound) == rest
