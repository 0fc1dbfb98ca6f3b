"""The callbacks of on_recover: when they run, and that rounds do not interrupt them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faust_assigner.app.recovery import callbacks
from faust_assigner.app.recovery.callbacks import RecoverCallbacks


class Table:
    """A table whose callback runs until ``may_end``; ``calls`` counts starts and ends."""

    def __init__(self, name: str = "counts", error: Exception | None = None) -> None:
        self.name, self.error, self.may_end, self.calls = name, error, asyncio.Event(), [0, 0]

    async def call_recover_callbacks(self) -> None:
        """Run until ``may_end``, as an app's callback."""
        self.calls[0] += 1
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        self.calls[1] += 1


def everything(table: Any) -> bool:
    """Report the whole table as restored."""
    return True


async def test_who_is_interrupted_while_a_callback_runs_leaves_it_running() -> None:
    """The callback ends once, and the next round waits for its end."""
    table, due = Table(), RecoverCallbacks()
    due.owe([table])
    due.begin(everything)
    waiting = asyncio.ensure_future(due.over())
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert (table.calls, due.running) == ([1, 0], {table})
    due.begin(everything)
    table.may_end.set()
    await due.over()
    assert (table.calls, due.running) == ([1, 1], frozenset())


async def test_callbacks_wait_for_the_whole_table_and_are_not_forgotten() -> None:
    """A table with a pending partition stays due; other tables' callbacks start."""
    first, second, due = Table(), Table(), RecoverCallbacks()
    first.may_end.set()
    second.may_end.set()
    due.owe([first, second])
    due.begin(lambda table: table is second)
    await due.over()
    assert (first.calls, second.calls) == ([0, 0], [1, 1])
    due.begin(everything)
    await due.over()
    assert (first.calls, second.calls) == ([1, 1], [1, 1])


async def test_a_table_restored_again_is_called_back_again_afterwards() -> None:
    """The two calls do not overlap."""
    table, due = Table(), RecoverCallbacks()
    for _ in range(2):
        due.owe([table])
        due.begin(everything)
    await asyncio.sleep(0.01)
    assert table.calls == [1, 0]
    table.may_end.set()
    await due.over()
    assert table.calls == [2, 2]


async def test_a_table_called_back_twice_runs_until_the_second_end() -> None:
    """The end of the first callback does not end the wait for the second."""
    table, due = Table(), RecoverCallbacks()
    due.owe([table])
    due.begin(everything)
    await asyncio.sleep(0.01)
    first_end, table.may_end = table.may_end, asyncio.Event()
    due.owe([table])
    due.begin(everything)
    first_end.set()
    while table.calls != [2, 1]:
        await asyncio.sleep(0.01)
    assert due.running == {table}
    table.may_end.set()
    await due.over()
    assert (table.calls, due.running) == ([2, 2], frozenset())


async def test_a_callback_that_fails_is_logged_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Faust continues too."""
    table, due = Table(error=ValueError("no cache")), RecoverCallbacks()
    table.may_end.set()
    due.owe([table])
    due.begin(everything)
    await due.over()
    assert "Table counts: a callback of on_recover failed" in caplog.text
    assert "no cache" in caplog.text


async def test_a_callback_that_takes_long_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The line names the waiting table."""
    monkeypatch.setattr(callbacks, "SAY_EVERY_S", 0.01)
    table, due = Table(), RecoverCallbacks()
    due.owe([table])
    due.begin(everything)
    waiting = asyncio.ensure_future(due.over())
    while "of tables ['counts'] have run for" not in caplog.text:
        await asyncio.sleep(0.01)
    table.may_end.set()
    await waiting


async def test_a_worker_that_stops_cancels_them() -> None:
    """Due callbacks do not start any more."""
    table, other, due = Table(), Table("other"), RecoverCallbacks()
    due.owe([table, other])
    due.begin(lambda each: each is table)
    await asyncio.sleep(0)
    await due.stop()
    due.begin(everything)
    assert (table.calls, other.calls, due.running) == ([1, 0], [0, 0], frozenset())


async def test_a_stop_cancels_the_callback_of_a_former_recovery_too() -> None:
    """The table was restored again while its callback ran; neither callback outlives the worker."""
    table, due = Table(), RecoverCallbacks()
    for _ in range(3):
        due.owe([table])
        due.begin(everything)
        await asyncio.sleep(0)
    await due.stop()
    table.may_end.set()
    await asyncio.sleep(0.01)
    assert (table.calls, due.running) == ([1, 0], frozenset())


async def test_callbacks_of_several_tables_run_at_once_and_in_the_order_of_their_debts() -> None:
    """A table that is due twice runs once; the end of a callback leaves the others running."""
    began: list[str] = []
    tables = {name: Table(name) for name in ("b", "a", "c")}

    async def call(table: Any) -> None:
        began.append(table.name)
        await table.call_recover_callbacks()

    due = RecoverCallbacks(call)
    due.owe([tables["b"], tables["a"]])
    due.owe([tables["c"], tables["b"]])
    due.begin(everything)
    assert due.running == set(tables.values())
    await asyncio.sleep(0)
    assert began == ["b", "a", "c"]
    tables["a"].may_end.set()
    while due.running == set(tables.values()):
        await asyncio.sleep(0)
    assert due.running == {tables["b"], tables["c"]}
    due.begin(everything)
    assert due.running == {tables["b"], tables["c"]}, "nothing is due"
    for table in tables.values():
        table.may_end.set()
    await due.over()
    assert [table.calls for table in tables.values()] == [[1, 1]] * 3


async def test_the_wait_for_callbacks_ends_with_the_last_one() -> None:
    """A callback that starts during the wait is awaited too."""
    first, second, due = Table("first"), Table("second"), RecoverCallbacks()
    due.owe([first])
    due.begin(everything)
    waiting = asyncio.ensure_future(due.over())
    await asyncio.sleep(0)
    due.owe([second])
    due.begin(everything)
    first.may_end.set()
    await asyncio.sleep(0.01)
    assert not waiting.done()
    second.may_end.set()
    await waiting
    assert (first.calls, second.calls) == ([1, 1], [1, 1])


async def test_a_stop_without_callbacks_is_over_at_once() -> None:
    """A stop waits until cancelled callbacks have cleaned up."""
    due = RecoverCallbacks()
    await due.stop()
    ended: list[str] = []

    async def callback(table: Any) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            ended.append(table.name)

    due = RecoverCallbacks(callback)
    due.owe([Table("a"), Table("b")])
    due.begin(everything)
    await asyncio.sleep(0)
    await due.stop()
    assert sorted(ended) == ["a", "b"]
    assert due.running == frozenset()


async def test_callbacks_follow_a_cancelled_one_of_their_table() -> None:
    """The app may cancel a task of its own; the later restore is reported all the same."""
    table, due, running = Table(), RecoverCallbacks(), list[Any]()
    for _ in range(2):
        due.owe([table])
        due.begin(everything)
        running += due._running.values()
    await asyncio.sleep(0)
    running[0].cancel()
    table.may_end.set()
    await due.over()
    assert (running[0].cancelled(), running[1].cancelled()) == (True, False)
    assert table.calls == [2, 1]
