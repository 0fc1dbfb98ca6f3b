"""What a worker answers at ``/assignor/status``: one JSON document, written by workers and read by tools.

A reader passes over keys that it does not know and takes the default for keys that are missing, so that
workers and tools of different versions understand each other. Everything else is checked: the document comes
from whoever listens at a URL that some member of the group named.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from faust_assigner.errors import MetadataRefused
from faust_assigner.wire.bounded import UNPACKED_BYTES, read_json
from faust_assigner.wire.outcome import Outcome

#: Where a worker's web server has the document, and what it knows of all members.
STATUS_PATH, PEERS_PATH = "/assignor/status", "/assignor/peers"
#: Where it has the last rounds as it saw them.
ROUNDS_PATH = "/assignor/rounds"
#: Where it has the newest lines of its ledger; ``?before=CURSOR`` for those before a page.
LEDGER_PATH = "/assignor/ledger"
#: Of the document; a later version only adds keys.
VERSION = 1
#: Of ``counters``: folders of tables that were corrupt and set aside since the worker started.
CORRUPT_FOLDERS = "corrupt_folders"
_TEXT_CHARS = 4096
_BEYOND = 1 << 63

T = TypeVar("T")

#: Topic -> partition numbers.
Numbers = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Standstill:
    """A source partition that the worker owns and has not processed for ``seconds``."""

    topic: str
    partition: int
    reason: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CopyLag:
    """How far a copy of a changelog partition is behind; ``seconds`` is None where that is not known yet."""

    topic: str
    partition: int
    records: int
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class WaitUnderWay:
    """A wait of a rebalance or a commit: what waits, for which step, since when."""

    what: str
    step: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    """A table, and its bytes on this worker's disk by partition, copies included.

    ``expires_s`` is of a windowed table's windows, None where they have no end.
    """

    name: str
    changelog: str
    store: str
    is_global: bool = False
    is_windowed: bool = False
    expires_s: float | None = None
    bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    """One worker as it sees itself.

    ``awaited`` are the copies whose task moves here once they have caught up, ``promised`` the partitions
    that come here when their owners have let go. ``global_changelogs``: of global tables, which every
    member follows. ``is_cooperative``: this worker offers rounds that stop nobody. Times are in
    seconds, room on disk in bytes.
    """

    app: str
    member_id: str = ""
    url: str = ""
    instance_id: str | None = None
    host: str = ""
    pid: int = 0
    software: str = ""
    faust: str = ""
    aiokafka: str = ""
    python: str = ""
    app_version: str = ""
    generation: int = -1
    decision_id: str = ""
    outcome: Outcome | None = None
    is_leader: bool = False
    is_cooperative: bool = False
    is_rebalancing: bool = False
    is_leaving: bool = False
    round_age_s: float | None = None
    not_ready: tuple[str, ...] = ()
    not_live: tuple[str, ...] = ()
    actives: Numbers = field(default_factory=dict)
    standbys: Numbers = field(default_factory=dict)
    awaited: Numbers = field(default_factory=dict)
    promised: Numbers = field(default_factory=dict)
    global_changelogs: tuple[str, ...] = ()
    standing: tuple[Standstill, ...] = ()
    copies: tuple[CopyLag, ...] = ()
    waits: tuple[WaitUnderWay, ...] = ()
    restore_remaining_records: int = 0
    restore_remaining_s: float | None = None
    disk_free_bytes: int | None = None
    disk_size_bytes: int | None = None
    tables: tuple[TableStatus, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A member as the leader's last answer names it: its URL, its instance id and what it owns."""

    url: str
    instance_id: str | None = None
    actives: Numbers = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Peers:
    """All members of one worker's last round."""

    app: str
    generation: int = -1
    peers: tuple[Peer, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MovedTask:
    """A task that got another owner, by its first topic. ``source`` is "" where its owner was gone.

    Members are named by instance id, else by member id. ``rule`` is the planner's word.
    """

    topic: str
    partition: int
    source: str
    target: str
    rule: str
    is_cold: bool


@dataclass(frozen=True, kw_only=True)
class RoundTold:
    """A round as one worker saw it.

    ``at`` is in seconds since 1970, ``seconds`` how long it took until the tables were restored. Only
    the leader of the round names ``moves``.
    """

    generation: int
    at: float = 0.0
    seconds: float | None = None
    outcome: Outcome | None = None
    moves: tuple[MovedTask, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """The last rounds of one worker."""

    app: str
    rounds: tuple[RoundTold, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LedgerPage:
    """Lines of a worker's ledger, oldest first; ``cursor`` asks for the page before it, "" where none is."""

    app: str
    lines: tuple[bytes, ...] = ()
    cursor: str = ""


def dumps(value: Any) -> str:
    """Dataclasses, in each other and in plain containers, as JSON."""
    return json.dumps(value, default=vars, separators=(",", ":"))


def encode_document(value: WorkerStatus | Peers | Rounds) -> bytes:
    """The document as it travels."""
    return dumps({"version": VERSION, **vars(value)}).encode()


def decode_status(data: bytes) -> WorkerStatus:
    """A worker's document, at most 4 MiB. Raises :class:`MetadataRefused`."""
    return of_json(WorkerStatus, read_json(data, limit=UNPACKED_BYTES))


def decode_peers(data: bytes) -> Peers:
    """What a worker knows of all members, at most 4 MiB. Raises :class:`MetadataRefused`."""
    return of_json(Peers, read_json(data, limit=UNPACKED_BYTES))


def decode_rounds(data: bytes) -> Rounds:
    """The last rounds as a worker saw them, at most 4 MiB. Raises :class:`MetadataRefused`."""
    return of_json(Rounds, read_json(data, limit=UNPACKED_BYTES))


def of_json(kind: type[T], document: Mapping[str, Any]) -> T:
    """The inverse of :func:`dumps` for a dataclass. Raises :class:`MetadataRefused`."""
    read: _Read = _reader(cast(Any, kind))
    found: T = read(document, "document")
    return found


def encode_ledger(page: LedgerPage) -> bytes:
    """A line of JSON about the page, then the ledger's lines as they are."""
    head = dumps({"version": VERSION, "app": page.app, "cursor": page.cursor}).encode()
    return b"\n".join((head, *page.lines))


def decode_ledger(data: bytes) -> LedgerPage:
    """A page of a worker's ledger; its lines are not looked into. Raises :class:`MetadataRefused`."""
    head, *lines = data.split(b"\n")
    found = read_json(head)
    app, cursor = found.get("app"), found.get("cursor", "")
    return LedgerPage(app=_text(app, "app"), lines=tuple(lines), cursor=_text(cursor, "cursor"))


def printable(text: str) -> str:
    """The text as a terminal may show it: what would move the cursor or hide text is replaced."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


# -- one reader for each type that a document's field may have

_Read = Callable[[Any, str], Any]


@cache
def _reader(kind: Any) -> _Read:
    if dataclasses.is_dataclass(kind):
        return _of_dataclass(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        read = _reader(inner)
        return lambda value, name: None if value is None else read(value, name)
    if origin is tuple:
        return _of_list(_reader(arguments[0]))
    if origin is not None:
        return _of_mapping(_reader(arguments[1]))
    return _PLAIN[kind]


def _of_dataclass(kind: Any) -> _Read:
    hints = get_type_hints(kind)
    readers = [(f.name, _reader(hints[f.name])) for f in dataclasses.fields(kind)]
    needed = [
        f.name
        for f in dataclasses.fields(kind)
        if f.default is f.default_factory is dataclasses.MISSING
    ]

    def read(value: Any, name: str) -> Any:
        if not isinstance(value, dict):
            raise _refused(name, "an object", value)
        missing = [key for key in needed if key not in value]
        if missing:
            raise MetadataRefused(f"{name} without {', '.join(missing)}")
        return kind(**{key: read(value[key], key) for key, read in readers if key in value})

    return read


def _of_list(read_one: _Read) -> _Read:
    def read(value: Any, name: str) -> Any:
        if not isinstance(value, list):
            raise _refused(name, "a list", value)
        return tuple([read_one(entry, name) for entry in value])

    return read


def _of_mapping(read_one: _Read) -> _Read:
    def read(value: Any, name: str) -> Any:
        if not isinstance(value, dict):
            raise _refused(name, "an object", value)
        return {printable(key): read_one(entry, name) for key, entry in value.items()}

    return read


def _text(value: Any, name: str) -> str:
    if type(value) is not str:
        raise _refused(name, "a text", value)
    return printable(value[:_TEXT_CHARS])


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or abs(value) >= _BEYOND:
        raise _refused(name, "a whole number", value)
    return value


def _number(value: Any, name: str) -> float:
    if type(value) not in (int, float) or not -_BEYOND < value < _BEYOND:  # not even NaN
        raise _refused(name, "a number", value)
    return float(value)


def _switch(value: Any, name: str) -> bool:
    if type(value) is not bool:
        raise _refused(name, "true or false", value)
    return value


_PLAIN: Mapping[Any, _Read] = {str: _text, int: _whole, float: _number, bool: _switch}


def _refused(name: str, wanted: str, value: Any) -> MetadataRefused:
    return MetadataRefused(f"{name} is {type(value).__name__}, not {wanted}")
