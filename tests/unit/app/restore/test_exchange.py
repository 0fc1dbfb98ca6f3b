"""A standby's database is exchanged in the generation that asked for it, or not at all."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.restore import recovery
from faust_assigner.app.restore.recovery import RestoringRecovery

HERE = TP("log", 0)


class Exchanging(RestoringRecovery):
    """The recovery of one standby; ``meanwhile`` runs while its database is built."""

    def __init__(self, meanwhile: Any) -> None:
        self.meanwhile = meanwhile
        self.seeks: list[Any] = []
        self.app = SimpleNamespace(
            consumer_generation_id=3, consumer=SimpleNamespace(seek_wait=self._seek)
        )
        self.standby_tps, self.standby_offsets, self.restored = {HERE}, {HERE: 0}, {}
        self.tp_to_table = {HERE: SimpleNamespace(data=None)}
        self._stop = recovery.Stop()

    async def _seek(self, offsets: Any) -> None:
        self.seeks.append(offsets)

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        self.meanwhile(self)
        return Path("built"), SimpleNamespace(next_offset=100_000, bytes=1, snapshot_id="s")

    def flush_buffers(self) -> None:
        """Nothing is buffered."""


def overtake(one: Any) -> None:
    """The next generation begins, with the same standby."""
    one.app.consumer_generation_id += 1


@pytest.mark.parametrize(
    ("meanwhile", "exchanged"),
    [
        (lambda one: None, True),
        (overtake, False),
        (lambda one: one.standby_tps.clear(), False),
        (lambda one: one.stop_restoring(), False),
        (lambda one: one.standby_offsets.update({HERE: 99_990}), False),
    ],
    ids=[
        "nothing happens",
        "a generation",
        "it is no standby any more",
        "a revocation",
        "the replay is quicker",
    ],
)
async def test_an_exchange_that_was_overtaken_touches_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, meanwhile: Any, exchanged: bool
) -> None:
    """The directory may be an active's by now, open and in use."""
    replaced: list[Any] = []
    monkeypatch.setattr(recovery, "_replace_database", lambda *given: replaced.append(given))
    one = Exchanging(meanwhile)
    await one._exchange(HERE, 3, SimpleNamespace(folder=tmp_path), None)  # type: ignore[arg-type]
    assert bool(replaced) == bool(one.seeks) == bool(one.restored) == exchanged
    assert (one.standby_offsets[HERE] == 99_999) == exchanged
