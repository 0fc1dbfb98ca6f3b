"""A worker's memory of the last rounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from faust_assigner.app.metrics import recent_rounds
from faust_assigner.app.metrics.recent_rounds import MOST_ROUNDS, RecentRounds
from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.model import NOBODY, Member
from faust_assigner.planner import plan
from faust_assigner.views.placed import RULES
from faust_assigner.wire.outcome import Outcome
from faust_assigner.wire.worker_status import (
    MovedTask,
    Rounds,
    RoundTold,
    decode_rounds,
    encode_document,
)

LOG = "shop-totals-changelog"
TOPICS = ("orders", LOG)
COUNTS = dict.fromkeys(TOPICS, 4)


def decided(recent: RecentRounds, generation: int, *members: Member) -> None:
    """Record a round of these members, led by this member."""
    made = plan(members, COUNTS, replicas=1, changelogs={LOG})
    inputs = DecisionInputs("shop", generation, members, COUNTS, 1, frozenset({LOG}))
    recent.decided(inputs, made)


def owner(name: str, *numbers: int, **more: object) -> Member:
    """Return a member that owns these numbers."""
    held = dict.fromkeys(TOPICS, numbers)
    return Member(name, TOPICS, actives=held, generation=1, **more)  # type: ignore[arg-type]


def test_a_leader_remembers_what_moved_and_by_which_rule() -> None:
    """Moves have the instance id if it is set; unmoved tasks are left out."""
    recent = RecentRounds()
    decided(recent, 2, owner("a", 0, 1, 2, 3, instance_id="shop-0"), owner("b"))
    (told,) = recent.rounds()
    assert len(told.moves) == 2
    assert {(move.source, move.target) for move in told.moves} == {("shop-0", "b")}
    assert {move.topic for move in told.moves} <= set(TOPICS)
    assert {move.rule for move in told.moves} == {"moved"}
    assert all(move.is_cold for move in told.moves)


def test_what_is_known_of_a_round_is_put_together() -> None:
    """The decision, the answer and the end arrive separately."""
    recent, outcome = RecentRounds(), Outcome(trigger="join", members=2)
    decided(recent, 2, owner("a", 0, 1, 2, 3), owner("b"))
    recent.answered(2, outcome, at=1000.0)
    recent.ended(2, seconds=1.234)
    (told,) = recent.rounds()
    assert (told.outcome, told.at, told.seconds, len(told.moves)) == (outcome, 1000.0, 1.23, 2)


def test_the_oldest_rounds_are_forgotten() -> None:
    """A round without a generation is not recorded."""
    recent = RecentRounds()
    recent.answered(-1, None, at=1.0)
    assert recent.rounds() == ()
    for generation in range(MOST_ROUNDS + 10):
        recent.answered(generation, Outcome(), at=1.0)
    assert [one.generation for one in recent.rounds()] == list(range(10, MOST_ROUNDS + 10))


def test_rounds_travel_as_they_are() -> None:
    """They travel as JSON, which the reader checks."""
    recent = RecentRounds()
    decided(recent, 2, owner("a", 0, 1, 2, 3), owner("b"))
    recent.answered(2, Outcome(trigger="join", joined=("http://w1",)), at=1000.0)
    said = Rounds(app="shop", rounds=recent.rounds())
    assert decode_rounds(encode_document(said)) == said


def test_the_newest_generations_are_kept_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of an old round may be recorded after the answers of later rounds."""
    monkeypatch.setattr(recent_rounds, "MOST_ROUNDS", 2)
    recent = RecentRounds()
    for generation in (5, 9, 3, 7):
        recent.ended(generation, seconds=1.0)
    assert [one.generation for one in recent.rounds()] == [7, 9]


def three_groups() -> Any:
    """Return a plan of three groups; the first one weighs nothing, and all its tasks moved."""
    group = SimpleNamespace
    return SimpleNamespace(
        member_ids=("m-0", "m-1", "m-2"),
        groups=[
            group(weightless=True, topics=("leader",)),
            group(weightless=False, topics=("orders", LOG)),
            group(weightless=False, topics=("clicks",)),
        ],
        moved=[np.ones(1), np.array([1, 0, 1, 1, 1]), np.array([0, 1])],
        owner=[np.array([0]), np.array([1, 0, 0, NOBODY, 2]), np.array([1, 2])],
        previous_owner=[np.array([1]), np.array([0, 0, NOBODY, 1, 1]), np.array([0, 0])],
        rule=[np.array([0]), np.array([1, 0, 2, 0, 3]), np.array([0, 2])],
        cold=[np.array([1]), np.array([1, 1, 0, 0, 0]), np.array([1, 1])],
    )


@pytest.mark.parametrize("most", [500, 3])
def test_each_moved_task_is_kept_with_its_way(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """A new task has no source, and a task without an owner is left out; the first moves are kept."""
    monkeypatch.setattr(recent_rounds, "MOST_MOVES", most)
    recent = RecentRounds()
    members = (Member("m-2", TOPICS), Member("m-0", TOPICS, instance_id="shop-0"))
    recent.decided(DecisionInputs("shop", 0, members, COUNTS, 1, frozenset({LOG})), three_groups())
    moves = tuple(
        MovedTask(
            topic=topic,
            partition=number,
            source=source,
            target=target,
            rule=RULES[rule],
            is_cold=cold,
        )
        for topic, number, source, target, rule, cold in (
            ("orders", 0, "shop-0", "m-1", 1, True),
            ("orders", 2, "", "shop-0", 2, False),
            ("orders", 4, "m-1", "m-2", 3, False),
            ("clicks", 1, "shop-0", "m-2", 2, True),
        )
    )
    assert recent.rounds() == (RoundTold(generation=0, moves=moves[:most]),)
    recent.ended(0, seconds=2.0)
    recent.answered(0, None, at=5.0)
    recent.ended(0, seconds=3.456)
    assert recent.rounds() == (RoundTold(generation=0, moves=moves[:most], at=5.0, seconds=3.46),)
