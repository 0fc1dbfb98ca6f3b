"""Recorded groups: a ledger's rows, the facts, and scenarios."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from faust_assigner.ledger import Row
from faust_assigner.pipeline.simulate import recorded
from faust_assigner.pipeline.simulate.diary import Diary
from faust_assigner.pipeline.simulate.facts import TopicFact, facts_of
from faust_assigner.pipeline.simulate.measured import RecoveryFact, calibrated
from faust_assigner.pipeline.simulate.recorded import DAY_S, UnknownGroup, Week, week
from faust_assigner.simulation.fleet import Costs, Event, Kind, Scenario, TaskGroup, Worker

START = datetime(2026, 11, 16, tzinfo=UTC)


def later(seconds: float) -> datetime:
    """Return a time after the first decision."""
    return START + timedelta(seconds=seconds)


def member(name: str, rack: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a member of a decision."""
    told = {"member_id": name, "rack": rack, "capacity": 1.0, "epoch": 1, "instance_id": None}
    return {**told, **more}


def decision(name: str, at_s: float, *members: Any, group: str = "g", **more: Any) -> Row:
    """Return a decision."""
    told = {"group_id": group, "decision_id": name, "ts": later(at_s), "trigger": "join"}
    told |= {"config": {}, "members": list(members), "session_timeout_s": 10.0}
    return Row("decision", {**told, **more})


def placed(name: str, place: str, owner: str, said: str = "", **more: Any) -> Row:
    """Return a placement; ``said`` has ``m`` for moved and ``c`` for cold."""
    topic, _, partition = place.partition("/")
    told = {"group_id": "g", "decision_id": name, "topic": topic, "partition": int(partition)}
    flags = {"role": "active", "member_id": owner, "moved": "m" in said, "cold": "c" in said}
    return Row("assignment", {**told, **flags, **more})


def sampled(place: str, at_s: float, records: int, end: int, **more: Any) -> Row:
    """Return a sample."""
    topic, _, partition = place.partition("/")
    told = {"group_id": "g", "topic": topic, "partition": int(partition), "ts": later(at_s)}
    amounts = {"records_in": records, "bytes_in": 10 * records, "cpu_ms": 0.0}
    return Row("partition_sample", {**told, **amounts, "state_bytes": 0, "end_offset": end, **more})


def recovered(name: str, owner: str, place: str, span: tuple[float, float], **more: Any) -> Row:
    """Return a recovery over the time span."""
    topic, _, partition = place.partition("/")
    told = {"group_id": "g", "decision_id": name, "member_id": owner, "topic": topic}
    told |= {"partition": int(partition), "started": later(span[0]), "ended": later(span[1])}
    return Row("recovery", {**told, "source": "local", "records": 5, **more})


ROWS = [
    decision("d1", 0, member("a"), member("b"), config={"weightless": "idle"}),
    *(placed("d1", f"in/{n}", "ab"[n % 2], "mc") for n in range(3)),
    *(placed("d1", f"log/{n}", "ab"[n % 2], "mc") for n in range(3)),
    placed("d1", "log/0", "b", role="standby"),
    placed("d1", "idle/4", "a", "m"),
    placed("d1", "one/0", "b", "m"),
    decision("d2", 100, member("b"), trigger="leave"),
    placed("d2", "in/0", "b", "m"),
    placed("d2", "log/0", "b", "mc"),
    placed("d2", "in/2", "b", "m"),
    placed("d2", "in/1", "b", ""),
    placed("d2", "one/0", "b", "m"),
    placed("d2", "log/1", "a", "mc", role="standby"),
    decision("d2", 140, member("zombie"), trigger="later"),
    decision("d3", 200, member("b"), member("c")),
    decision("e1", 50, member("x"), group="h"),
    placed("e1", "in/0", "x", "mc", group_id="h"),
    decision("e2", 60, member("x"), group="h"),
    sampled("in/0", 10, 60, 100),
    sampled("in/0", 70, 60, 160),
    sampled("in/1", 90, 30, 30),
    sampled("log/0", 130, 5, 500, state_bytes=1),
    recovered("d2", "b", "log/0", (101, 104), source="replay", records=900),
    recovered("d2", "b", "log/2", (102, 109), records=70),
    Row(
        "recovery",
        dict(reversed(recovered("d2", "b", "log/2", (102, 109), records=70).values.items())),
    ),
    recovered("d1", "a", "other/1", (1, 2), group_id="h"),
]


def scenario(group: str, *events: Event) -> Scenario:
    """Return a scenario: two workers start, a third may join, and there are five tasks."""
    workers = tuple(Worker(name) for name in "abc")
    groups = (TaskGroup("t", 4, "t-changelog"), TaskGroup("u", 1))
    arrays = (np.arange(1.0, 6.0), np.array([10.0, 20.0, 30.0, 40.0, 0.0]))
    learned = np.arange(5.0, 0.0, -1.0)
    return Scenario(
        0, 0, group, "2026-11-16", workers, ("a", "b"), groups, *arrays, events, learned
    )


