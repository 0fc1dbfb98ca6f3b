"""The terms of a leader, from the campaign to the resignation, with its lease and key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.errors import StoreUnavailable
from faust_assigner.service.leading.election import Deposed, Election, Leadership
from faust_assigner.service.records import Leader
from faust_assigner.service.store.base import Compare, Delete, Field, Put, TxnResult, Write
from faust_assigner.service.store.memory import MemoryStore
from faust_assigner.service.tasks import cancel_and_wait
from faust_assigner.settings.service import ServiceSettings
from tests.support.assigning.consumers import LoopClock, virtually
from tests.unit.service.stories import ALL

SETTINGS = ServiceSettings(
    prefix="/g/", leader_ttl_s=12.0, leader_keepalive_s=2.0, election_retry_s=5.0
)


class Instance:
    """An instance that campaigns; ``lead`` is its work in a term."""

    def __init__(
        self, store: MemoryStore, name: str, lead: Callable[[Leadership], Awaitable[None]]
    ):
        self.terms: list[tuple[float, Leadership]] = []
        self.ends: list[float] = []
        self.vacant_at: list[float] = []
        self.work = lead
        self.election = Election(store, ALL, SETTINGS, LoopClock(), name, self._lead, self._vacant)

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return asyncio.get_running_loop().time() - 1_000.0

    async def _lead(self, term: Leadership) -> None:
        self.terms.append((self.now, term))
        try:
            await self.work(term)
        finally:
            self.ends.append(self.now)

    async def _vacant(self) -> None:
        self.vacant_at.append(self.now)
        await asyncio.sleep(3.0)


async def forever(term: Leadership) -> None:
    """Lead until the end of the term."""
    await asyncio.sleep(1e9)


async def leader(store: MemoryStore) -> tuple[Leader, int] | None:
    """Return the leader's document and the lease of its key."""
    kv = await store.get(ALL.leader)
    return None if kv is None else (codec.load_leader(kv.value), kv.lease)


def test_one_instance_leads_under_a_renewed_lease_and_the_other_looks_again() -> None:
    """The key has the instance and its lease; the term has the key's revision."""

    async def story() -> None:
        store = MemoryStore(clock=LoopClock())
        one, two = Instance(store, "n1", forever), Instance(store, "n2", forever)
        running = [asyncio.create_task(x.election.run()) for x in (one, two)]
        await asyncio.sleep(100.0)
        [(began, term)] = one.terms
        kv = await store.get(ALL.leader)
        assert kv is not None
        lease_id = term.lease.lease_id
        assert await leader(store) == (Leader("n1", lease_id), lease_id)
        assert (began, term.revision, term.lease.granted_s) == (0.0, kv.mod_revision, 12.0)
        assert (one.election.leads, two.election.leads) == (True, False)
        assert (one.election.term, two.election.term, two.terms) == (term, None, [])
        assert two.vacant_at == [3.0 * n for n in range(34)]
        assert list(store._leases) == [lease_id]
        for task in running:
            await cancel_and_wait(task)

    virtually(story)


@pytest.mark.parametrize(
    ("error", "again"), [(None, 13.0), (Deposed(), 13.0), (RuntimeError("bug"), 18.0)]
)
def test_a_term_whose_work_ends_gives_its_key_back_at_once(
    error: Exception | None, again: float
) -> None:
    """After an error the instance waits for the retry time before its next campaign."""

    async def story() -> None:
        store = MemoryStore(clock=LoopClock())

        async def works(term: Leadership) -> None:
            if len(one.terms) > 1:
                await forever(term)
            await asyncio.sleep(10.0)
            if error is not None:
                raise error

        one = Instance(store, "n1", works)
        running = asyncio.create_task(one.election.run())
        await asyncio.sleep(10.1)
        assert (await leader(store), store._leases) == (None, {})
        assert (one.election.term, one.election.leads) == (None, False)
        await asyncio.sleep(10.0)
        assert [began for began, _ in one.terms] == [0.0, again]
        assert one.vacant_at[0] == again - 3.0
        await cancel_and_wait(running)

    virtually(story)


def test_a_term_ends_with_its_lease() -> None:
    """At the next renewal the lost lease cancels the work, and the next term begins."""

    async def story() -> None:
        store = MemoryStore(clock=LoopClock())
        one = Instance(store, "n1", forever)
        running = asyncio.create_task(one.election.run())
        await asyncio.sleep(3.0)
        term = one.terms[0][1]
        await store.revoke(term.lease.lease_id)
        await asyncio.sleep(1.5)
        assert (one.ends, one.election.term, term.is_held) == ([4.0], None, False)
        await asyncio.sleep(3.0)
        assert [began for began, _ in one.terms] == [0.0, 7.0]
        await cancel_and_wait(running)

    virtually(story)


