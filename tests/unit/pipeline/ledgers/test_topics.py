"""A partition's records are fetched up to the requested end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from faust_assigner.pipeline.ledgers import topic_source


class Consumer:
    """A consumer with scripted answers: offsets, and the position after them."""

    def __init__(self, *answers: tuple[Sequence[int], int]) -> None:
        self._answers = list(answers)
        self._position = 0

    async def position(self, tp: object) -> int:
        """Return the next offset."""
        return self._position

    async def getmany(self, tp: object, **more: int) -> dict[object, list[Any]]:
        """Return the next answer."""
        offsets, self._position = self._answers.pop(0)
        return {tp: [SimpleNamespace(offset=offset) for offset in offsets]}


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([((1, 2, 3, 4), 5)], ([1, 2], 5)),
        ([((), 0), ((), 2)], ([], 2)),
        ([((), 0), ((0,), 1)], ([0], 1)),
    ],
    ids=["beyond the end", "control records alone", "an empty answer first"],
)
def test_a_fetch_gives_records_before_the_end_or_a_position_that_moved(
    answers: list[tuple[Sequence[int], int]], expected: tuple[list[int], int]
) -> None:
    """Control records only move the position; an answer with neither is requested again."""
    tp = TopicPartition("t", 0)
    records, position = asyncio.run(topic_source._fetch(Consumer(*answers), tp, 3))
    assert ([record.offset for record in records], position) == expected
