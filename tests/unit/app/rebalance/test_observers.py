"""Observers of decisions: each gets all in order, and no observer fails or delays a decision."""

from __future__ import annotations

import threading
from typing import Any

from faust_assigner.app.rebalance.observers import MOST_WAITING, Decisions
from tests.support.waiting import PATIENCE_S

PLAN: Any = "plan"


def tell(decisions: Decisions, *names: str) -> None:
    """Report decisions by name; wait until the observers were called."""
    for name in names:
        decisions.tell(name, PLAN)  # type: ignore[arg-type]
    decisions.join()


def test_an_observer_hears_decisions_also_after_a_quiet_time() -> None:
    """The thread ends between two rounds, and a later decision starts a new thread."""
    decisions, heard = Decisions(), list[str]()
    decisions.connect(lambda inputs, plan: heard.append(str(inputs)))
    for names in (("first", "second"), ("third",)):
        tell(decisions, *names)
        thread = decisions._thread
        if thread is not None:
            thread.join(PATIENCE_S)
        assert decisions._thread is None, "it holds no reference while nothing is decided"
    assert heard == ["first", "second", "third"]
    assert (decisions.failed, decisions.dropped) == (0, 0)


def test_an_observer_that_fails_is_counted_and_costs_no_other_a_decision(caplog: Any) -> None:
    """The next decision reaches all observers as well."""
    decisions, heard = Decisions(), list[str]()

    def fail(inputs: Any, plan: Any) -> None:
        raise ValueError("the app's")

    decisions.connect(fail)
    decisions.connect(lambda inputs, plan: heard.append(str(inputs)))
    tell(decisions, "first", "second")
    assert heard == ["first", "second"]
    assert decisions.failed == 2
    assert caplog.text.count("An observer of assignment decisions failed") == 2


def test_decisions_that_wait_for_a_slow_observer_are_bounded() -> None:
    """Further decisions are dropped and counted; without observers no decision is kept."""
    decisions, may_go_on, begun = Decisions(), threading.Event(), threading.Event()
    tell(decisions, "unheard")
    assert decisions._thread is None
    heard: list[str] = []

    def slow(inputs: Any, plan: Any) -> None:
        begun.set()
        may_go_on.wait(PATIENCE_S)
        heard.append(str(inputs))

    assert decisions.connect(slow) is slow
    decisions.tell("0", PLAN)  # type: ignore[arg-type]
    assert begun.wait(PATIENCE_S)
    for number in range(1, MOST_WAITING + 4):
        decisions.tell(str(number), PLAN)  # type: ignore[arg-type]
    assert decisions.dropped == 3
    may_go_on.set()
    decisions.join()
    assert heard == [str(number) for number in range(MOST_WAITING + 1)]