class Failing(MemoryStore):
    """A store that fails the calls in ``fails``, and records its transactions."""

    def __init__(self) -> None:
        super().__init__(clock=LoopClock())
        self.fails: set[str] = set()
        self.txns: list[tuple[tuple[Compare, ...], tuple[Write, ...]]] = []

    async def grant(self, ttl_s: float) -> Any:
        """Fail, or grant."""
        if "grant" in self.fails:
            raise StoreUnavailable("no answer")
        return await super().grant(ttl_s)

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Fail, or write."""
        self.txns.append((tuple(compares), tuple(writes)))
        if "txn" in self.fails:
            raise StoreUnavailable("no answer")
        return await super().txn(compares, writes)


def test_nobody_campaigns_while_an_instance_leads() -> None:
    """A campaign in vain would cost a lease and a transaction at every look."""

    async def story() -> None:
        store = Failing()
        one = Instance(store, "n1", forever)
        await store.txn([], [Put(ALL.leader, codec.dump_leader(Leader("n0", 3)))])
        store.txns.clear()
        store.fails = {"grant", "txn"}
        running = asyncio.create_task(one.election.run())
        await asyncio.sleep(7.0)
        assert (one.vacant_at, one.terms, store.txns) == ([0.0, 3.0, 6.0], [], [])
        store.fails = {"txn"}
        await asyncio.sleep(3.0)
        assert (store.txns, store._next_lease) == ([], 1)
        await cancel_and_wait(running)

    virtually(story)


@pytest.mark.parametrize("call", ["grant", "txn"])
def test_a_store_without_an_answer_is_asked_again(call: str) -> None:
    """A failed campaign leaves no lease."""

    async def story() -> None:
        store = Failing()
        store.fails = {call}
        one = Instance(store, "n1", forever)
        running = asyncio.create_task(one.election.run())
        await asyncio.sleep(7.0)
        assert (one.terms, one.vacant_at, store._leases) == ([], [0.0, 3.0, 6.0], {})
        store.fails = set()
        await asyncio.sleep(3.0)
        assert [began for began, _ in one.terms] == [9.0]
        await cancel_and_wait(running)

    virtually(story)


@pytest.mark.parametrize("fails", [set(), {"txn"}])
def test_a_resignation_deletes_the_key_and_the_lease(fails: set[str]) -> None:
    """The store may fail at first; a second resignation does nothing."""

    async def story() -> None:
        store = Failing()
        one = Instance(store, "n1", forever)
        running = asyncio.create_task(one.election.run())
        await asyncio.sleep(1.0)
        term = one.election.term
        assert term is not None
        await cancel_and_wait(running)
        store.fails, store.txns[:] = fails, []
        await one.election.resign()
        assert store.txns == [
            ((Compare(ALL.leader, Field.MOD_REVISION, term.revision),), (Delete(ALL.leader),))
        ]
        assert (await leader(store), store._leases, one.election.term) == (None, {}, None)
        await one.election.resign()
        assert len(store.txns) == 1

    virtually(story)


@pytest.mark.parametrize("is_held", [True, False])
def test_a_resignation_deletes_the_key_before_the_lease(is_held: bool) -> None:
    """Without a valid lease there is nothing to delete: another instance may lead."""

    async def story() -> None:
        store = MemoryStore(clock=LoopClock())
        told: list[object] = []
        one = Instance(store, "n1", forever)
        running = asyncio.create_task(one.election.run())
        await asyncio.sleep(1.0)
        term = one.election.term
        assert term is not None
        await cancel_and_wait(running)
        assert one.election.term is term
        commit, revoke = term.commit, term.lease.revoke

        async def committing(*said: Any) -> TxnResult:
            told.append(said)
            assert one.election.term is None
            return await commit(*said)

        async def revoking() -> None:
            told.append("revoked")
            await revoke()

        term.commit, term.lease.revoke = committing, revoking  # type: ignore[method-assign]
        if not is_held:
            term.lease.give_up()
        await one.election.resign()
        assert told == [([], [Delete(ALL.leader)]), "revoked"]
        assert (store._leases, await leader(store), one.election.leads) == ({}, None, False)
        await one.election.resign()
        assert len(told) == 2

    virtually(story)


def test_a_leader_writes_only_under_its_key_and_its_lease() -> None:
    """The leader's own compare comes first; without a lease, no request is sent."""

    async def story() -> None:
        store = Failing()
        one = Instance(store, "n1", forever)
        running = asyncio.create_task(one.election.run())
        await asyncio.sleep(1.0)
        term = one.terms[0][1]
        store.txns.clear()
        more, put = Compare("/g/x", Field.VERSION, 0), Put("/g/x", b"1")
        guard = Compare(ALL.leader, Field.MOD_REVISION, term.revision)
        assert (await term.commit([more], [put])).succeeded
        assert store.txns == [((guard, more), (put,))]
        timed = await term.timed(33.0)
        assert store._leases[timed].ttl_s == 33.0
        term.lease.give_up()
        assert one.election.leads is False
        with pytest.raises(Deposed, match=f"revision {term.revision} has ended"):
            await term.commit([], [put])
        assert len(store.txns) == 1
        await cancel_and_wait(running)

    virtually(story)
