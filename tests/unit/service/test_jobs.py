"""A consumer's handlers: one call per partition at a time; aborted hand-offs are no errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from faust_assigner.service.client import (
    AbortWarm,
    Assigned,
    AssignerClient,
    Grant,
    Lost,
    Release,
    TopicPartition,
    Warm,
)
from faust_assigner.service.client.handlers import Jobs
from faust_assigner.service.errors import NotFound, ServiceRefused, WrongCaller, WrongPhase
from tests.support.assigning.instances import until

AT = TopicPartition("orders", 0)
WARM = Warm(AT, "old", 7)
RELEASE = Release(AT, "new", 8)


class Heard:
    """A client whose answers are all accepted."""

    async def ready(self, command: Warm) -> bool:
        """Accept."""
        return True

    async def released(self, command: Release, final_offset: int | None = None) -> bool:
        """Accept."""
        return True

    async def release_failed(self, command: Release, reason: str) -> bool:
        """Accept."""
        return True

    async def failed(self, command: Warm, reason: str) -> bool:
        """Accept."""
        return True


class Slow:
    """Handlers that wait for :attr:`go`; they record running calls and overlaps."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.running: set[str] = set()
        self.done: list[str] = []
        self.beside: list[tuple[str, ...]] = []

    @contextlib.contextmanager
    def _call(self, name: str) -> Iterator[None]:
        if self.running:
            self.beside.append((name, *sorted(self.running)))
        self.running.add(name)
        try:
            yield
        finally:
            self.running.discard(name)
            self.done.append(name)

    async def assigned(self, command: Assigned) -> None:
        """Return at once."""
        with self._call("assigned"):
            pass

    async def warm(self, command: Warm) -> None:
        """Wait for :attr:`go`."""
        with self._call("warm"):
            await self.go.wait()

    async def release(self, command: Release) -> int | None:
        """Wait for :attr:`go`."""
        with self._call("release"):
            await self.go.wait()
        return None


async def test_a_partition_is_not_given_beside_its_running_warm_up() -> None:
    """Its old owner died: the warm-up ends before the assignment."""
    handlers = Slow()
    jobs = Jobs(Heard(), handlers)  # type: ignore[arg-type]
    await jobs.take(WARM)
    await until(lambda: "warm" in handlers.running)
    grant = Grant(AT, 5)
    await jobs.take(Assigned({AT: grant}, (grant,)))
    assert (handlers.done, handlers.beside) == (["warm", "assigned"], [])
    await jobs.close()


async def test_a_partition_is_not_warmed_beside_its_running_release() -> None:
    """The partition returns while its flush is running."""
    handlers = Slow()
    jobs = Jobs(Heard(), handlers)  # type: ignore[arg-type]
    await jobs.take(RELEASE)
    await until(lambda: "release" in handlers.running)
    await jobs.take(WARM)
    await asyncio.sleep(0.05)
    assert handlers.running == {"release"}
    handlers.go.set()
    await until(lambda: len(handlers.done) == 2)
    assert (handlers.done, handlers.beside) == (["release", "warm"], [])
    await jobs.close()


async def test_a_release_under_way_ends_before_its_partition_is_lost() -> None:
    """The next owner may work, so the previous owner's flush must not continue."""

    class Loses(Slow):
        async def lost(self, command: Lost) -> None:
            with self._call("lost"):
                pass

    handlers = Loses()
    jobs = Jobs(Heard(), handlers)  # type: ignore[arg-type]
    await jobs.take(RELEASE)
    await until(lambda: "release" in handlers.running)
    await jobs.take(Lost((AT,)))
    assert (handlers.done, handlers.beside) == (["release", "lost"], [])
    await jobs.close()


class Late(Heard):
    """A client whose hand-off is over."""

    async def ready(self, command: Warm) -> bool:
        """Refuse."""
        return False


class Forgets(Slow):
    """Handlers that are warm at once, and record dropped partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.go.set()
        self.dropped: list[AbortWarm] = []

    async def abort(self, command: AbortWarm) -> None:
        """Record the drop."""
        self.dropped.append(command)


async def test_a_warmed_partition_is_dropped_if_its_abort_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stream broke before AbortWarm, and the state would stay until the process ends."""
    monkeypatch.setattr("faust_assigner.service.client.handlers.MISSED_S", 0.05)
    handlers = Forgets()
    jobs = Jobs(Late(), handlers)  # type: ignore[arg-type]
    await jobs.take(WARM)
    await until(lambda: bool(handlers.dropped))
    await jobs.close()
    assert handlers.dropped == [AbortWarm(AT, 7)]


