"""The scaler's recommendations keep their promises in any life of a group."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from faust_assigner.scaler.case import GROW, HOLD, SHRINK, SLEEP
from faust_assigner.scaler.sizes import most_tasks, useful_sizes
from tests.support.examples import examples
from tests.unit.scaler.made import Group, group


class Event(NamedTuple):
    """The changes before a recommendation."""

    arrival: float
    processed: float
    busy: bool
    lost: int
    follows: bool
    seconds: float


EVENTS = st.lists(
    st.builds(
        Event,
        arrival=st.sampled_from([0.0, 10.0, 90.0, 250.0, 700.0, 5000.0]),
        processed=st.sampled_from([0.0, 100.0, 400.0, 1e6]),
        busy=st.booleans(),
        lost=st.sampled_from([0, 0, 0, 1, 3, 100]),
        follows=st.booleans(),
        seconds=st.sampled_from([0.0, 15.0, 60.0, 450.0]),
    ),
    max_size=8,
)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    """Draw a group of any size with any bounds."""
    least = draw(st.integers(0, 6))
    most = draw(st.none() | st.integers(max(1, least), 40))
    return group(
        members=draw(st.integers(0, 30)),
        tasks=draw(st.integers(1, 60)),
        standbys=draw(st.none() | st.integers(0, 3)),
        least=least,
        most=most,
        spare=draw(st.integers(0, 2)),
        worker_rate=draw(st.none() | st.sampled_from([0.5, 100.0, 1e6])),
        down_s=draw(st.sampled_from([0.0, 60.0, 900.0])),
        up_s=draw(st.sampled_from([0.0, 30.0])),
    )


@settings(max_examples=examples(300, 40), deadline=None)
@given(made=groups(), events=EVENTS)
def test_recommendations_keep_their_promises(made: Group, events: list[Event]) -> None:
    """The size stays while busy and within bounds; it shrinks stepwise and grows if useful."""
    for event in events:
        made.arrival, made.processed = event.arrival, event.processed
        made.busy = ("worker w1 restores state",) if event.busy else ()
        made.follows = event.follows
        made.members = max(0, made.members - event.lost)
        before = len(made.said)
        known = made.memory.size
        made.pass_time(event.seconds)
        for found in made.said[before:]:
            if event.busy and known:
                assert (found.size, found.decision) == (known, HOLD)
            check(made, found)
            known = found.size


def check(made: Group, found: object) -> None:
    """Check a recommendation."""
    size, present = found.size, found.present  # type: ignore[attr-defined]
    decision, useful = found.decision, found.useful  # type: ignore[attr-defined]
    assert found.reasons  # type: ignore[attr-defined]
    most = made.settings.most or max(made.tasks, made.settings.least, 1 + made.memory.standbys)
    if decision in (GROW, SHRINK):
        assert size in useful
        assert size <= most
        assert (size > present) is (decision == GROW)
    if decision == SHRINK and present in useful:
        larger = [n for n in useful if size < n < present]
        assert all(abs(n - present) * 10 <= present for n in larger)
    if decision == GROW and present >= useful[0]:
        assert most_tasks(made.tasks, size) < most_tasks(made.tasks, present)
    if decision == SLEEP:
        assert (size, made.settings.least) == (0, 0)
    assert useful == () or useful == useful_sizes(
        made.tasks, useful[0], min(made.tasks, useful[-1])
    )
