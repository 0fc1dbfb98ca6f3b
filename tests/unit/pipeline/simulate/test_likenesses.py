"""Groups whose names begin alike, roles that look alike, and recordings of more than a day."""

from __future__ import annotations

import sys
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.simulate import advice
from faust_assigner.pipeline.simulate.advice import overall_verdict, recommend_change
from faust_assigner.pipeline.simulate.diary import Diary
from faust_assigner.pipeline.simulate.events import _rows
from faust_assigner.pipeline.simulate.facts import TopicFact, facts_of
from faust_assigner.pipeline.simulate.policies import load
from faust_assigner.pipeline.simulate.recorded import NothingRecorded, UnknownGroup, Week, week
from faust_assigner.pipeline.simulate.run import Run
from faust_assigner.simulation.fleet import Arm
from faust_assigner.simulation.simulator import Rebalance
from tests.unit.pipeline.simulate.test_recordings import decision, later, member, placed, sampled

ALIKE = [
    decision("d1", 0, member("a"), member("b"), group="shop"),
    decision("e1", 0, member("x"), group="shop-eu"),
    decision("e2", 900_000, member("x"), group="shop-eu"),
    placed("d1", "in/0", "a", group_id="shop"),
    placed("e1", "in/0", "x", group_id="shop-eu"),
]


def test_a_group_is_chosen_by_its_whole_name() -> None:
    """An empty name is no group, unlike no name."""
    facts = facts_of(ALIKE)
    assert [one.group_id for one in week(facts).recordings] == ["shop", "shop-eu"]
    assert [one.group_id for one in week(facts, group_id="shop").recordings] == ["shop"]
    with pytest.raises(UnknownGroup, match="no decision of group 'sho' in the ledger"):
        week(facts, group_id="sho")
    with pytest.raises(NothingRecorded):
        week(facts, group_id="")
    assert facts.of_group("").decisions == ()
    assert [one["decision_id"] for one in facts.of_group("shop").decisions] == ["d1"]


def test_the_weeks_of_a_group_are_those_of_its_own_decisions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a whole week there is no difference, unlike a difference of zero."""
    facts = facts_of(ALIKE)
    run = Run(1, Week(week(facts).recordings))
    monkeypatch.setattr(advice, "_stopped", lambda week, arm, run: float(arm.replicas))
    rows = recommend_change(run, facts, "ours", ("ours", 2))
    assert [(row["group_id"], row["weeks"], row["difference_s"]) for row in rows] == [
        ("shop", 0, None),
        ("shop-eu", 1, 1.0),
    ]


def test_equal_weeks_are_simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision of 1970 adds thousands of quiet weeks."""
    weeks = 2_900
    rows = [decision("e0", -(weeks - 1) * advice.WEEK_S, member("x"), group="shop-eu"), *ALIKE[1:3]]
    facts = facts_of([*rows, ALIKE[4]])
    asked: list[Any] = []
    monkeypatch.setattr(advice, "_stopped", lambda week, arm, run: asked.append(week) or 0.0)
    (row,) = recommend_change(Run(1, Week(week(facts).recordings)), facts, "ours", ("ours", 2))
    assert (row["weeks"], row["interval"]) == (weeks, [0.0, 0.0])
    assert len(asked) == 2


def test_the_first_reason_to_keep_is_the_reason_of_all_groups() -> None:
    """One group that gains nothing keeps the settings of all."""
    rows = [{"verdict": text} for text in ("change", "keep: worse", "keep: other")]
    assert overall_verdict(rows) == "keep: worse"
    assert overall_verdict(rows[:1]) == "change"


def test_a_warm_up_shows_that_a_topic_has_state_and_is_no_owner() -> None:
    """Samples belong to the active partition's owner, also if a standby's row is newer."""
    facts = facts_of(
        [
            decision("d1", 0, member("a"), member("b")),
            placed("d1", "in/0", "a"),
            placed("d1", "in/0", "b", role="standby"),
            placed("d1", "log/0", "b", role="warmup"),
            placed("d1", "in/1", "a", "c"),
            sampled("in/0", 10, 5, 5),
        ]
    )
    assert facts.topics == (TopicFact("g", "in", 2, True), TopicFact("g", "log", 1, True))
    assert facts.last_seen == {("g", "d1", "a"): later(10)}
    assert facts.outcomes == {}
    stateless = facts_of([placed("d1", "in/0", "a"), placed("d1", "log/0", "b", role="warmup")])
    assert [topic.carries_state for topic in stateless.topics] == [False, True]


def test_a_cold_placement_that_did_not_move_is_no_cold_move() -> None:
    """Its owner restarted and lost its files."""
    facts = facts_of(
        [
            decision("d1", 0, member("a")),
            placed("d1", "in/0", "a", "m"),
            placed("d1", "in/1", "a", "c"),
            placed("d1", "in/2", "a", "mc"),
        ]
    )
    assert facts.outcomes == {("g", "d1"): (2, 1)}


def test_silence_counts_only_against_a_known_session() -> None:
    """Without a session timeout a member that is gone has left."""
    for session_s, crashed in ((10.0, True), (None, False), (0.0, False)):
        rows = [
            decision("d1", 0, member("a"), member("b"), session_timeout_s=session_s),
            decision("d2", 100, member("b"), trigger="leave", session_timeout_s=session_s),
        ]
        seen = {("g", "d1", "a"): later(50), ("g", "d1", "b"): later(99)}
        (absence,) = Diary([row.values for row in rows], seen).absences
        assert absence.crashed is crashed


def test_rebalances_of_later_days_are_counted_on_their_day() -> None:
    """The times count from the first decision on."""
    day = 86_400
    decisions = [decision(f"d{n}", n * day, member("a")).values for n in range(3)]
    trace = [
        Rebalance(**{**_REBALANCE, "at_s": at, "moved": moved})
        for at, moved in ((day + 5.0, 3), (2 * day - 5.0, 4), (2 * day + 9.0, 5))
    ]
    rows = _rows(decisions, trace, {("g", "d2"): (7, 6)}, Arm("ours", 1))
    told: list[Any] = [(row["decision_id"], row["predicted"]["moved"]) for row in rows]
    assert told == [("d1", 3), ("d2", 9)]
    assert rows[1]["recorded"] == {"rebalances": 1, "moved": 7, "cold_moves": 6}
    assert rows[0]["ts"] == (later(0) + timedelta(days=1)).isoformat()


_REBALANCE: dict[str, Any] = {"at_s": 0.0, "moved": 0, "cold_moves": 0}


def test_a_policy_whose_module_ends_the_process_is_a_wrong_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A module may be a script that calls sys.exit; a name with a blank is another name."""

    def load_module(name: str) -> ModuleType:
        raise SystemExit(3)

    real = sys.modules["faust_assigner.pipeline.simulate.policies"]
    monkeypatch.setattr(real, "importlib", SimpleNamespace(import_module=load_module))
    with pytest.raises(ConfigError, match="cannot be loaded: SystemExit: 3"):
        load("likenesses.script:plan")
    with pytest.raises(ConfigError, match="unknown policy ' ours'"):
        load(" ours")
