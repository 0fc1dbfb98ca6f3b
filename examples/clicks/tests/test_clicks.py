"""The app's tests, with the fixture ``fleet``: windows, timers, deaths, deploys."""

from __future__ import annotations

import pytest

from examples.clicks.app import Click
from faust_assigner.testing.fleet import StartFleet


def test_a_page_is_counted_when_its_window_closes(fleet: StartFleet) -> None:
    """The window closes ten seconds after its end and counts all clicks of the page."""
    shop = fleet("examples.clicks.app")
    for visitor in ("ada", "bob", "ada"):
        shop.send("clicks", Click(visitor), key="home", at=1_000_000_000.0)
    assert shop.records("counted") == []
    shop.advance(25)
    [count] = shop.records("counted")
    assert (count.key, count.value) == ("home", {"clicks": 3, "begin": 1_000_000_000.0})


def test_visitors_are_sent_every_minute(fleet: StartFleet) -> None:
    """The timer of 60 s fires three times within 185 s."""
    shop = fleet("examples.clicks.app")
    shop.send("clicks", Click("ada"), key="home")
    shop.advance(185)
    assert [record.value for record in shop.records("visitors")] == [1, 1, 1]


@pytest.mark.slow
def test_a_death_costs_no_restore(fleet: StartFleet) -> None:
    """Each task of the dead worker goes to a worker with a copy; no other task moves."""
    shop = fleet("examples.clicks.app", workers=3)
    shop.send_all("clicks", [("home", Click(f"visitor-{n}")) for n in range(60)])
    shop.advance(5)
    shop.kill("w2")
    shop.assert_moves(min=2, max=4)
    shop.assert_no_cold_moves()
    assert sum(shop.table("totals").values()) == 60


@pytest.mark.slow
def test_a_frozen_worker_is_passed_over_and_comes_back(fleet: StartFleet) -> None:
    """The remaining worker counts the clicks once; the frozen worker gets tasks again after its return."""
    shop = fleet("examples.clicks.app", workers=2)
    shop.freeze("w1")
    shop.settle()
    shop.send_all("clicks", [("home", Click("ada"))] * 10)
    shop.advance(5)
    assert shop.table("totals") == {"ada": 10}
    shop.bring_back("w1")
    shop.settle()
    assert set(shop.owners().values()) == {"w1", "w2"}


@pytest.mark.slow
@pytest.mark.processes
def test_a_new_worker_process_takes_its_share_warm(fleet: StartFleet) -> None:
    """With processes: a third worker joins two, and restores no changelog while its partitions wait."""
    shop = fleet("examples.clicks.app", workers=2, processes=True)
    shop.send_all("clicks", [(f"page-{n}", Click(f"visitor-{n}")) for n in range(60)])
    shop.add()
    shop.assert_moves(min=2, max=4)
    shop.assert_no_cold_moves()