def test_the_whole_facts_of_a_ledger() -> None:
    """The facts are decisions, topics, recoveries, last samples and outcomes, in any line order."""
    for rows in (ROWS, ROWS[::-1]):
        facts = facts_of(rows)
        told = [(each["decision_id"], each["trigger"], each["ts"]) for each in facts.decisions]
        assert told == [
            ("d1", "join", later(0)),
            ("e1", "join", later(50)),
            ("e2", "join", later(60)),
            ("d2", "leave", later(100)),
            ("d3", "join", later(200)),
        ]
        assert facts.topics == (
            TopicFact("g", "idle", 5, False),
            TopicFact("g", "in", 3, False),
            TopicFact("g", "log", 3, True),
            TopicFact("g", "one", 1, False),
            TopicFact("h", "in", 1, False),
            TopicFact("h", "other", 2, True),
        )
        assert facts.recoveries == (
            RecoveryFact("g", "d2", "b", 8.0, 970, True),
            RecoveryFact("h", "d1", "a", 1.0, 5, False),
        )
        assert facts.last_seen == {
            ("g", "d1", "a"): later(70),
            ("g", "d1", "b"): later(90),
            ("g", "d2", "b"): later(130),
        }
        assert facts.outcomes == {("g", "d1"): (4, 3), ("g", "d2"): (3, 1), ("h", "e1"): (1, 1)}
        assert facts.recorded() == {"rebalances": 3, "moved": 3, "cold_moves": 1}
        told = [(rate.samples, rate.records_in) for rate in facts.rates]
        assert told == [(2, 120.0), (1, 30.0), (1, 5.0)]
        assert [(rate.topic, rate.partition) for rate in facts.before] == [("in", 0)]
        after = [(rate.topic, rate.partition, rate.samples) for rate in facts.after]
        assert after == [("in", 0, 1), ("in", 1, 1), ("log", 0, 1)]


def test_the_facts_of_a_group_are_its_own() -> None:
    """The facts are decisions, topics, rates of all three times, and recoveries."""
    facts = facts_of([*ROWS, sampled("in/0", 20, 1, 1, group_id="h")])
    mine = facts.of_group("h")
    assert [each["decision_id"] for each in mine.decisions] == ["e1", "e2"]
    assert [topic.topic for topic in mine.topics] == ["in", "other"]
    assert [each.member_id for each in mine.recoveries] == ["a"]
    for rates in (mine.rates, mine.before):
        assert [rate.group_id for rate in rates] == ["h"]
    assert mine.after == ()
    assert mine.recorded() == {"rebalances": 1, "moved": 0, "cold_moves": 0}
    assert facts.of_group(None) is facts


def test_a_whole_recording_has_its_groups_loads_and_learned_weights() -> None:
    """Loads come from the second half, weights from the first; unknown state has the usual size."""
    rows = [
        *ROWS,
        sampled("in/2", 10, 120, 0),
        sampled("in/2", 130, 12, 0),
        sampled("one/0", 10, 30, 0),
        sampled("one/0", 130, 30, 0),
    ]
    facts = facts_of(rows)
    (scenario,) = week(facts, group_id="g").recordings
    assert (scenario.scenario_id, scenario.seed) == (0, 0)
    assert (scenario.group_id, scenario.dt, scenario.start) == ("g", "2026-11-16", ("a", "b"))
    assert scenario.groups == (TaskGroup("one", 1), TaskGroup("in", 3, "log"))
    assert scenario.workers == (Worker("a"), Worker("b"))
    assert scenario.events == (Event(100.0, Kind.RESTART, "a", 100.0),)
    assert [round(rate, 3) for rate in scenario.rates] == [0.5, 1.083, 0.5, 0.2]
    assert scenario.records.tolist() == [0.0, 500.0, 10_000.0, 10_000.0]
    weights = [round(weight, 3) for weight in scenario.learned_weights.tolist()]
    assert weights == [0.5, 1.0, 0.25, 2.0]


def test_a_group_that_the_ledger_lacks_is_named_beside_those_it_has() -> None:
    """An empty name is no group."""
    facts = facts_of(ROWS)
    with pytest.raises(UnknownGroup, match=r"no decision of group 'x' in the ledger.*\['g', 'h'\]"):
        week(facts, group_id="x")
    assert [each.group_id for each in week(facts).recordings] == ["g", "h"]
    assert [each.group_id for each in week(facts, group_id="h").recordings] == ["h"]
    without = replace(facts, topics=())
    with pytest.raises(recorded.NothingRecorded, match="no assignment of group 'g'"):
        week(without)


