"""Many simultaneous registrations: a few at a time, in order, and with a time limit."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from faust_assigner.service.errors import Busy
from faust_assigner.service.server.servicer import refusals_as_status
from faust_assigner.service.serving.admission import AT_ONCE, Admission
from faust_assigner.service.store.base import Lease
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import Bench, LoopClock, eventually, virtually


class _Counting(MemoryStore):
    """Each grant takes a while; ``most`` is the highest number of simultaneous grants."""

    under_way = most = 0

    async def grant(self, ttl_s: float) -> Lease:
        """Grant a lease after a delay."""
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0.05)
        self.under_way -= 1
        return await super().grant(ttl_s)


def test_of_many_registrations_at_once_a_few_are_carried_out_at_a_time_and_all_succeed() -> None:
    """Without the limit, each registration takes as long as all of them together."""

    async def story() -> None:
        kept = _Counting(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 200}, consumer_ttl_s=30.0)
            await eventually(lambda: node.leads)  # the leader also needs a lease
            kept.most = 0
            await asyncio.gather(*(b.consumer(node, f"c{number:03}") for number in range(200)))
            assert kept.most == AT_ONCE
            await b.settles(*[1] * 200)
        await kept.close()

    virtually(story)


def test_a_registration_that_gets_no_place_in_time_is_refused_and_the_next_is_not() -> None:
    """A caller that gave up holds no place."""

    async def story() -> None:
        admission = Admission(at_once=1, patience_s=5.0)
        loop = asyncio.get_running_loop()
        async with admission.turn():
            began = loop.time()
            with pytest.raises(Busy, match="try again"):
                async with admission.turn():
                    raise AssertionError("a second place")
            assert loop.time() - began == pytest.approx(5.0)
        async with admission.turn():
            pass

    virtually(story)


def test_more_registrations_than_may_wait_are_refused_at_once() -> None:
    """The queue's limit bounds memory and the waiting time of its last caller."""

    async def story() -> None:
        admission = Admission(at_once=1, most_waiting=2)

        async def register() -> float:
            async with admission.turn():
                await asyncio.sleep(1.0)
            return asyncio.get_running_loop().time()

        async with admission.turn():
            waiting = [asyncio.create_task(register()) for _ in range(3)]
            await asyncio.sleep(0.1)
            assert [task.done() for task in waiting] == [False, False, True]
            assert isinstance(waiting[2].exception(), Busy)
        assert await waiting[0] < await waiting[1]

    virtually(story)


async def test_a_refusal_for_want_of_room_may_be_tried_again() -> None:
    """UNAVAILABLE makes the client try the next instance; other refusals end the client."""
    told: list[grpc.StatusCode] = []

    class Context:
        async def abort(self, code: grpc.StatusCode, details: str) -> None:
            told.append(code)

    context: Any = Context()
    async with refusals_as_status(context):
        raise Busy("later")
    assert told == [grpc.StatusCode.UNAVAILABLE]


def test_a_registration_that_fails_gives_its_place_back() -> None:
    """Otherwise sixteen failures would stop all registrations of an instance."""

    async def story() -> None:
        admission = Admission(at_once=1, patience_s=5.0)
        with pytest.raises(ZeroDivisionError):
            async with admission.turn():
                raise ZeroDivisionError
        async with admission.turn():
            pass

    virtually(story)


@pytest.mark.parametrize("end", ["patience", "cancelled"])
def test_who_waits_no_more_is_not_counted_among_the_waiting(end: str) -> None:
    """After a time limit or a lost connection, the next caller may wait."""

    async def story() -> None:
        admission = Admission(at_once=1, most_waiting=1, patience_s=5.0)

        async def register() -> None:
            async with admission.turn():
                pass

        async with admission.turn():
            first = asyncio.create_task(register())
            await asyncio.sleep(6.0 if end == "patience" else 1.0)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            second = asyncio.create_task(register())
            await asyncio.sleep(1.0)
            assert not second.done()
        await second

    virtually(story)


def test_a_refusal_says_how_long_or_how_many(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the number that still waits, and the time with its fraction."""
    found: list[str] = []

    async def story() -> None:
        admission = Admission(at_once=1, most_waiting=2, patience_s=2.5)

        async def ask() -> None:
            try:
                async with admission.turn():
                    await asyncio.sleep(100.0)
            except Busy as error:
                found.append(str(error))

        tasks = [asyncio.create_task(ask())]
        for _ in range(3):
            await asyncio.sleep(0.5)
            tasks.append(asyncio.create_task(ask()))
        await asyncio.sleep(20.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    virtually(story)
    late = "this instance could not serve the registration within 2.5 s: try again"
    assert found == ["2 registrations already wait at this instance: try again", late, late]
    assert [one.getMessage() for one in caplog.records] == [
        "a registration waited for 2.5 s and is refused; its consumer tries again; "
        f"{waiting} registrations wait"
        for waiting in (2, 1)
    ]
