"""A restore beside streams: the wait of live records and the restore's share, in virtual time."""

from __future__ import annotations

import random

import pytest

from faust_assigner.app.recovery.restore_throttle import (
    FIRST_RECORDS,
    IDLE_TURN_S,
    LIVE_S,
    LIVE_TURN_S,
    MOST_RECORDS,
    RestoreThrottle,
)


class Worker:
    """A restore on a single core in virtual time; each record costs ``record_s``."""

    def __init__(self, share: float, record_s: float) -> None:
        self.now = self.spent = 0.0
        self.live = 0
        self.record_s = record_s
        self.pace = RestoreThrottle(
            share, lambda: self.live, clock=lambda: self.spent, now=lambda: self.now
        )
        #: (begin, end) of each turn.
        self.turns: list[tuple[float, float]] = []

    def run(self, seconds: float, *, live_every_s: float | None = None) -> int:
        """Restore for so many seconds; return the number of restored records."""
        until, records = self.now + seconds, 0
        while self.now < until:
            if live_every_s is not None:
                self.live = int(self.now / live_every_s) + 1
            most, began = self.pace.begin(), self.now
            self.spent += most * self.record_s
            self.now += most * self.record_s
            self.turns.append((began, self.now))
            self.now += self.pace.end(most)
            records += most
        return records

    def held(self, arrivals: list[float]) -> list[float]:
        """Return how long each live record waits for the turn at its arrival."""
        return [
            max((end - at for begin, end in self.turns if begin <= at < end), default=0.0)
            for at in arrivals
        ]


@pytest.mark.parametrize("record_s", [1e-6, 3e-6, 20e-6, 1e-3])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_live_record_waits_for_one_short_turn_at_most(share: float, record_s: float) -> None:
    """The cost of a changelog record does not matter; a single record cannot be split."""
    worker = Worker(share, record_s)
    worker.run(0.5)  # without live records its turns are long
    settled = worker.now + IDLE_TURN_S + MOST_RECORDS * record_s
    worker.live += 1
    worker.run(settled - worker.now)
    begun = len(worker.turns)
    worker.run(1.5, live_every_s=0.01)
    draw = random.Random(1)
    arrivals = [draw.uniform(worker.turns[begun][0], worker.turns[-1][1]) for _ in range(500)]
    waits = worker.held(arrivals)
    assert max(waits) <= max(LIVE_TURN_S, record_s) * 1.01
    assert max(waits) > 0


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_beside_live_records_a_restore_takes_its_share(share: float) -> None:
    """Without live records it takes all the time again."""
    worker = Worker(share, 3e-6)
    worker.run(0.2, live_every_s=0.01)
    spent, began = worker.spent, worker.now
    worker.run(2.0, live_every_s=0.01)
    assert (worker.spent - spent) / (worker.now - began) == pytest.approx(share, rel=0.02)
    worker.now += LIVE_S
    spent, began = worker.spent, worker.now
    worker.run(2.0)
    assert worker.spent - spent == pytest.approx(worker.now - began)


def test_costlier_records_make_shorter_turns_at_once() -> None:
    """The records' cost may change: a single turn is too long, the next turn is not."""
    worker = Worker(0.5, 2e-6)
    worker.run(0.5, live_every_s=0.01)
    worker.record_s = 100e-6
    worker.turns.clear()
    worker.run(0.5, live_every_s=0.01)
    assert all(end - begin <= LIVE_TURN_S * 1.01 for begin, end in worker.turns[1:])


def test_a_first_turn_is_small_and_turns_grow_step_by_step() -> None:
    """The cost is unknown at first, and a cheap turn does not predict the next turn."""
    worker = Worker(0.5, 1e-7)
    sizes = []
    for _ in range(6):
        sizes.append(worker.pace.begin())
        worker.spent += sizes[-1] * worker.record_s
        worker.pace.end(sizes[-1])
    assert sizes == [FIRST_RECORDS * 4**n for n in range(4)] + [MOST_RECORDS] * 2


def test_a_turn_without_records_says_nothing_of_their_cost() -> None:
    """A slow broker causes such a turn."""
    worker = Worker(0.5, 3e-6)
    worker.run(0.2)
    before = worker.pace.begin()
    worker.spent += 1.0
    assert worker.pace.end(0) == 0.0
    assert worker.pace.begin() == before


def test_a_record_that_cost_much_is_remembered_for_a_while() -> None:
    """A cheap turn afterwards stays short: the next record may be costly again."""
    spent = 0.0
    pace = RestoreThrottle(1.0, clock=lambda: spent, now=lambda: 0.0)
    assert pace.begin() == FIRST_RECORDS
    spent += 1e-3 * FIRST_RECORDS
    pace.end(FIRST_RECORDS)
    dear = pace.begin()
    spent += 1e-6 * dear
    pace.end(dear)
    assert dear < pace.begin() < 2 * dear


class Clocks:
    """A throttle whose clocks and live count change only by the test."""

    def __init__(self, share: float) -> None:
        self.spent, self.now, self.live = 7.0, 50.0, 3
        self.pace = RestoreThrottle(
            share, lambda: self.live, clock=lambda: self.spent, now=lambda: self.now
        )

    def turn(self, records: int, seconds: float) -> tuple[int, float]:
        """Return the turn's limit of records, and the pause after ``records``."""
        most = self.pace.begin()
        self.spent += seconds
        return most, self.pace.end(records)


def test_streams_are_at_work_for_a_second_after_their_last_record() -> None:
    """Records before the restore do not count; a decreased count is a new count."""
    clocks = Clocks(0.5)
    assert not clocks.pace.is_live()
    clocks.live += 1
    assert clocks.pace.is_live()
    clocks.now += LIVE_S * 0.99
    assert clocks.pace.is_live()
    clocks.now += LIVE_S * 0.01
    assert not clocks.pace.is_live()
    clocks.live = 0
    assert clocks.pace.is_live()


def test_a_turn_s_size_follows_from_its_time_and_the_cost_of_a_record() -> None:
    """A turn grows at most fourfold and has at least one record; live turns are shorter."""
    clocks, record_s = Clocks(0.25), 2.0**-13
    assert clocks.turn(100, 100 * record_s) == (FIRST_RECORDS, 0.0)
    assert clocks.turn(400, 400 * record_s) == (4 * FIRST_RECORDS, 0.0)
    assert clocks.turn(409, 409 * record_s) == (int(IDLE_TURN_S / record_s), 0.0)
    clocks.live += 1
    most, pause_s = clocks.turn(16, 16 * 2 * record_s)
    assert (most, pause_s) == (int(LIVE_TURN_S / record_s), 3 * 16 * 2 * record_s)
    assert clocks.turn(1, 0.5)[0] == int(LIVE_TURN_S / (2 * record_s))
    assert clocks.turn(1, 0.0)[0] == 1
    assert clocks.pace.begin() == 1, "a cost is forgotten by a fifth"


@pytest.mark.parametrize(
    ("share", "is_live", "pause_s"), [(0.25, True, 0.03), (0.25, False, 0.0), (1.0, True, 0.0)]
)
def test_a_pause_is_due_beside_streams_for_a_share_below_one(
    share: float, is_live: bool, pause_s: float
) -> None:
    """The turn then takes its share of the time; its time starts with the turn."""
    clocks = Clocks(share)
    clocks.spent += 9.0
    clocks.live += is_live
    assert clocks.turn(10, 0.01)[1] == pytest.approx(pause_s)
    most = clocks.pace.begin()
    clocks.spent -= 1.0
    assert clocks.pace.end(most) == 0.0, "a clock that goes back"