def test_a_topic_group_is_named_by_its_source_and_its_first_changelog() -> None:
    """A changelog without a source is its own source."""
    names = ("z-in", "a-in", "own", "b-changelog")
    topics = [TopicFact("g", name, 4, name == "own") for name in names]
    topics += [TopicFact("g", "only-changelog", 2, False), TopicFact("g", "in", 7, False)]
    groups, members = recorded._groups(topics)
    assert groups == (
        TaskGroup("only-changelog (source)", 2, "only-changelog"),
        TaskGroup("z-in", 4, "own"),
        TaskGroup("in", 7, None),
    )
    assert members == [["only-changelog"], list(names), ["in"]]


# -- the costs ------------------------------------------------------------------------------------


def test_all_costs_that_a_ledger_measures() -> None:
    """Replays cover all groups, takeovers use the median, and the longest newest session counts."""
    costs = Costs(acceptable_recovery_lag=50.0)
    recoveries = [
        RecoveryFact("g", "d", name, seconds, records, cold)
        for name, seconds, records, cold in (
            *(("a", 2.0, 800, True), ("b", 3.0, 1_200, True)),
            *(("c", 9.0, 50, False), ("d", 1.0, 0, False), ("e", 4.0, 10, False)),
            *(("f", 100.0, 51, False), ("g", 50.0, 3, True)),
        )
    ]
    decisions = [
        {"group_id": group, "session_timeout_s": seconds}
        for group, seconds in (("g", 90.0), ("g", 20.0), ("h", 30.0), ("i", None))
    ]
    found, names = calibrated(costs, recoveries, decisions)
    assert names == ("replay_records_per_s", "session_timeout_s", "warm_takeover_s")
    assert found == replace(
        costs, replay_records_per_s=2_003 / 55.0, warm_takeover_s=4.0, session_timeout_s=30.0
    )
    assert calibrated(costs, recoveries[2:4], [{"group_id": "g"}]) == (costs, ())


# -- the diary ------------------------------------------------------------------------------------


def diary(*decisions: Row) -> Diary:
    """Return the diary of decisions."""
    return Diary([row.values for row in decisions])


def test_the_workers_of_a_diary_are_sorted_and_have_their_first_rack_and_capacity() -> None:
    """A restarted worker keeps its rack and capacity."""
    found = diary(
        decision("d1", 0, member("b", "r2", capacity=2.0), member("a", "r1", capacity=0.5)),
        decision("d2", 50, member("b", "r2", capacity=2.0)),
        decision("d3", 60, member("b", "r2"), member("a", "r1", capacity=9.0)),
        decision("d4", 70, member("b", "r2"), member("a", "r1"), member("0", "r3")),
    )
    assert list(found.workers) == ["0", "a", "b"]
    assert list(found.workers.values()) == [
        Worker("0", "r3", 1.0),
        Worker("a", "r1", 0.5),
        Worker("b", "r2", 2.0),
    ]
    assert found.start == ("a", "b")
    assert found.events() == (Event(50.0, Kind.RESTART, "a", 10.0), Event(70.0, Kind.JOIN, "0"))


@pytest.mark.parametrize(
    "word", ["crash", "Kill -9", "poll TIMEOUT", "expired", "lost", "dead", "fenced"]
)
def test_each_word_of_a_crash_in_the_trigger_counts(word: str) -> None:
    """The case and the context do not matter; the crash is a session before the decision."""
    found = diary(
        decision("d1", 0, member("a"), member("b")),
        decision("d2", 50, member("b"), trigger=f"member {word}!"),
    )
    assert found.events() == (Event(40.0, Kind.CRASH, "a"),)


def test_a_member_of_another_rack_is_no_return() -> None:
    """A member of the same rack is a return, as is a member with its own id in any rack."""
    start = decision("d1", 0, member("a", "r1"), member("b", "r2"))
    gone = decision("d2", 50, member("b", "r2"))
    other = diary(start, gone, decision("d3", 60, member("b", "r2"), member("x", "r2")))
    assert [event.kind for event in other.events()] == [Kind.LEAVE, Kind.JOIN]
    same = diary(start, gone, decision("d3", 60, member("b", "r2"), member("x", "r1")))
    assert same.events() == (Event(50.0, Kind.RESTART, "a", 10.0),)
    own = diary(start, gone, decision("d3", 60, member("b", "r2"), member("a", "r9")))
    assert own.events() == (Event(50.0, Kind.RESTART, "a", 10.0),)


