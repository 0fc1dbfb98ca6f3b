"""A worker's memory of the last rounds."""

from __future__ import annotations

import pytest

from faust_assigner.app.metrics import recent_rounds
from faust_assigner.app.metrics.recent_rounds import MOST_ROUNDS, RecentRounds
from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.model import Member
from faust_assigner.planner import plan
from faust_assigner.wire.outcome import Outcome
from faust_assigner.wire.worker_status import Rounds, decode_rounds, encode_document

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
