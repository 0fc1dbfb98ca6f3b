"""Which offsets may be committed while records before them are under way."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from faust.types import TP

from faust_assigner.app.repairs.commits import FinalCommit

SOURCE = TP("orders", 0)


class Stock:
    """Of Faust's consumer: one more than the last offset acknowledged."""

    def _filter_committable_offsets(self, tps: Iterable[Any]) -> dict[Any, int]:
        return {tp: max(self._acked[tp]) + 1 for tp in tps if self._acked[tp]}  # type: ignore[attr-defined]


class Consumer(FinalCommit, Stock):  # type: ignore[misc]
    """Record 4 is under way, 3 and 5 are done."""

    def __init__(self) -> None:
        self.app = SimpleNamespace(consumer_generation_id=1)
        self._acked = {SOURCE: [3, 5]}
        self.under_way = SimpleNamespace(tp=SOURCE, offset=4, acked=False, generation_id=1)
        self._unacked_messages = [self.under_way]


def test_what_was_done_beyond_a_record_under_way_is_committed_once_that_is_done() -> None:
    """It is hidden from one commit, not forgotten."""
    consumer = Consumer()
    assert consumer._filter_committable_offsets([SOURCE]) == {SOURCE: 4}
    consumer.under_way.acked = True
    consumer._acked[SOURCE].append(4)
    assert consumer._filter_committable_offsets([SOURCE]) == {SOURCE: 6}