def test_a_worker_may_be_absent_twice() -> None:
    """Each absence has its own length; a return after zero seconds ends an absence too."""
    both = (member("a"), member("b"))
    found = diary(
        decision("d1", 0, *both),
        decision("d2", 50, member("b")),
        decision("d3", 50, *both),
        decision("d4", 80, member("b")),
        decision("d5", 95, *both),
    )
    assert found.events() == (
        Event(50.0, Kind.RESTART, "a", 0.0),
        Event(80.0, Kind.RESTART, "a", 15.0),
    )


# -- variations -----------------------------------------------------------------------------------


def test_a_variation_permutes_loads_within_their_group_together() -> None:
    """A partition keeps its rate, state and weight; the pauses and the victims differ."""
    made = scenario("g", *(Event(at, Kind.RESTART, "a", 3.0) for at in (100.0, 250.0)))
    source = Week((made, replace(made, group_id="h")))
    varied = source.scenario(3, 11)
    assert (varied.group_id, varied.scenario_id, varied.seed) == ("h", 3, 11)
    loads = list(zip(varied.rates, varied.records, varied.learned_weights, strict=True))
    whole = list(zip(made.rates, made.records, made.learned_weights, strict=True))
    assert (sorted(loads[:4]), loads[4:]) == (sorted(whole[:4]), whole[4:])
    assert loads != whole
    assert {event.member_id for event in varied.events} == {"a", "b"}
    first, second = (event.at_s for event in varied.events)
    draw = np.random.default_rng(11)
    pauses = [100.0, 150.0]
    at = 0.0
    for found, pause in zip((first, second), pauses, strict=True):
        at += pause * float(draw.lognormal(0.0, 0.5))
        assert found == pytest.approx(at)
        draw.integers(2 if found == first else 1)
    assert [source.split_of(number) for number in range(8)] == [None, None, 0, 0, 1, 1, 0, 0]


def test_a_drawn_period_keeps_its_place_within_the_day() -> None:
    """Of three days, two begin evenly; the last day counts."""
    events = [
        Event(day * DAY_S + offset, Kind.RESTART, name, 3.0)
        for day, offset, name in ((0, 5.0, "a"), (1, 6.0, "b"), (2, 0.0, "c"))
    ]
    draw = np.random.default_rng(5)
    odd = recorded._periods(events, draw, 1)
    assert odd == [Event(day * DAY_S + 6.0, Kind.RESTART, "b", 3.0) for day in range(3)]
    even = recorded._periods(events, np.random.default_rng(5), 0)
    assert even is not None
    assert {(event.at_s % DAY_S, event.member_id) for event in even} <= {(5.0, "a"), (0.0, "c")}
    assert [int(event.at_s // DAY_S) for event in even] == [0, 1, 2]


def test_a_second_static_worker_that_was_restarted_within_its_session_does_not_join() -> None:
    """Another worker was absent before."""

    def static(name: str, instance: str) -> dict[str, Any]:
        return member(name, instance_id=instance)

    second, third = static("m2", "w2"), static("m3", "w3")
    found = diary(
        decision("d1", 0, static("m1", "w1"), second, third),
        decision("d2", 100, second, third),
        decision("d3", 110, static("m9", "w2"), third),
    )
    assert found.events() == (Event(90.0, Kind.CRASH, "w1"), Event(105.0, Kind.RESTART, "w2", 5.0))


def test_simultaneous_events_are_in_the_order_of_their_workers() -> None:
    """The kinds of the events do not matter."""
    found = diary(
        decision("d1", 0, member("a"), member("b"), member("c")),
        decision("d2", 50, member("c")),
        decision("d3", 60, member("a"), member("c")),
    )
    assert found.events() == (Event(50.0, Kind.RESTART, "a", 10.0), Event(50.0, Kind.LEAVE, "b"))


@pytest.mark.parametrize(
    ("seconds", "records"), [((10, 10), (60, 30)), ((10, 100), (60, 0)), ((100, 10), (60, 0))]
)
def test_a_half_without_records_is_neither_load_nor_source_of_weights(
    seconds: tuple[int, int], records: tuple[int, int]
) -> None:
    """The samples are of one moment, or one half is idle: the whole time is used for both."""
    first, second = zip(seconds, records, strict=True)
    rows = [
        decision("d1", 0, member("a")),
        *(placed("d1", f"in/{number}", "a") for number in range(2)),
        *(sampled("in/0", at, count, 0) for at, count in (first, second)),
        *(sampled("in/1", at, 2 * count, 0) for at, count in (first, second)),
    ]
    rows = [
        row for number, row in enumerate(rows) if seconds[0] != seconds[1] or number not in (4, 6)
    ]
    (made,) = week(facts_of(rows)).recordings
    assert made.rates[1] == pytest.approx(2 * made.rates[0])
    assert made.learned_weights.tolist() == pytest.approx([2 / 3, 4 / 3])
