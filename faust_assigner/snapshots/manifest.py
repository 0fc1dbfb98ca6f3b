"""The manifest of one snapshot, and the reasons to refuse a snapshot. Pure: time is an argument.

>>> Manifest.from_json(b"{}")                               # doctest: +IGNORE_EXCEPTION_DETAIL
Traceback (most recent call last):
ManifestError: manifest: field 'topic' is missing
"""

from __future__ import annotations

import builtins
import dataclasses
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from faust_assigner.errors import FaustAssignerError

T = TypeVar("T")

MANIFEST_NAME = "manifest.json"
#: The format versions: one layer in the snapshot's own folder, and several layers.
WHOLE, LAYERED = 1, 2
#: RocksDB's name for plain byte order, the order of Faust's stores.
COMPARATOR = "leveldb.BytewiseComparator"
#: Kafka's default of the topic setting ``delete.retention.ms``: one day.
DEFAULT_DELETE_RETENTION_MS = 86_400_000
MAX_MANIFEST_BYTES = 4 * 1024 * 1024

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.sst")
#: A file name may begin with the folder of another snapshot of the partition.
_FOLDER = re.compile(r"\A[0-9]{20}/")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TYPES: dict[str, type] = {
    "topic": str,
    "partition": int,
    "snapshot_id": str,
    "next_offset": int,
    "keys": int,
    "bytes": int,
    "sha256": str,
    "created_at": str,
    "files": list,
    "comparator": str,
    "format_version": int,
}


class SnapshotError(FaustAssignerError):
    """A snapshot could not be written, read or trusted; the message names the snapshot and the reason."""


class ManifestError(SnapshotError, ValueError):
    """The bytes are not a manifest of a known version; the message names the field."""


class ManifestVersionError(ManifestError):
    """A later version wrote the manifest: this version cannot read the snapshot, which may be valid."""


@dataclass(frozen=True)
class Manifest:
    """The description of a snapshot, whose rows equal a replay of offsets ``[0, next_offset)``."""

    topic: str
    partition: int
    #: ``next_offset`` as 20 digits: the same changelog range always has the same id.
    snapshot_id: str
    #: The first offset that a restored worker has to read; Faust's offset key is this offset - 1.
    next_offset: int
    #: Live keys, without Faust's offset key.
    keys: int
    #: The total size of all files.
    bytes: int
    #: The hash of the bytes of ``files``, concatenated in their order.
    sha256: str
    #: The time at which the read began, from which the age counts: ISO 8601, UTC, with milliseconds.
    created_at: str
    #: The names in the order in which a restore loads the files: a later file wins. Within a layer the files
    #: are in key order without overlap. A file of another snapshot is named ``<snapshot_id>/<name>``.
    files: tuple[str, ...]
    comparator: str = COMPARATOR
    format_version: int = WHOLE
    #: Kafka's id of the topic, which changes when the topic is recreated; None in old manifests, or
    #: with a broker without ids.
    topic_id: str | None = None
    #: The changelog's first offset at the time of the read; None in old manifests.
    start_offset: int | None = None
    #: The JSON types of all keys and of all values, as Python type names; other records were left
    #: out. None means that keys or values were not checked.
    key_types: tuple[str, ...] | None = None
    value_types: tuple[str, ...] | None = None
    #: The number of files of each layer, the oldest first; None means one layer.
    layers: tuple[int, ...] | None = None
    #: The bytes of the files that this run wrote; None in old manifests.
    new_bytes: int | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """``files``, each with the folder of its snapshot, relative to the partition's folder."""
        return tuple(name if "/" in name else f"{self.snapshot_id}/{name}" for name in self.files)

    def by_layer(self, files: Sequence[T]) -> tuple[tuple[T, ...], ...]:
        """Split ``files``, which has one item for each file, into the layers."""
        rest = iter(files)
        counts = self.layers or (len(self.files),)
        return tuple(tuple(itertools.islice(rest, count)) for count in counts)

    @property
    def created_ms(self) -> int:
        """``created_at`` in milliseconds since the epoch."""
        return parse_time_ms(self.created_at)

    def to_json(self) -> builtins.bytes:
        """The file's bytes: indented, one field a line, in the order of the fields above."""
        return json.dumps(dataclasses.asdict(self), indent=2).encode() + b"\n"

    @classmethod
    def from_json(cls, data: builtins.bytes) -> Manifest:
        """Parse and validate. Unknown fields are ignored; raises :class:`ManifestError`."""
        if len(data) > MAX_MANIFEST_BYTES:
            raise ManifestError(
                f"manifest: expected at most {MAX_MANIFEST_BYTES} bytes, got {len(data)}"
            )
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ManifestError(f"manifest: not JSON: {error}") from None
        if not isinstance(fields, dict):
            raise ManifestError(f"manifest: expected a JSON object, got {type(fields).__name__}")
        _check_types(fields)
        _check_values(fields)
        known = {name: fields[name] for name in _TYPES}
        known["files"] = tuple(fields["files"])
        for name in ("topic_id", "start_offset", "new_bytes"):
            known[name] = fields.get(name)
        for name in ("key_types", "value_types", "layers"):
            known[name] = None if fields.get(name) is None else tuple(fields[name])
        return cls(**known)


