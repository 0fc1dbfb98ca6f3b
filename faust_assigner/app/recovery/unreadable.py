"""Changelog records that do not decode: skipped, counted, logged, and copied to files.

Faust also skips such records when it replays records one by one. A row that does not decode would
crash the agent that reads it.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from faust.exceptions import DecodeError, KeyDecodeError
from mode import get_logger

from faust_assigner.app.retry import RateLimitedLog

if TYPE_CHECKING:
    from faust.app import App
    from faust.types.tables import CollectionT
    from faust.types.tuples import TP, Message

logger = get_logger(__name__)

#: The folder with copies of these records, in the folder of tables. It has one file for each
#: changelog partition, with one JSON line for each record.
FOLDER = "unreadable"
#: The maximum bytes of one file; further records are only counted.
FILE_BYTES = 16 * 2**20

_MARK = "_faust_assigner_unreadable"

#: (offset, key, value, decoding error).
Unreadable: TypeAlias = tuple[int, bytes | None, bytes | None, Exception]

#: Returns the error that keeps a record out of its table, or None.
Reason: TypeAlias = Callable[[Any], "DecodeError | None"]


class UnreadableRecords:
    """Counts the skipped records since the worker's start and copies them to files. Thread-safe."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.counts: Counter[object] = Counter()
        self._said = RateLimitedLog()

    def add(self, error: Exception, message: Message) -> None:
        """Count and copy a record that Faust's loop has read."""
        self(message.tp, [(message.offset, message.key, message.value, error)])

    async def add_undecoded(self, error: Exception, message: Message) -> None:
        """Count and copy a record that did not decode; a changelog's channel calls this method."""
        self.add(error, message)

    def __call__(self, tp: TP, records: Sequence[Unreadable]) -> None:
        """Count and copy ``records``; log each partition at once, then at most once a minute."""
        if not records:
            return
        self.counts[tp] += len(records)
        keep(Path(self.app.conf.tabledir), tp, records)
        if self._said.due(tp):
            offset, *_, error = records[-1]
            logger.error(
                "Changelog %s-%d: %d records did not decode and are skipped; copies of them are "
                "in %s; the last record has offset %d: %r",
                tp.topic,
                tp.partition,
                self.counts[tp],
                FOLDER,
                offset,
                error,
            )


def unreadable_of(app: App) -> UnreadableRecords:
    """Return the app's unreadable records; they are created at the first use."""
    found: UnreadableRecords = vars(app).setdefault(_MARK, UnreadableRecords(app))
    return found


def reason_of(table: CollectionT) -> Reason:
    """Return a check that decodes a changelog record as Faust does.

    Cost: 4 us for numbers, 10 us for small models.
    """
    app, schema = table.app, table.changelog_topic.schema
    loads_key, loads_value = app.serializers.loads_key, app.serializers.loads_value

    def reason(record: Any) -> DecodeError | None:
        if record.key is None:
            return KeyDecodeError("a record without a key belongs to no row")
        try:
            schema.loads_key(app, record, loads=loads_key)
            if record.value is not None:
                schema.loads_value(app, record, loads=loads_value)
        except DecodeError as error:
            return error
        return None

    return reason


def keep(tables: Path, tp: TP, records: Sequence[Unreadable]) -> None:
    """Append ``records`` to the partition's file; on a full disk log a warning, never raise."""
    path = tables / FOLDER / f"{tp.topic}-{tp.partition}.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            for offset, key, value, error in records:
                if file.tell() < FILE_BYTES:
                    file.write(
                        json.dumps(
                            {
                                "offset": offset,
                                "key": _as_base64(key),
                                "value": _as_base64(value),
                                "error": repr(error),
                            }
                        )
                        + "\n"
                    )
    except OSError as error:
        logger.warning("Could not keep the unreadable records of %s: %s", tp, error)


def _as_base64(data: bytes | None) -> str | None:
    """Encode ``data`` as Base64."""
    return None if data is None else base64.b64encode(data).decode()
