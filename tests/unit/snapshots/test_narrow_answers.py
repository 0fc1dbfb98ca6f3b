"""Errors that are not a missing file, settings with similar names, and columns judged one by one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.snapshots import changelog
from faust_assigner.snapshots.arrow_batches import JsonColumns, batch_of
from faust_assigner.snapshots.catalog import Catalog
from faust_assigner.snapshots.json_rows import AUTO
from faust_assigner.snapshots.kafka_requests import run_request
from faust_assigner.snapshots.retention import collect_garbage
from faust_assigner.snapshots.storage import Entry, LocalStorage
from tests.unit.snapshots.test_catalog import NOW_MS, TOPIC, publish


class Failing(LocalStorage):
    """A storage that lists files and cannot read any of them."""

    def read(self, path: str) -> bytes:
        """Fail."""
        raise PermissionError(f"{path}: refused")

    def local_path(self, path: str) -> Path | None:
        """Return nothing, as a remote storage does."""
        return None

    def download(self, path: str, local: Path) -> None:
        """Fail."""
        raise ConnectionError(f"{path}: reset")


class OneUnreadable(LocalStorage):
    """A storage that returns the manifest of snapshot 9 only ``reads`` times."""

    reads = 0
    error: OSError = PermissionError("refused")

    def read(self, path: str) -> bytes:
        """Read the file, or fail."""
        if "9/manifest" in path:
            self.reads -= 1
            if self.reads < 0:
                raise self.error
        return super().read(path)


def test_a_file_that_cannot_be_read_now_is_not_a_missing_one(tmp_path: Path) -> None:
    """Otherwise gc would remove a snapshot during an outage of the storage."""
    catalog = Catalog(LocalStorage(tmp_path / "s"))
    manifest = publish(catalog, tmp_path)
    assert manifest is not None
    failing = Catalog(Failing(tmp_path / "s"))
    (found,) = failing.folders(TOPIC, 0)
    assert (found.manifest, found.may_be_valid) == (None, True)
    assert collect_garbage(failing, now_ms=NOW_MS * 2, grace_ms=0, keep=1) == []
    with pytest.raises(ConnectionError, match="reset"):
        failing.fetch(manifest, tmp_path / "here")
    assert catalog.snapshots(TOPIC, 0) == [manifest]


@pytest.mark.parametrize("error", [PermissionError("refused"), OSError(5, "Input/output error")])
def test_a_manifest_that_cannot_be_read_hides_no_other_snapshot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: OSError
) -> None:
    """A restore then uses an older snapshot; gc removes no file of the unreadable one."""
    storage = OneUnreadable(tmp_path / "s")
    storage.error = error
    catalog = Catalog(storage)
    old, new = (publish(catalog, tmp_path, next_offset=offset) for offset in (3, 9))
    assert new is not None
    files = storage.list(f"{TOPIC}/0/{new.snapshot_id}")
    assert catalog.snapshots(TOPIC, 0) == [old]
    assert f"{TOPIC}-0: snapshot {new.snapshot_id} is not used" in caplog.text
    assert collect_garbage(catalog, now_ms=NOW_MS * 2, grace_ms=0, keep=1) == []
    storage.reads = 2
    collect_garbage(catalog, now_ms=NOW_MS * 2, grace_ms=0, keep=1)
    assert storage.reads == -1
    assert storage.list(f"{TOPIC}/0/{new.snapshot_id}") == files


def test_of_equal_times_in_two_zones_the_later_offset_is_the_newer(tmp_path: Path) -> None:
    """Times are compared as moments, not as texts."""
    catalog = Catalog(LocalStorage(tmp_path / "s"))
    early, late = (publish(catalog, tmp_path, next_offset=offset) for offset in (3, 9))
    assert early is not None
    assert late is not None
    shifted = replace(early, created_at="2026-03-01T23:30:00.000+02:00")
    plain = replace(late, created_at="2026-03-01T21:45:00.000Z")
    for manifest in (shifted, plain):
        catalog.commit(manifest)
    assert catalog.snapshots(TOPIC, 0) == [plain, shifted]


async def _asked(error: Exception) -> None:
    raise error


def test_an_error_that_is_not_kafkas_is_raised_unchanged() -> None:
    """A file of the credentials may be missing."""
    missing = FileNotFoundError("ca.pem")
    with pytest.raises(FileNotFoundError) as raised:
        run_request({"bootstrap_servers": ["h:1"]}, _asked(missing))
    assert raised.value is missing


def test_only_the_setting_of_exactly_this_name_is_the_retention() -> None:
    """The last description of a topic counts."""

    async def describe_configs(asked: Any) -> list[Any]:
        entries = [
            ("delete.retention.ms.min", "1"),
            ("broker.delete.retention.ms", "2"),
            ("delete.retention.ms", "7000"),
            ("retention.ms", "3"),
        ]
        first = (0, None, 2, "t", [("delete.retention.ms", "5000")])
        return [SimpleNamespace(resources=[first, (0, None, 2, "t", entries)])]

    admin: Any = SimpleNamespace(describe_configs=describe_configs)
    assert asyncio.run(changelog._delete_retention_ms(admin, ["t"])) == {"t": 7000}


def test_each_column_is_json_or_raw_by_its_own_first_rows() -> None:
    """Raw values do not make the keys raw."""
    columns = JsonColumns((AUTO, AUTO))
    batch = batch_of([b"1", b"2", b"3"], [b"\x00", b"\x01", b"3"])
    assert columns.readable([batch]) == [batch]
    assert (columns.types_of("key"), columns.types_of("value")) == (frozenset({"int"}), None)
    later = columns.readable([batch_of([b"{", b"5"], [b"4", b"\x02"])])
    assert [part.to_pydict() for part in later] == [{"key": [b"5"], "value": [b"\x02"]}]
    assert columns.unreadable == 1


def test_the_size_of_an_entry_is_taken_from_the_storage(tmp_path: Path) -> None:
    """A snapshot's folder has its files and its manifest."""
    catalog = Catalog(LocalStorage(tmp_path / "s"))
    manifest = publish(catalog, tmp_path)
    assert manifest is not None
    listed: list[Entry] = catalog.storage.list(f"{TOPIC}/0/{manifest.snapshot_id}")
    expected = {f"{manifest.snapshot_id}/{entry.name}": entry.size for entry in listed}
    assert catalog.sizes(manifest) == expected
    assert len(expected) == len(manifest.files) + 1
