"""What a round of the recovery leaves alone: other topics' partitions, and interrupted rounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from faust.types import TP

from tests.unit.app.recovery.test_by_partition import A, B, C, made

__all__ = ["made"]


@pytest.mark.parametrize("step", ["roles", "restore", "follow"])
async def test_a_restore_that_is_interrupted_by_a_round_ends_no_worker(
    made: Any, step: str
) -> None:
    """The next round begins it again; no later step is made, and nothing is logged as assigned."""
    steps: list[str] = []

    def then(name: str, answer: Any = None) -> Any:
        async def stepping(*_: Any) -> Any:
            steps.append(name)
            if name == step:
                await asyncio.Event().wait()
            return answer

        return stepping

    made.books.take, made.actives.restore = then("roles", ({A}, {C})), then("restore")
    made._finish, made.books.open_copies = then("finish"), then("open")
    made.standbys.follow = then("follow")
    task = asyncio.ensure_future(made._take_on(frozenset({A}), frozenset({C})))
    for _ in range(9):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    every = ["roles", "restore", "finish", "open", "follow"]
    assert steps == every[: every.index(step) + 1]
    assert made.acts == []


async def test_a_round_restores_and_follows_changelogs_only(made: Any) -> None:
    """The source partitions of the round are in none of the recovery's roles."""
    source, other = TP("orders", 3), TP("orders", 4)

    async def nothing(*_: Any) -> None:
        """Return at once."""

    made.interrupt, made._release, made._begin_to_take_on = nothing, nothing, lambda: None
    await made.assign({A, source}, {B, other}, set())
    assert made._roles == (frozenset({A}), frozenset({B}))


async def test_only_sources_flow_again_and_only_restored_changelogs_hold_their_sources(
    made: Any,
) -> None:
    """A paused changelog is no source; a table without running callbacks holds nothing."""
    consumer = made.app.consumer
    source, waiting = TP("orders", A.partition), TP("orders", B.partition)
    consumer._paused_partitions = {A, B, source, waiting}
    await made.actives._let_flow({B}, frozenset())
    assert made.acts == [("seek", {source}), ("resume", {source})]
    made.actives.complete = {A, B}
    made.tables._changelogs[C.topic] = table = made.tables._changelogs[A.topic]
    assert made.actives._with_running_callbacks() == set()
    made.actives.callbacks._running = {table: None}
    assert made.actives._with_running_callbacks() == {A, B}
