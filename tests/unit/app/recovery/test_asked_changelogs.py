"""Following standbys: requests to the broker, tables ahead of their changelogs, and catching up."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.recovery import changelog_extents, following
from faust_assigner.app.recovery.changelog_extents import ChangelogExtents
from faust_assigner.app.recovery.following import StandbyFollower
from faust_assigner.app.recovery.restore_task import Stop

A, B = (TP("app-table-changelog", number) for number in range(2))


class Recovery:
    """A stub of the recovery and of its restores in batches."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.standby_offsets: dict[TP, int | None] = {A: 3, B: None}
        self.standby_highwaters = {A: 9, B: 9}
        self.tp_to_table = {A: "table a", B: "table b"}
        self.error: Exception | None = None

    def offsets_for(self, tp: TP) -> dict[TP, int | None]:
        """Return the offsets of the last applied records."""
        return self.standby_offsets

    async def restore(
        self, tps: Any, offsets: Any, highwaters: Any, stop: Any
    ) -> AsyncGenerator[TP, None]:
        """Restore the partitions; fail afterwards if there is an error."""
        assert offsets is self.standby_offsets
        assert highwaters is self.standby_highwaters
        assert isinstance(stop, Stop)
        assert not stop()
        for tp in tps:
            offsets[tp] = None if tp == B else 8
            yield tp
        if self.error is not None:
            raise self.error


class App:
    """An app whose broker answers with request and partition; ``acts`` records the calls."""

    should_stop = False

    def __init__(self) -> None:
        self.acts: list[Any] = []
        asked = SimpleNamespace(
            end_offsets=self._answering("end"), beginning_offsets=self._answering("first")
        )
        thread = SimpleNamespace(_ensure_consumer=lambda: asked, call_thread=self._call)
        self.consumer = SimpleNamespace(
            _thread=thread, seek_wait=self._seek, resume_partitions=self._resume
        )

    def _answering(self, name: str) -> Callable[[list[TP]], Awaitable[Any]]:
        async def answer(tps: list[TP]) -> Any:
            self.acts.append((name, tps))
            return {TP(*tp): (name, tp.partition) for tp in [*tps, TP("other", 7)]}

        return answer

    async def _call(self, ask: Any, tps: Any) -> Any:
        return await ask(tps)

    async def _seek(self, offsets: Any) -> None:
        self.acts.append(("seek", offsets))

    def _resume(self, tps: Any) -> None:
        self.acts.append(("resume", tps))

    async def crash(self, error: Exception) -> None:
        """Record the crash."""
        self.acts.append(("crash", error))


@pytest.fixture
def it() -> Any:
    """A recovery that follows standbys."""
    recovery: Any = Recovery(App())
    recovery.extents = ChangelogExtents(recovery)
    recovery.standbys = StandbyFollower(recovery, recovery.extents, recovery)  # type: ignore[arg-type]
    return recovery


async def test_ends_and_beginnings_are_asked_for_in_order(it: Any) -> None:
    """The answer covers the named partitions; without partitions there is no request."""
    assert await it.extents.ends({B, A}) == {A: ("end", 0), B: ("end", 1)}
    assert await it.extents.firsts([B]) == {B: ("first", 1)}
    assert await it.extents.ends([]) == {}
    assert it.app.acts == [("end", [A, B]), ("first", [B])]


async def test_each_standby_is_followed_from_where_its_batches_ended(it: Any) -> None:
    """It seeks to the next record, or to the first record for an empty standby."""
    await it.standbys._catch_up([A, B])
    assert it.app.acts == [("seek", {A: 9}), ("resume", {A}), ("seek", {B: 0}), ("resume", {B})]
    assert it.standbys.followed == {A, B}


async def test_a_question_is_repeated_under_its_name(
    it: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request lists the partitions in order; the answer contains only these partitions."""
    asked: list[Any] = []

    async def retry(service: Any, what: str, ask: Any) -> Any:
        asked.append((service, what))
        return await ask()

    monkeypatch.setattr(changelog_extents, "retry", retry)
    tps = [TP("t", number) for number in (3, 0, 2, 1)]
    assert await it.extents.ends(tps) == {tp: ("end", tp.partition) for tp in tps}
    assert await it.extents.firsts(tps[:2]) == {tp: ("first", tp.partition) for tp in tps[:2]}
    assert it.app.acts == [("end", sorted(tps)), ("first", sorted(tps[:2]))]
    assert asked == [(it, "Ends of changelogs"), (it, "Beginnings of changelogs")]


async def test_a_copy_is_followed_once_its_seek_is_done(
    it: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise records of an older position would be applied; each seek is retried separately."""
    asked: list[Any] = []

    async def retry(service: Any, what: str, ask: Any) -> Any:
        asked.append((what, set(it.standbys.followed)))
        return await ask()

    monkeypatch.setattr(following, "retry", retry)
    await it.standbys._catch_up([B, A])
    assert asked == [("Seek in a standby changelog", set()), ("Seek in a standby changelog", {B})]


@pytest.mark.parametrize("stops", [False, True])
async def test_an_error_while_catching_up_ends_a_worker_that_goes_on(it: Any, stops: bool) -> None:
    """Its standbys would stop unnoticed; a stopping worker needs no standbys."""
    it.error, it.app.should_stop = ValueError("a bug"), stops
    await it.standbys._catch_up([A])
    assert it.app.acts[2:] == ([] if stops else [("crash", it.error)])


@pytest.mark.parametrize("question", ["ends", "firsts"])
async def test_a_partition_without_an_answer_has_no_offset(it: Any, question: str) -> None:
    """An offset of 0 would take a changelog for empty, and its table for complete."""
    ask = it.app.consumer._thread.call_thread

    async def without_b(*asked: Any) -> Any:
        answer = await ask(*asked)
        return {tp: offset for tp, offset in answer.items() if tp != B}

    it.app.consumer._thread.call_thread = without_b
    assert list(await getattr(it.extents, question)([A])) == [A]
    with pytest.raises(KeyError, match="app-table-changelog"):
        await getattr(it.extents, question)([A, B])
