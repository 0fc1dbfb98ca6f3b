"""Holes 1 and 2 of an assigner: expired leases and deposed leaders.

Each test runs a scenario twice in virtual time: the naive variant fails, and ours does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.leading.election import Deposed, Leadership
from faust_assigner.service.leases import HeldLease
from faust_assigner.service.records import Assigned, Leader
from faust_assigner.service.store.base import Compare, Put, TxnResult, Write
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import LoopClock, virtually
from tests.unit.service.stories import ALL, AT, put, store

# -- 1: an answered keepalive does not mean a living lease ----------------------------------------------


class _AnswersZero(MemoryStore):
    """Answers for an expired lease like etcd: on an open stream, with a time to live of 0."""

    async def keep_alive(self, lease_id: int, *, timeout_s: float | None = None) -> float:
        return 0.0


class _Slow(MemoryStore):
    """Renews at once and answers after eight seconds."""

    async def keep_alive(self, lease_id: int, *, timeout_s: float | None = None) -> float:
        ttl = await super().keep_alive(lease_id)
        await asyncio.sleep(8.0)
        return ttl


class _NaiveLease(HeldLease):
    """Accepts any answer, and counts time from its arrival."""

    async def renew(self) -> bool:
        await self._store.keep_alive(self.lease_id)
        self._sent = self._clock.monotonic()
        return True


@pytest.mark.parametrize(("kind", "zombie"), [(HeldLease, False), (_NaiveLease, True)])
def test_1_a_keepalive_with_a_time_to_live_of_0_ends_the_leadership(
    kind: type[HeldLease], zombie: bool
) -> None:
    """The naive leader continues as long as it receives answers."""

    async def story() -> None:
        lease = await kind.grant(_AnswersZero(clock=LoopClock()), LoopClock(), 15.0)
        await lease.renew()
        assert lease.is_held is zombie

    virtually(story)


@pytest.mark.parametrize(("kind", "zombie"), [(HeldLease, False), (_NaiveLease, True)])
def test_1_a_leader_fences_itself_at_two_thirds_of_the_lease_from_when_it_asked(
    kind: type[HeldLease], zombie: bool
) -> None:
    """The answer came 8 s after the renewal; the remaining time counts from the request."""

    async def story() -> None:
        kept = _Slow(clock=LoopClock())
        lease = await kind.grant(kept, LoopClock(), 15.0)
        await lease.renew()
        await asyncio.sleep(2.5)
        assert lease.is_held is zombie
        await kept.close()

    virtually(story)


# -- 2: a deposed leader writes ---------------------------------------------------------------------------


class _NaiveTerm(Leadership):
    """Writes without a compare of the leader's key."""

    async def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        return await self._store.txn(compares, writes)


@pytest.mark.parametrize(("kind", "lands"), [(Leadership, False), (_NaiveTerm, True)])
def test_2_every_write_of_a_leader_compares_the_leaders_key(
    kind: type[Leadership], lands: bool
) -> None:
    """A second leader was elected; only the naive write succeeds."""

    async def story() -> None:
        kept = store()
        lease = await HeldLease.grant(kept, LoopClock(), 15.0)
        mine = await put(kept, ALL.leader, codec.dump_leader(Leader("a", 1)))
        term = kind(kept, ALL, lease, mine.mod_revision)
        await put(kept, ALL.leader, codec.dump_leader(Leader("b", 2)))
        done = await term.commit(
            [], [Put(ALL.assignment(AT), codec.dump_assigned(Assigned(AT, "x")))]
        )
        assert done.succeeded is lands
        assert (await kept.get(ALL.assignment(AT)) is not None) is lands
        await kept.close()

    virtually(story)


def test_2_a_leader_that_is_not_sure_of_its_lease_does_not_even_try() -> None:
    """The leader's own clock fences it, independent of the store's answer."""

    async def story() -> None:
        kept = store()
        lease = await HeldLease.grant(kept, LoopClock(), 15.0)
        term = Leadership(kept, ALL, lease, 1)
        await asyncio.sleep(10.5)
        with pytest.raises(Deposed):
            await term.commit([], [])
        await kept.close()

    virtually(story)
