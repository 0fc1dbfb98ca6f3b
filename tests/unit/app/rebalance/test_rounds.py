"""How often the app and its sensors get a cooperative round, and in which order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.rebalance.rounds import Rounds


class Topics(list[Any]):
    """Faust's conductor: the channels and the subscribed names."""

    def __init__(self) -> None:
        super().__init__([SimpleNamespace(topics=["orders"])])
        self._topic_name_index = {"orders": None}
        self.is_changed = False

    def discard(self, topic: Any) -> None:
        """Note a change, as Faust's conductor."""
        self.is_changed = True


class App:
    """Note each call in ``acts``."""

    def __init__(self) -> None:
        self.rebalancing, self.acts, self.topics = False, list[str](), Topics()

    def on_rebalance_start(self) -> None:
        """Note the start, as Faust's app."""
        self.rebalancing = True
        self.acts.append("start")

    def on_rebalance_return(self) -> None:
        """Note the return, as Faust's app."""
        self.acts.append("return")

    def on_rebalance_end(self) -> None:
        """Note the end, as Faust's app."""
        self.rebalancing = False
        self.acts.append("end")


@pytest.fixture
def app() -> App:
    """An app at rest."""
    return App()


def test_a_round_is_begun_answered_and_ended_once(app: App) -> None:
    """Repeated calls have no effect."""
    rounds = Rounds(app)
    rounds.begin()
    assert app.rebalancing
    rounds.answered()
    rounds.answered()
    assert (rounds.end(), rounds.end()) == (True, False)
    assert app.acts == ["start", "return", "end"]


@pytest.mark.parametrize("answered", [False, True])
def test_a_round_that_is_overtaken_ends_before_the_next_begins(app: App, answered: bool) -> None:
    """A gauge that a round increases is decreased at its end, with or without an answer."""
    rounds = Rounds(app)
    rounds.begin()
    if answered:
        rounds.answered()
    rounds.begin()
    assert app.acts == ["start", "return", "end", "start"]


def test_an_eager_round_is_not_answered_twice(app: App) -> None:
    """Faust itself reports the answer."""
    rounds = Rounds(app)
    app.on_rebalance_start()
    assert rounds.end()
    assert app.acts == ["start", "end"]


def test_an_eager_round_does_not_end_with_the_recovery_of_the_one_before(app: App) -> None:
    """The former recovery may end between the begin of the eager round and its answer."""
    rounds = Rounds(app)
    rounds.begin()
    rounds.give_up()
    app.on_rebalance_start()
    rounds.restored()
    assert app.acts[-1] == "start"
    with rounds.reporting_answer():
        app.on_rebalance_return()
    assert app.acts == ["start", "return", "end", "start", "return"]
    rounds.restored()
    assert app.acts[-1] == "end"


def test_an_eager_round_ends_after_its_answer_when_nothing_is_to_be_restored(app: App) -> None:
    """Faust reports the answer to the app last."""
    rounds = Rounds(app)
    app.on_rebalance_start()
    with rounds.reporting_answer():
        rounds.restored()
        assert app.acts == ["start"]
        app.on_rebalance_return()
    assert app.acts == ["start", "return", "end"]


@pytest.mark.parametrize("added", [False, True])
def test_a_topic_added_during_a_round_is_subscribed_to_after_it(app: App, added: bool) -> None:
    """Faust's conductor skips changes during a rebalance."""
    rounds = Rounds(app)
    rounds.begin()
    if added:
        app.topics.append(SimpleNamespace(topics=["replies"]))
    rounds.end()
    assert app.topics.is_changed == added


def test_what_is_restored_for_the_round_before_does_not_end_a_round(app: App) -> None:
    """The member waits for JoinGroup; else sensors would time a round that ends too early."""
    rounds = Rounds(app)
    rounds.begin()
    rounds.answered()
    rounds.begin()
    rounds.restored()
    assert (app.rebalancing, app.acts) == (True, ["start", "return", "end", "start"])
    rounds.answered()
    rounds.restored()
    assert app.acts == ["start", "return", "end", "start", "return", "end"]


def test_a_topic_that_is_gone_since_is_no_reason_to_subscribe_anew(app: App) -> None:
    """Only a name unknown to the conductor causes a subscription."""
    app.topics._topic_name_index["gone"] = None
    rounds = Rounds(app)
    rounds.begin()
    rounds.end()
    assert not app.topics.is_changed
