"""Instances whose wall clocks differ by an hour: deadlines and cooldowns last as configured."""

from __future__ import annotations

import asyncio
import time

import pytest

from faust_assigner.service.clock import SystemClock
from faust_assigner.service.commands import AbortWarm, Warm
from faust_assigner.service.handoff import State
from faust_assigner.service.leading.record import Seen
from faust_assigner.service.leases import HeldLease
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.store.memory import MemoryStore
from faust_assigner.settings.service import ServiceSettings
from tests.support.assigning.consumers import Bench, LoopClock, eventually, quick, virtually
from tests.unit.service.stories import store


class _WrongClock(LoopClock):
    """A machine with a wrong date."""

    def __init__(self, ahead_s: float) -> None:
        self.ahead_s = ahead_s

    def wall(self) -> float:
        """Return the machine's wrong Unix time."""
        return super().wall() + self.ahead_s


async def _skewed(bench: Bench, ahead_s: float, *, topics: int | None = None) -> AssignerNode:
    settings = quick(bench.prefix, handoff_timeout_s=20.0, cooldown_s=10.0)
    node = AssignerNode(
        bench.open_store(),
        settings,
        node_id=f"n{len(bench.nodes)}",
        topics={"t": topics} if topics else None,
        clock=_WrongClock(ahead_s),
    )
    bench.nodes.append(node)
    await node.start()
    return node


async def test_a_lease_ends_also_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a resumed instance confirms registrations that the store has ended."""
    kept = MemoryStore()
    lease = await HeldLease.grant(kept, SystemClock(), 30.0)
    assert lease.is_held
    real = time.clock_gettime
    monkeypatch.setattr(
        time, "clock_gettime", lambda clock: real(clock) + 60.0 * (clock == time.CLOCK_BOOTTIME)
    )
    assert not lease.is_held
    await kept.close()


@pytest.mark.parametrize("state", [state for state in State if state is not State.GONE])
def test_a_release_and_an_expulsion_have_their_own_time_after_a_long_warm_up(state: State) -> None:
    """Otherwise a hand-off with a long warm-up would end as soon as its owner was expelled."""
    settings = ServiceSettings(handoff_timeout_s=300.0, release_timeout_s=60.0)
    over_at = Seen(1, state, began=1_000.0, since=1_299.0).over_at(settings)
    is_timed_anew = state in (State.RELEASING, State.EXPELLED)
    assert over_at == (1_359.0 if is_timed_anew else 1_300.0)


@pytest.mark.parametrize("ahead_s", [3_600.0, -3_600.0])
def test_a_new_leader_with_another_date_ends_no_handoff_before_its_timeout_and_each_at_it(
    ahead_s: float,
) -> None:
    """Earlier, hand-offs ended at once under a fast clock, and an hour late under a slow clock."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            first = await _skewed(b, 0.0, topics=2)
            second = await _skewed(b, ahead_s)
            await b.consumer(second, "a")
            await b.settles(2)
            slow = await b.consumer(second, "b", warm_s=None)
            await eventually(lambda: slow.of(Warm))
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(8.0)
            await first.stop()
            await asyncio.sleep(8.0)
            assert second.leads
            assert not slow.of(AbortWarm)
            await eventually(lambda: slow.of(AbortWarm))
            assert 19.0 < asyncio.get_running_loop().time() - began < 22.0
        await kept.close()

    virtually(story)


@pytest.mark.parametrize("ahead_s", [3_600.0, -3_600.0])
def test_a_cool_down_lasts_as_long_whatever_the_dates_of_two_leaders(ahead_s: float) -> None:
    """The clock of the writing leader is an hour fast or slow; the next leader reads the cooldown."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            first = await _skewed(b, ahead_s, topics=2)
            second = await _skewed(b, 0.0)
            await b.consumer(second, "a")
            await b.settles(2)
            broken = await b.consumer(second, "b", fails=True)
            await eventually(lambda: second._mirror.view.cooldowns)
            began = asyncio.get_running_loop().time()
            await first.stop()
            await asyncio.sleep(5.0)
            assert second.leads
            assert second._mirror.view.cooldowns
            broken.fails = False
            await eventually(lambda: broken.owned)
            assert 9.0 < asyncio.get_running_loop().time() - began < 14.0
        await kept.close()

    virtually(story)
