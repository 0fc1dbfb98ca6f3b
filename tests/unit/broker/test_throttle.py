"""Long work in slices, and the memory of half-sent frames."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.broker import throttle
from faust_assigner.broker.frames import HeldBytes
from faust_assigner.broker.limits import MAX_ANSWER_BYTES
from faust_assigner.broker.throttle import AnswerTooLarge, HandlerQueue, Throttle
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance the clock by more than a slice at each reading."""
    count = itertools.count()
    # Only this module's clock is replaced: the loop's own clock continues.
    clock = SimpleNamespace(monotonic=lambda: next(count) * 2 * throttle.SLICE_S)
    monkeypatch.setattr(throttle, "time", clock)


def run(story: Callable[[], Any]) -> Any:
    """Run the story on its own loop, with a time limit."""
    return asyncio.run(asyncio.wait_for(story(), PATIENCE_S))


def test_an_answer_has_so_many_bytes_and_no_more() -> None:
    """The element beyond the limit raises an error."""

    async def story() -> None:
        mine = Throttle(HandlerQueue())
        await mine.checkpoint(MAX_ANSWER_BYTES)
        with pytest.raises(AnswerTooLarge):
            await mine.checkpoint(1)

    run(story)


@pytest.mark.usefixtures("ticking")
def test_a_long_handler_gives_the_loop_away_after_each_slice() -> None:
    """A second task runs between its elements."""
    turns: list[str] = []

    async def long() -> None:
        mine = Throttle(HandlerQueue())
        for number in range(3):
            turns.append(f"long {number}")
            await mine.checkpoint()
        mine.end()

    async def other() -> None:
        for _ in range(3):
            turns.append("other")
            await asyncio.sleep(0)

    async def story() -> None:
        await asyncio.gather(long(), other())

    run(story)
    assert turns[:4] == ["long 0", "other", "long 1", "other"]


def test_a_slice_begins_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that has yielded has a whole slice again."""
    now, yields = [0.0], [0]
    monkeypatch.setattr(throttle, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def sleep(_: float) -> None:
        yields[0] += 1

    async def story() -> list[int]:
        mine, seen = Throttle(HandlerQueue()), []
        for later in (0.0, throttle.SLICE_S, 0.0, 0.6 * throttle.SLICE_S, 0.6 * throttle.SLICE_S):
            now[0] += later
            with monkeypatch.context() as patched:
                patched.setattr(throttle.asyncio, "sleep", sleep)
                await mine.checkpoint()
            seen.append(yields[0])
        return seen

    assert run(story) == [0, 1, 1, 1, 2]


@pytest.mark.usefixtures("ticking")
def test_an_answer_that_takes_too_long_ends() -> None:
    """TimeoutError is raised after the time limit."""

    async def story() -> int:
        mine = Throttle(HandlerQueue(), timeout_s=20 * throttle.SLICE_S)
        for number in range(100):
            try:
                await mine.checkpoint()
            except TimeoutError:
                return number
        return 100

    assert run(story) < 10


@pytest.mark.usefixtures("ticking")
def test_few_long_handlers_are_under_way_at_a_time_and_the_others_follow() -> None:
    """A place is returned at the end; a handler that never took a place may end as well."""
    under_way, most, done = 0, 0, 0

    async def long(line: HandlerQueue) -> None:
        nonlocal under_way, most, done
        mine = Throttle(line)
        await mine.checkpoint()
        under_way += 1
        most = max(most, under_way)
        for _ in range(5):
            await mine.checkpoint()
        under_way -= 1
        mine.end()
        mine.end()
        done += 1

    async def story() -> None:
        line = HandlerQueue()
        await asyncio.gather(*(long(line) for _ in range(3 * throttle.LONG_AT_A_TIME)))

    run(story)
    assert (most, done) == (throttle.LONG_AT_A_TIME, 3 * throttle.LONG_AT_A_TIME)


def test_a_handler_that_does_not_wait_is_no_task() -> None:
    """Its result is available immediately."""

    async def handler() -> str:
        return "done"

    async def story() -> tuple[bool, Any]:
        return throttle.start(handler())

    assert run(story) == (True, "done")


def test_a_failure_behind_a_wait_reaches_the_handler() -> None:
    """The awaited future fails: the handler gets the error at its await and may still answer."""

    async def story() -> Any:
        waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def handler() -> str:
            try:
                await waited
            except ValueError as error:
                return f"heard {error}"
            return "heard nothing"

        finished, task = throttle.start(handler())
        assert not finished
        waited.set_exception(ValueError("it failed"))
        return await task

    assert run(story) == "heard it failed"


def test_a_handler_that_is_cancelled_behind_a_wait_ends() -> None:
    """The peer has disconnected: the coroutine is cancelled and returns its places."""
    ended: list[bool] = []

    async def story() -> None:
        async def handler() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.append(True)

        _, task = throttle.start(handler())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(story)
    assert ended == [True]


def test_a_cancelled_handler_frees_its_objects_without_a_garbage_collection() -> None:
    """A fetch session takes a slot until its last reference is gone; collections may be rare."""

    class Session:
        """An object of a handler."""

    async def story() -> bool:
        async def handler(session: Session) -> None:
            await asyncio.get_running_loop().create_future()

        session = Session()
        known = weakref.ref(session)
        _, task = throttle.start(handler(session))
        del session
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        del task
        await asyncio.sleep(0)
        return known() is None

    gc.disable()
    try:
        assert run(story)
    finally:
        gc.enable()


# -- half-sent frames ------------------------------------------------------------------------


def test_who_holds_bytes_for_longest_goes_first() -> None:
    """Beyond the limit the oldest holders are returned, as many as necessary."""
    held: HeldBytes[str] = HeldBytes(100)
    assert [held.hold(peer, 40) for peer in ("a", "b")] == [[], []]
    assert held.hold("c", 90) == ["a", "b"]
    assert held.hold("d", 10) == []


def test_who_gets_on_holds_from_then_on() -> None:
    """A completed frame is no longer held; the same peer's next frame is the newest."""
    held: HeldBytes[str] = HeldBytes(100)
    for peer in ("a", "b"):
        held.hold(peer, 40)
    held.hold("a", 0)
    held.hold("a", 40)
    assert held.hold("c", 40) == ["b"]


def test_growing_keeps_the_place_in_time() -> None:
    """More bytes of the same frame do not change its age."""
    held: HeldBytes[str] = HeldBytes(100)
    for peer in ("a", "b"):
        held.hold(peer, 30)
    held.hold("a", 50)
    assert held.hold("c", 30) == ["a"]


@pytest.mark.parametrize("is_swallowed", [False, True])
async def test_a_cancelled_handler_learns_it_where_it_waits(is_swallowed: bool) -> None:
    """A handler may clean up, wait once more and return; else its task is cancelled."""
    seen: list[str] = []

    async def handler() -> str:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)
            seen.append("cleaned up")
            if not is_swallowed:
                raise
        return "answer"

    is_finished, task = throttle.start(handler())
    assert not is_finished
    await asyncio.sleep(0)
    task.cancel()
    (result,) = await asyncio.gather(task, return_exceptions=True)
    assert seen == ["cancelled", "cleaned up"]
    if is_swallowed:
        assert result == "answer"
    else:
        assert isinstance(result, asyncio.CancelledError)
