"""A restore's settings, its stop, its log lines of progress, and sizes on disk."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.types import TP

from faust_assigner.app.recovery import restore_settings
from faust_assigner.app.recovery.by_partition import PartitionRecovery
from faust_assigner.app.recovery.loop import RecoveryLoop
from faust_assigner.app.recovery.restore_settings import connection_of, settings_of
from faust_assigner.app.tables.disk import in_memory, state_sizes, tree_bytes
from faust_assigner.settings.table import BATCHED_REPLAY, SNAPSHOTS


def app_in(folder: Path, **options: Any) -> Any:
    """An app that is not started."""
    return faust.App(
        "shop",
        broker="kafka://127.0.0.1:9095",
        web_enabled=False,
        datadir=str(folder),
        broker_request_timeout=45.0,
        broker_client_id="w1",
        **options,
    )


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_restore_reads_as_the_app_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_transaction: bool
) -> None:
    """A restore has the app's cluster, folder, settings and isolation level."""
    said = {SNAPSHOTS: "s3://bucket", BATCHED_REPLAY: False}
    monkeypatch.setattr(restore_settings, "read_or_default", lambda app, setting: said[setting])
    swept: list[Path] = []
    monkeypatch.setattr(restore_settings, "sweep_scratch", swept.append)
    monkeypatch.setattr(restore_settings, "unreadable_of", lambda app: "unreadable")
    app = app_in(tmp_path)
    app.in_transaction = in_transaction
    found = settings_of(app)
    assert (found.snapshots, found.batched, found.unreadable) == (
        "s3://bucket",
        False,
        "unreadable",
    )
    assert found.isolation_level == ("read_committed" if in_transaction else "read_uncommitted")
    assert found.folder == Path(app.conf.tabledir)
    assert swept == [found.folder]
    connection = connection_of(app)
    assert found.connection == connection
    assert connection["bootstrap_servers"] == ["127.0.0.1:9095"]
    assert (connection["client_id"], connection["request_timeout_ms"]) == ("w1-restore", 45_000)
    assert connection["security_protocol"] == "PLAINTEXT"


class Base(RecoveryLoop):  # type: ignore[misc]
    """A stub of the base recovery."""

    async def on_stop(self) -> None:
        """Record the stop."""
        self.acts.append("stopped")  # type: ignore[attr-defined]


class Made(PartitionRecovery, Base):  # type: ignore[misc]
    """Our recovery over the stub, of a worker in generation 3."""

    def __init__(self) -> None:
        self.acts = list[Any]()
        self.looks = 0
        self._taking_on = None
        self.standbys: Any = SimpleNamespace(catching_up=None)
        self.actives: Any = SimpleNamespace(callbacks=SimpleNamespace(stop=self._callbacks_stopped))

    async def _callbacks_stopped(self) -> None:
        self.acts.append("callbacks stopped")

    async def stop_and_wait(self) -> None:
        """Record the wait."""
        self.acts.append("settled")

    @property
    def should_stop(self) -> bool:  # type: ignore[override]
        """Stop after the last answer."""
        return not self.progress.answers

    async def sleep(self, seconds: float) -> None:  # type: ignore[override]
        """Count the pauses."""
        self.looks += 1


async def test_a_stop_lets_go_of_databases_before_the_tables_close_them() -> None:
    """A thread that writes to a closed database would crash the worker."""
    it = Made()
    await it.on_stop()
    assert it.acts == ["callbacks stopped", "settled", "stopped"]


class Progress:
    """A progress whose answers say whether it is idle at each check."""

    def __init__(self, *answers: bool) -> None:
        self.answers, self.figured = list(answers), 0

    @property
    def is_idle(self) -> bool:
        """Return the next answer."""
        return self.answers.pop(0)

    def figures(self) -> None:
        """Count the call."""
        self.figured += 1

    def line(self) -> str:
        """Return a line during the restore."""
        return "Restoring"

    def end(self) -> str:
        """Return the line at the end."""
        return "Restored"


async def test_a_restore_is_logged_while_it_goes_on_and_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The end is logged once; an idle recovery logs no line."""
    caplog.set_level("INFO")
    it = Made()
    progress: Any = Progress(True, False, False, True, True)
    it.progress = progress
    await PartitionRecovery._tell_progress.fun(it)  # type: ignore[attr-defined]
    assert [one.getMessage() for one in caplog.records] == ["Restoring", "Restoring", "Restored"]
    assert (progress.figured, it.looks) == (3, 5)


def test_tables_without_files_are_named_in_order(tmp_path: Path) -> None:
    """A table has its own store or the app's."""
    app = app_in(tmp_path, store="memory://")
    app.Table("z")
    app.Table("kept", store="rocksdb:kept")
    app.Table("a")
    assert in_memory(app) == ["a", "z"]
    app = app_in(tmp_path, store="rocksdb://")
    app.Table("lost", store="memory:x")
    app.Table("kept")
    assert in_memory(app) == ["lost"]


def test_the_size_of_a_partition_is_that_of_all_its_files(tmp_path: Path) -> None:
    """Files below its folder count; a missing folder has 0 bytes, a table in memory no size."""
    (tmp_path / "3.db" / "sub").mkdir(parents=True)
    (tmp_path / "3.db" / "a").write_bytes(b"12345")
    (tmp_path / "3.db" / "b").write_bytes(b"12")
    (tmp_path / "3.db" / "sub" / "c").write_bytes(b"123")
    (tmp_path / "3.db" / "gone").symlink_to(tmp_path / "nowhere")
    assert tree_bytes(tmp_path / "3.db") == 10
    assert tree_bytes(tmp_path / "4.db") == 0
    store = SimpleNamespace(partition_path=lambda partition: tmp_path / f"{partition}.db")
    tables = {
        "log": SimpleNamespace(data=store),
        "sets": SimpleNamespace(data=SimpleNamespace(storage=store)),
        "memory": SimpleNamespace(data={}),
    }
    tps = [TP(name, 3) for name in (*tables, "source")]
    assert state_sizes(tps, tables) == {TP("log", 3): 10, TP("sets", 3): 10}
