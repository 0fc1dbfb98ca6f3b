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


async def test_what_was_read_is_written_before_its_database_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It would be written into the new one, behind what that has."""
    acts: list[str] = []
    monkeypatch.setattr(recovery, "_replace_database", lambda *given: acts.append("replaced"))
    one = Exchanging(lambda one: None)
    one.flush_buffers = lambda: acts.append("flushed")  # type: ignore[method-assign]
    await one._exchange(HERE, 3, SimpleNamespace(folder=tmp_path), None)  # type: ignore[arg-type]
    assert acts == ["flushed", "replaced"]
    assert one.seeks == [{HERE: 99_999}]


class Store:
    """A store of one database, which is a folder."""

    def __init__(self, folder: Path) -> None:
        self.path, self.acts = folder / "0.db", list[str]()
        self.path.mkdir()
        (self.path / "old").touch()
        self._dbs = {0: SimpleNamespace(close=lambda: self.acts.append("closed"))}

    def partition_path(self, partition: int) -> Path:
        """Its folder."""
        return self.path

    def _db_for_partition(self, partition: int) -> None:
        self.acts.append(f"opened {[path.name for path in self.path.iterdir()]}")


@pytest.mark.parametrize("is_built", [True, False])
def test_a_database_is_replaced_whole_or_stays(tmp_path: Path, is_built: bool) -> None:
    """An empty one in its place would pass for what the loop believes it has."""
    store, scratch = Store(tmp_path), tmp_path / "scratch"
    scratch.mkdir()
    if is_built:
        (scratch / "database").mkdir()
        (scratch / "database" / "new").touch()
        recovery._replace_database(store, 0, scratch / "database")
        assert store.acts == ["closed", "opened ['new']"]
    else:
        with pytest.raises(OSError, match="No such file"):
            recovery._replace_database(store, 0, scratch / "database")
        assert [path.name for path in store.path.iterdir()] == ["old"]
    assert list(scratch.iterdir()) == []