@pytest.mark.parametrize(
    ("follows", "dropped"),
    [(AbortWarm(AT, 7), 1), (Assigned({AT: Grant(AT, 5)}, (Grant(AT, 5),)), 0)],
    ids=["an abort", "a grant"],
)
async def test_a_warmed_partition_waits_for_the_message_that_follows(
    monkeypatch: pytest.MonkeyPatch, follows: AbortWarm | Assigned, dropped: int
) -> None:
    """An abort drops the state once, and a grant keeps it."""
    monkeypatch.setattr("faust_assigner.service.client.handlers.MISSED_S", 3_600.0)
    handlers = Forgets()
    jobs = Jobs(Late(), handlers)  # type: ignore[arg-type]
    await jobs.take(WARM)
    await until(lambda: "warm" in handlers.done)
    warming = jobs._warming[AT]
    await jobs.take(follows)
    assert (len(handlers.dropped), warming.cancelled()) == (dropped, True)
    await jobs.close()


class Drops(Forgets):
    """Handlers that drop a partition slowly."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = asyncio.Event()

    async def abort(self, command: AbortWarm) -> None:
        """Wait, then record."""
        with self._call("abort"):
            await self.may_end.wait()
            self.dropped.append(command)


async def test_a_partition_that_is_granted_while_it_is_dropped_is_opened_after_the_drop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cancelled drop would leave incomplete state for the new owner."""
    monkeypatch.setattr("faust_assigner.service.client.handlers.MISSED_S", 0.01)
    handlers = Drops()
    jobs = Jobs(Late(), handlers)  # type: ignore[arg-type]
    await jobs.take(WARM)
    await until(lambda: "abort" in handlers.running)
    asyncio.get_running_loop().call_later(0.05, handlers.may_end.set)
    await jobs.take(Assigned({AT: Grant(AT, 5)}, (Grant(AT, 5),)))
    assert (handlers.dropped, handlers.done[-1]) == ([AbortWarm(AT, 7)], "assigned")
    await jobs.close()


async def test_a_release_that_raises_is_told_with_its_reason() -> None:
    """As released, the service would regard the partition as flushed."""
    told: list[tuple[str, object]] = []

    class Noting(Heard):
        async def released(self, command: Release, final_offset: int | None = None) -> bool:
            told.append(("released", final_offset))
            return True

        async def release_failed(self, command: Release, reason: str) -> bool:
            told.append(("release failed", reason))
            return True

    class Fails(Slow):
        async def release(self, command: Release) -> int | None:
            raise OSError("disk full")

    jobs = Jobs(Noting(), Fails())  # type: ignore[arg-type]
    await jobs.take(RELEASE)
    await until(lambda: bool(told))
    await jobs.close()
    assert told == [("release failed", "OSError: disk full")]


@pytest.mark.parametrize(
    ("refusal", "is_raised"),
    [(NotFound("gone"), False), (WrongPhase("over"), False), (WrongCaller("not you"), True)],
)
@pytest.mark.parametrize("answer", ["ready", "released", "release failed", "failed"])
async def test_an_answer_to_a_handoff_that_is_over_does_not_end_the_consumer(
    monkeypatch: pytest.MonkeyPatch, answer: str, refusal: ServiceRefused, is_raised: bool
) -> None:
    """The hand-off was aborted during the warm-up or release; a wrong caller gets its error."""

    async def refused(method: str, request: object, **options: object) -> None:
        raise refusal

    client = AssignerClient("127.0.0.1:1", "a")
    monkeypatch.setattr(client._calls, "once", refused)
    answers = {
        "ready": lambda: client.ready(WARM),
        "released": lambda: client.released(RELEASE),
        "release failed": lambda: client.release_failed(RELEASE, "no"),
        "failed": lambda: client.failed(WARM, "no"),
    }
    if is_raised:
        with pytest.raises(WrongCaller):
            await answers[answer]()
    else:
        assert await answers[answer]() is False


async def test_the_last_consumer_releases_its_partitions_when_it_leaves() -> None:
    """No consumer takes them over, so without the call the work would continue after run()."""
    handlers = Slow()
    handlers.go.set()
    jobs = Jobs(Heard(), handlers)  # type: ignore[arg-type]
    await jobs.finish([AT, TopicPartition("orders", 1)], 10.0)
    assert handlers.done == ["release", "release"]


async def test_a_last_release_that_outlasts_the_registration_ends_as_lost() -> None:
    """From then on a different consumer may own the partition."""

    class Losing(Slow):
        async def lost(self, command: Lost) -> None:
            self.done.append(f"lost {command.partitions}")

    handlers = Losing()
    jobs = Jobs(Heard(), handlers)  # type: ignore[arg-type]
    await jobs.finish([AT], 0.05)
    assert handlers.done == ["release", f"lost {(AT,)}"]


async def test_a_release_under_way_is_not_called_twice_at_the_end() -> None:
    """The consumer leaves during the flush for a new owner that then dies."""
    handlers = Slow()
    jobs = Jobs(Heard(), handlers)  # type: ignore[arg-type]
    await jobs.take(RELEASE)
    await until(lambda: "release" in handlers.running)
    asyncio.get_running_loop().call_later(0.05, handlers.go.set)
    await jobs.finish([AT], 10.0)
    assert (handlers.done, handlers.beside) == (["release"], [])
