"""Where a member's router finds partitions: the answer's own distributions, or its directory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from faust.types import TP
from yarl import URL

from faust_assigner.app.rebalance.follow_up import COOPERATIVE_S, EAGER_S, FollowUp
from faust_assigner.app.rebalance.member import Memory
from faust_assigner.wire.answer import Answer
from faust_assigner.wire.directory import Directory, encode_directory
from faust_assigner.wire.runs import Runs

#: Two members, with a changelog and a source topic.
DIRECTORY = Directory(
    ("http://a", "http://b"),
    {"log": np.array([1, 0]), "orders": np.array([0, 1, -1])},
    changelogs=frozenset({"log"}),
    standbys={"log": (np.array([0, -1]),)},
)
LOGS = {"http://a": {"log": [1]}, "http://b": {"log": [0]}}
OTHERS = {"http://a": {"orders": [0]}, "http://b": {"orders": [1]}}


@pytest.mark.parametrize("logs", [{}, {"http://x": {"log": [4]}}])
@pytest.mark.parametrize("others", [{}, {"http://y": {"orders": [5]}}])
def test_each_distribution_is_that_of_the_answer_or_else_of_the_directory(
    logs: Any, others: Any
) -> None:
    """One of them may be empty in a stock leader's answer; the result is the caller's own."""
    packed = encode_directory(DIRECTORY)
    answer = Answer(
        {},
        {},
        "",
        directory=packed,
        changelog_distribution=logs,
        external_topic_distribution=others,
    )
    memory = Memory(answer, 3)
    assert memory.changelog_distribution == (logs or LOGS)
    assert memory.external_topic_distribution == (others or OTHERS)
    memory.changelog_distribution.clear()
    memory.external_topic_distribution.clear()
    assert (answer.changelog_distribution, answer.external_topic_distribution) == (logs, others)


def test_before_an_answer_nobody_is_known() -> None:
    """The router then answers 503."""
    memory = Memory()
    assert (memory.changelog_distribution, memory.external_topic_distribution) == ({}, {})
    assert memory.directory == Directory()
    assert memory.owned(SimpleNamespace(globals_={})) == {}  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        memory.owner_of(TP("log", 0), of_tables=True)
    assert memory.standbys_of(TP("log", 0)) == ()


def test_an_owner_is_looked_for_among_the_topics_of_its_kind() -> None:
    """A changelog is no source topic, and a partition without an owner is unknown."""
    memory = Memory(Answer({}, {}, directory=encode_directory(DIRECTORY)), 3)
    assert memory.owner_of(TP("log", 0), of_tables=True) == URL("http://b")
    assert memory.owner_of(TP("orders", 0), of_tables=False) == URL("http://a")
    assert memory.standbys_of(TP("log", 0)) == (URL("http://a"),)
    assert memory.standbys_of(TP("log", 1)) == ()
    for tp, of_tables in (
        (TP("log", 0), False),
        (TP("orders", 0), True),
        (TP("orders", 2), False),
        (TP("log", 2), True),
        (TP("none", 0), True),
    ):
        with pytest.raises(KeyError):
            memory.owner_of(tp, of_tables=of_tables)


def test_a_member_claims_the_actives_that_it_was_given() -> None:
    """Not those of the answer; of a global table it claims what it writes."""
    answer = Answer(
        {"orders": Runs.of([0, 7]), "log": Runs.of([0, 1])}, {}, writes={"log": Runs.of([1])}
    )
    memory = Memory(answer, 3, actives={"orders": Runs.of([0]), "log": Runs.of([0, 1])})
    tables: Any = SimpleNamespace(globals_={"log": False})
    assert {t: list(runs) for t, runs in memory.owned(tables).items()} == {
        "orders": [0],
        "log": [1],
    }


@pytest.mark.parametrize(
    ("given", "stops_nobody", "cool_down_s"),
    [
        (None, True, COOPERATIVE_S),
        (None, False, EAGER_S),
        (0.0, True, 0.0),
        (0.0, False, 0.0),
        (7.5, False, 7.5),
    ],
)
def test_a_cool_down_that_is_set_is_kept(
    *, given: float | None, stops_nobody: bool, cool_down_s: float
) -> None:
    """Also one of 0; else it is longer after a round that stopped the group."""
    app: Any = SimpleNamespace(
        assignor=SimpleNamespace(stops_nobody=stops_nobody, cooperative=not stops_nobody)
    )
    assert FollowUp(app, given)._cool_down_s() == cool_down_s