def _check_types(fields: dict[str, Any]) -> None:
    for name, expected in _TYPES.items():
        if name not in fields:
            raise ManifestError(f"manifest: field {name!r} is missing")
        value = fields[name]
        if not isinstance(value, expected) or isinstance(value, bool):
            raise ManifestError(f"manifest: field {name!r} is {value!r}, not {expected.__name__}")


def _check_values(fields: dict[str, Any]) -> None:
    version = fields["format_version"]
    if version > LAYERED:
        raise ManifestVersionError(
            f"manifest: format_version {version}, this version reads up to {LAYERED}"
        )
    if version not in (WHOLE, LAYERED):
        raise ManifestError(f"manifest: format_version {version}")
    for name in ("partition", "next_offset", "keys", "bytes"):
        if not 0 <= fields[name] < 1 << 63:
            raise ManifestError(f"manifest: field {name!r} is {fields[name]}")
    if not _SHA256.fullmatch(fields["sha256"]):
        raise ManifestError(f"manifest: field 'sha256' is {fields['sha256']!r}")
    _check_files(fields)
    if not isinstance(fields.get("topic_id"), str | None):
        raise ManifestError(f"manifest: field 'topic_id' is {fields['topic_id']!r}, not str")
    for name in ("start_offset", "new_bytes"):
        number = fields.get(name)
        if number is not None and (type(number) is not int or not 0 <= number < 1 << 63):
            raise ManifestError(f"manifest: field {name!r} is {number!r}")
    for name in ("key_types", "value_types"):
        types = fields.get(name)
        if types is not None and not (
            isinstance(types, list) and all(isinstance(each, str) for each in types)
        ):
            raise ManifestError(f"manifest: field {name!r} is {types!r}, not a list of str")
    parse_time_ms(fields["created_at"])


def _check_files(fields: dict[str, Any]) -> None:
    """Check the names and the layers, because other programs may write to the storage."""
    files, layers = fields["files"], fields.get("layers")
    is_layered = fields["format_version"] == LAYERED
    for name in files:
        # No name may leave the partition's folder.
        own = _FOLDER.sub("", name, count=1) if is_layered and isinstance(name, str) else name
        if not isinstance(own, str) or not _FILE_NAME.fullmatch(own):
            raise ManifestError(f"manifest: field 'files' is {files!r}")
    if len(set(files)) != len(files) or not files:
        raise ManifestError(f"manifest: field 'files' is empty or repeats a name: {files!r}")
    if layers is None and not is_layered:
        return
    counts = layers if isinstance(layers, list) else []
    if not all(type(count) is int and count > 0 for count in counts) or sum(counts) != len(files):
        raise ManifestError(f"manifest: field 'layers' is {layers!r} for {len(files)} files")


def parse_time_ms(text: str) -> int:
    """ISO 8601 with an offset or ``Z`` -> milliseconds since the epoch; raises ManifestError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ManifestError(f"manifest: field 'created_at' is {text!r}") from None
    if moment.tzinfo is None:
        raise ManifestError(f"manifest: field 'created_at' has no time zone: {text!r}")
    return round(moment.timestamp() * 1000)


def format_time_ms(moment_ms: int) -> str:
    """Milliseconds since the epoch -> ``2026-11-21T03:40:22.123Z``.

    >>> format_time_ms(1_000)
    '1970-01-01T00:00:01.000Z'
    """
    seconds, milliseconds = divmod(moment_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"


def snapshot_id(next_offset: int) -> str:
    """The id of the snapshot that ends before ``next_offset``; ids sort like offsets."""
    return f"{next_offset:020d}"


def refusal(
    manifest: Manifest,
    *,
    topic: str,
    partition: int,
    now_ms: int,
    delete_retention_ms: int,
    log_start: int | None = None,
) -> str | None:
    """Return the reason why ``manifest`` cannot replace the changelog, or None; see also ``trust.py``.

    ``log_start`` (the first available offset) is checked if known. The tail after a snapshot older than
    ``delete.retention.ms`` may lack tombstones: Kafka's cleaner removes them after this time, and deleted
    keys would reappear.
    """
    if (manifest.topic, manifest.partition) != (topic, partition):
        return f"it is of {manifest.topic}-{manifest.partition}, not {topic}-{partition}"
    if snapshot_id(manifest.next_offset) != manifest.snapshot_id:
        # The hash does not cover the offset. A restore would skip the records between the two offsets.
        return f"its manifest is damaged: it ends at offset {manifest.next_offset}, unlike its id"
    if manifest.comparator != COMPARATOR:
        return f"its keys are ordered by {manifest.comparator!r}, the store by {COMPARATOR!r}"
    age_ms = now_ms - manifest.created_ms
    if age_ms > delete_retention_ms:
        return (
            f"it is {age_ms / 1000:.0f} s old, more than the changelog's delete.retention.ms "
            f"({delete_retention_ms / 1000:.0f} s): the tail may lack tombstones"
        )
    if log_start is not None and manifest.next_offset < log_start:
        return (
            f"it ends at offset {manifest.next_offset}, the changelog begins at {log_start}: "
            "the records between are gone"
        )
    return None
