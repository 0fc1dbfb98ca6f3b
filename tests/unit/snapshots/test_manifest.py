"""The manifest: a round trip, and every reason to refuse a snapshot."""

import dataclasses
import json

import pytest

from faust_assigner.snapshots.manifest import (
    Manifest,
    ManifestError,
    ManifestVersionError,
    format_time_ms,
    parse_time_ms,
    refusal,
    snapshot_id,
)

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
MANIFEST = Manifest(
    topic="app-orders-changelog",
    partition=3,
    snapshot_id=snapshot_id(42),
    next_offset=42,
    keys=7,
    bytes=1234,
    sha256="ab" * 32,
    created_at=format_time_ms(NOW_MS),
    files=("000000-ab.sst",),
)


LAYERED = dataclasses.replace(
    MANIFEST,
    format_version=2,
    files=(f"{snapshot_id(40)}/000000-ab.sst", f"{snapshot_id(41)}/000000-ab.sst", "000000-cd.sst"),
    layers=(2, 1),
    new_bytes=34,
)


def refused(manifest: Manifest = MANIFEST, **overrides: object) -> str | None:
    """Return the refusal of a valid snapshot with ``overrides``."""
    arguments = {
        "topic": MANIFEST.topic,
        "partition": 3,
        "now_ms": NOW_MS + 1000,
        "delete_retention_ms": DAY_MS,
        "log_start": 0,
        **overrides,
    }
    return refusal(manifest, **arguments)


def test_a_manifest_survives_its_file() -> None:
    """The round trip is from_json(to_json(m)) == m."""
    full = dataclasses.replace(MANIFEST, start_offset=4, key_types=("str",), value_types=())
    for manifest in (MANIFEST, full, LAYERED):
        assert Manifest.from_json(manifest.to_json()) == manifest


def test_the_file_has_exactly_the_documented_fields() -> None:
    """The file format defines the names and their order."""
    assert list(json.loads(MANIFEST.to_json())) == [
        "topic",
        "partition",
        "snapshot_id",
        "next_offset",
        "keys",
        "bytes",
        "sha256",
        "created_at",
        "files",
        "comparator",
        "format_version",
        "topic_id",
        "start_offset",
        "key_types",
        "value_types",
        "layers",
        "new_bytes",
    ]


def test_a_manifest_from_before_the_optional_fields_is_read() -> None:
    """The optional fields are missing in the file."""
    fields = json.loads(MANIFEST.to_json())
    for name in ("topic_id", "start_offset", "key_types", "value_types", "layers", "new_bytes"):
        del fields[name]
    assert Manifest.from_json(json.dumps(fields).encode()) == MANIFEST


@pytest.mark.parametrize(
    ("name", "value"),
    [("start_offset", -1), ("start_offset", "0"), ("key_types", "str"), ("value_types", [1])],
)
def test_a_field_of_the_wrong_type_is_named(name: str, value: object) -> None:
    """The rule covers optional fields."""
    fields = json.loads(MANIFEST.to_json()) | {name: value}
    with pytest.raises(ManifestError, match=name):
        Manifest.from_json(json.dumps(fields).encode())


def test_unknown_fields_are_ignored() -> None:
    """A later minor version may add fields."""
    fields = json.loads(MANIFEST.to_json()) | {"colour": "blue"}
    assert Manifest.from_json(json.dumps(fields).encode()) == MANIFEST


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("topic", 5),
        ("partition", "3"),
        ("partition", -1),
        ("partition", True),
        ("next_offset", 1.5),
        ("keys", None),
        ("bytes", -1),
        ("sha256", "xyz"),
        ("sha256", "AB" * 32),
        ("sha256", "ab" * 32 + "0"),
        ("sha256", "ab" * 32 + "\n"),
        ("partition", 1 << 63),
        ("next_offset", 1 << 63),
        ("keys", 1 << 63),
        ("bytes", 1 << 63),
        ("files", ["a.sst.gz"]),
        ("files", ["a.sst\n"]),
        ("created_at", "today"),
        ("created_at", "2026-11-21T03:40:22.123"),
        ("files", "a.sst"),
        ("files", []),
        ("files", ["../../etc/passwd.sst"]),
        ("files", ["/a.sst"]),
        ("files", ["a.sst", "a.sst"]),
        ("files", [5]),
        ("files", ["manifest.json"]),
        ("format_version", 3),
        ("format_version", 0),
        ("comparator", 1),
        ("topic_id", 7),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object) -> None:
    """Every stored value is checked before use; the message names the field."""
    fields = json.loads(MANIFEST.to_json()) | {field: value}
    with pytest.raises(ManifestError, match=field):
        Manifest.from_json(json.dumps(fields).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000])
