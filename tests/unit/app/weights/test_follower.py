"""The thread that follows a source: what it delivers, when it asks again, and when it ends."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from faust_assigner.app.weights import follower as module
from faust_assigner.app.weights.follower import Follower, WeightsUnreachable
from faust_assigner.app.weights.provider import WeightSettings, WeightsProvider
from faust_assigner.app.weights.sources import Found, NoWeights
from tests.support.waiting import PATIENCE_S, wait_until


class Taker:
    """Note each result."""

    def __init__(self) -> None:
        self.taken: list[Any] = []

    def take(self, found: Found) -> None:
        """Note the result."""
        self.taken.append((type(found), found if found is None else str(found)))


class Source:
    """Yield or raise the results of each visit, then wait; ``asked`` lists the visits."""

    def __init__(self, *visits: tuple[Any, ...]) -> None:
        self.visits, self.asked, self.closed = list(visits), list[float](), 0

    async def follow(self, poll_s: float) -> AsyncGenerator[Found, None]:
        """Play the next visit; the last one again and again."""
        self.asked.append(poll_s)
        try:
            for found in self.visits[0] if len(self.visits) == 1 else self.visits.pop(0):
                await asyncio.sleep(0)
                if isinstance(found, BaseException) and not isinstance(found, NoWeights):
                    raise found
                yield found
        finally:
            self.closed += 1


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a thread that waits for its resources until the limit fail its test."""
    monkeypatch.setattr(module, "CLOSE_S", 10 * PATIENCE_S)


def follow(taker: Taker, source: Any, poll_s: float = 0.001) -> Follower:
    """Start a thread."""
    follower = Follower(weakref.ref(taker), source, poll_s)
    follower.start()
    return follower


def test_all_results_are_delivered_in_order_and_an_error_as_a_reason() -> None:
    """A source that ends or fails is asked again; its errors have their types."""
    taker = Taker()
    source = Source(
        (b"one", None, NoWeights("no file")),
        (ValueError("a bug"),),
        (b"two", asyncio.CancelledError()),
        (None,),
    )
    follower = follow(taker, source, 0.002)
    wait_until(lambda: len(taker.taken) > 7)
    assert follower.runs
    assert follower.close(PATIENCE_S)
    assert not follower.runs
    assert taker.taken[:7] == [
        (bytes, "b'one'"),
        (type(None), None),
        (NoWeights, "no file"),
        (WeightsUnreachable, "ValueError: a bug"),
        (bytes, "b'two'"),
        (WeightsUnreachable, "CancelledError: "),
        (type(None), None),
    ]
    assert set(source.asked) == {0.002}
    assert source.closed == len(source.asked), "each visit has closed its resources"


@pytest.mark.parametrize("found", [b"one", None, RuntimeError("away")])
def test_the_thread_ends_once_nobody_takes_its_results(found: Any) -> None:
    """It ends by itself with the next result, also with a source that always fails."""
    takers, source = [Taker()], Source((found,))
    follower = follow(takers[0], source)
    wait_until(lambda: len(takers[0].taken) > 1)
    takers.clear()
    wait_until(lambda: not follower.runs)
    assert source.closed == len(source.asked)
    assert follower.close()


class Slow:
    """A source that goes on after its first cancellation."""

    async def follow(self, poll_s: float) -> AsyncGenerator[Found, None]:
        """Yield once, then wait twice."""
        yield b"one"
        try:
            await asyncio.sleep(10 * PATIENCE_S)
        except asyncio.CancelledError:
            await asyncio.sleep(10 * PATIENCE_S)


def test_a_source_that_does_not_end_in_time_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stop does not wait for its resources for longer than the limit."""
    monkeypatch.setattr(module, "CLOSE_S", 0.01)
    taker = Taker()
    follower = follow(taker, Slow())
    wait_until(lambda: bool(taker.taken))
    assert follower.close(PATIENCE_S)


def test_nothing_is_delivered_after_the_close() -> None:
    """The owner may be gone halfway; a second close returns at once."""
    taker = Taker()
    follower = follow(taker, Source((None,)))
    wait_until(lambda: bool(taker.taken))
    assert follower.close(PATIENCE_S)
    count = len(taker.taken)
    assert follower._hand_over(b"late")
    assert len(taker.taken) == count
    assert follower.close()
    assert follower.close(PATIENCE_S)


def test_the_thread_may_close_itself() -> None:
    """It does not wait for its own end, and says that it still runs."""
    said: list[bool] = []

    class Closing(Taker):
        def take(self, found: Found) -> None:
            said.append(follower.close(PATIENCE_S))

    taker = Closing()
    follower = Follower(weakref.ref(taker), Source((None,)), 0.001)
    follower.start()
    wait_until(lambda: not follower.runs)
    assert said == [False]


class Silent:
    """A source that never answers."""

    async def follow(self, poll_s: float) -> AsyncGenerator[Found, None]:
        """Wait."""
        await asyncio.sleep(10 * PATIENCE_S)
        yield None


def test_the_thread_of_a_silent_source_ends_with_its_provider() -> None:
    """No result comes that would show it that nobody takes results any more."""
    provider = WeightsProvider("shop", WeightSettings(Silent()))
    provider.start()
    assert not provider.wait(0.0)
    follower = provider._follower
    assert follower is not None
    assert follower.runs
    del provider
    gc.collect()
    wait_until(lambda: not follower.runs)


def test_a_look_without_a_change_is_a_look() -> None:
    """Tools that wait for the first look go on."""
    provider = WeightsProvider("shop", WeightSettings(Silent()))
    provider.take(None)
    assert provider.wait(0.0)
    assert (provider.current.code, provider.current.version) == ("loading", None)
