"""What proves that a copy has everything: what was handed out since it began to be followed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.reads.freshness import Look, Marks
from faust_assigner.app.reads.standing import Standing

COPY = TP("log", 0)


class Following:
    """A worker under transactions with one copy at offset 4; its changelog ends at 8 with markers."""

    def __init__(self) -> None:
        recovery: Any = SimpleNamespace(
            _recovery_started_at=1.0, buffers={}, tp_to_table={COPY: "table"}
        )

        async def position(tp: TP) -> int:
            return 8

        self.app: Any = SimpleNamespace(
            assignor=SimpleNamespace(generation=3),
            consumer_generation_id=5,
            tables=SimpleNamespace(recovery=recovery, changelog_queue=asyncio.Queue()),
            consumer=SimpleNamespace(fetch_rounds=1, may_fetch=lambda tp: True, position=position),
        )
        self.standing = Standing(self.app, 5.0)
        self.marks = self.standing.marks[COPY] = Marks()
        self.marks.note(Look(100.0, 8))
        self.standing._applied = lambda tp: 4  # type: ignore[method-assign]

    async def look(self) -> float | None:
        """One look after the fetcher went round; since when the copy is fresh."""
        await self.standing._pass_markers([COPY])
        self.app.consumer.fetch_rounds += 1
        return self.marks.fresh_at(4)


async def test_what_was_handed_out_a_round_ago_has_been_written() -> None:
    """Nothing but markers is between the copy and the end."""
    it = Following()
    assert await it.look() is None
    assert await it.look() == 100.0


@pytest.mark.parametrize("began", ["generation", "consumer_generation_id", "recovery"])
async def test_what_was_handed_out_before_proves_nothing_of_what_began_since(began: str) -> None:
    """A round, or a recovery, dropped what waited: the copy lacks it, and looked fresh."""
    it = Following()
    assert await it.look() is None
    match began:
        case "generation":
            it.app.assignor.generation += 1
        case "recovery":
            it.app.tables.recovery._recovery_started_at += 1.0
        case _:
            it.app.consumer_generation_id += 1
    assert await it.look() is None
    assert await it.look() == 100.0