def test_bytes_that_are_no_manifest_are_refused(data: bytes) -> None:
    """The cases are half a file, another file, and hostile JSON."""
    with pytest.raises(ManifestError):
        Manifest.from_json(data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layers", None),
        ("layers", [1, 1]),
        ("layers", [3, 0]),
        ("layers", [1, 3]),
        ("files", ["a.sst", f"{snapshot_id(40)}/b.sst~", "c.sst"]),
        ("layers", [4, -1]),
        ("layers", 3),
        ("layers", [True, 2]),
        ("files", ["../40/a.sst", "b.sst", "c.sst"]),
        ("files", [f"{snapshot_id(40)}/../a.sst", "b.sst", "c.sst"]),
        ("files", [f"{snapshot_id(40)}/{snapshot_id(41)}/a.sst", "b.sst", "c.sst"]),
        ("files", ["40/a.sst", "b.sst", "c.sst"]),
        ("files", ["a.sst", "a.sst", "c.sst"]),
        ("new_bytes", -1),
        ("format_version", 1),
    ],
)
def test_a_wrong_layer_or_a_file_outside_of_the_partition_is_named(
    field: str, value: object
) -> None:
    """A reference leads only to another snapshot of the partition; version 1 has no references."""
    fields = json.loads(LAYERED.to_json()) | {field: value}
    with pytest.raises(ManifestError, match="files" if field == "format_version" else field):
        Manifest.from_json(json.dumps(fields).encode())


def test_the_files_of_a_layered_snapshot_are_found_below_the_partition() -> None:
    """Own files are in the own folder, and all files are in the order of a restore."""
    assert LAYERED.paths == (*LAYERED.files[:2], f"{snapshot_id(42)}/000000-cd.sst")
    assert LAYERED.by_layer("abc") == (("a", "b"), ("c",))
    assert MANIFEST.by_layer("a") == (("a",),)


def test_a_later_format_is_told_from_a_damaged_manifest() -> None:
    """gc keeps the files of a later format and removes those of a damaged manifest."""
    for version, kind in ((3, True), (0, False)):
        fields = json.loads(MANIFEST.to_json()) | {"format_version": version}
        with pytest.raises(ManifestError) as raised:
            Manifest.from_json(json.dumps(fields).encode())
        assert isinstance(raised.value, ManifestVersionError) == kind


def test_times_are_utc_with_milliseconds() -> None:
    """The format is that of the ledger."""
    assert format_time_ms(1_795_232_422_123) == "2026-11-21T03:40:22.123Z"
    assert parse_time_ms("2026-11-21T04:40:22.123+01:00") == 1_795_232_422_123


def test_ids_sort_like_offsets() -> None:
    """A folder listing shows snapshots in the order of the log."""
    assert sorted([snapshot_id(10), snapshot_id(9), snapshot_id(1 << 62)]) == [
        snapshot_id(9),
        snapshot_id(10),
        snapshot_id(1 << 62),
    ]


def test_a_fitting_snapshot_is_not_refused() -> None:
    """The following tests change this case."""
    assert refused() is None
    assert refused(log_start=None) is None
    assert refused(log_start=42) is None


def test_a_snapshot_older_than_delete_retention_is_refused() -> None:
    """The records after the snapshot may lack tombstones: deleted keys would reappear."""
    assert refused(now_ms=NOW_MS + DAY_MS) is None
    assert "delete.retention.ms" in str(refused(now_ms=NOW_MS + DAY_MS + 1))


def test_a_snapshot_that_ends_before_the_changelog_begins_is_refused() -> None:
    """Records after the snapshot and before the changelog's start are gone."""
    assert "are gone" in str(refused(log_start=43))


def test_a_snapshot_whose_offset_differs_from_its_id_is_refused() -> None:
    """The hash covers the files only; a restore would skip the records between the two offsets."""
    damaged = dataclasses.replace(MANIFEST, next_offset=MANIFEST.next_offset + 8)
    assert f"ends at offset {damaged.next_offset}, unlike its id" in str(refused(damaged))


def test_a_snapshot_of_another_partition_or_comparator_is_refused() -> None:
    """The folder was copied to the wrong place, or the store has its own key order."""
    assert "not app-orders-changelog-4" in str(refused(partition=4))
    other = dataclasses.replace(MANIFEST, comparator="rocksdb.ReverseBytewiseComparator")
    assert "ordered by" in str(refused(other))
