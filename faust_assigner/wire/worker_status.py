"""A worker's answer at ``/assignor/status``: a JSON document, written by workers and read by tools.

A reader skips unknown keys and uses the default of missing keys, so that workers and tools of
different versions work together. All other content is checked, because the document comes from a URL that
a member advertised and is therefore untrusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from faust_assigner.wire.bounded import UNPACKED_BYTES, read_json
from faust_assigner.wire.documents import dumps, of_json, read_text
from faust_assigner.wire.outcome import Outcome

#: The paths of the status document and of the list of all members on a worker's web server.
STATUS_PATH, PEERS_PATH = "/assignor/status", "/assignor/peers"
#: The path of the worker's last rounds.
ROUNDS_PATH = "/assignor/rounds"
#: The path of the newest ledger lines; ``?before=CURSOR`` selects the lines before a page.
LEDGER_PATH = "/assignor/ledger"
#: Reason -> its description, for a source partition that this worker owns and does not process now.
REASONS = {
    "restoring": "its tables are being restored",
    "round": "an eager rebalance is in progress, which stops all partitions",
    "hand_over": "its records are finished and committed before it goes to another worker",
    "group": "the group coordinator has answered no heartbeat for a session",
    "unreadable": "its records cannot be read; the worker tries again",
    "refused": "its broker answers with an error; the worker tries again",
    "record": "the agents have not finished its oldest record for 30 seconds",
    "paused": "it is paused for a reason that is not in this list",
}
#: The version of the document; later versions only add keys.
VERSION = 1
#: The key in ``counters`` for the number of corrupt table folders renamed since the worker started.
CORRUPT_FOLDERS = "corrupt_folders"

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
    """The lag of a changelog partition's copy; ``seconds`` is None if not yet known."""

    topic: str
    partition: int
    records: int
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class WaitUnderWay:
    """A wait in a rebalance or a commit: the name of the wait, the awaited step, and the seconds so far."""

    what: str
    step: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    """A table; ``bytes``: partition -> its size on this worker's disk, including copies.

    ``expires_s`` is the retention of a windowed table's windows; None if they do not expire.
    ``is_set``: it is a table of sets. ``uses_partitioner``: its changelog may have any number of
    partitions.
    """

    name: str
    changelog: str
    store: str
    is_global: bool = False
    is_windowed: bool = False
    is_set: bool = False
    uses_partitioner: bool = False
    expires_s: float | None = None
    bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    """One worker's status, as the worker reports it.

    ``awaited`` are copies on this worker whose tasks move to it once they have caught up. ``promised`` are
    partitions that move to this worker after their owners have revoked them. ``global_changelogs``
    are the changelogs of global tables, which every member follows. ``is_cooperative``: this worker
    offers cooperative rebalances. Times are in seconds, disk space in bytes.
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
    """A member in the leader's last answer: its URL, its instance id and its partitions."""

    url: str
    instance_id: str | None = None
    actives: Numbers = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Peers:
    """All members of a worker's last round."""

    app: str
    generation: int = -1
    peers: tuple[Peer, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MovedTask:
    """A task with a new owner, named by its first topic. ``source`` is "" if its last owner was gone.

    Members are named by instance id, or else by member id. ``rule`` is the planner's reason for the move.
    """

    topic: str
    partition: int
    source: str
    target: str
    rule: str
    is_cold: bool


@dataclass(frozen=True, kw_only=True)
class RoundTold:
    """A round as one worker recorded it; ``url`` is the worker's.

    ``at`` is in seconds since 1970. ``seconds`` is the duration until the worker's tables were restored. Only
    the leader of the round reports ``moves``.
    """

    generation: int
    url: str = ""
    at: float = 0.0
    seconds: float | None = None
    outcome: Outcome | None = None
    moves: tuple[MovedTask, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """The last rounds of a worker."""

    app: str
    rounds: tuple[RoundTold, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LedgerPage:
    """A page of a worker's ledger, oldest line first; ``cursor`` selects the page before, "" for none."""

    app: str
    lines: tuple[bytes, ...] = ()
    cursor: str = ""


def encode_document(value: WorkerStatus | Peers | Rounds) -> bytes:
    """Encode a document as JSON, with its version."""
    return dumps({"version": VERSION, **vars(value)}).encode()


def decode_status(data: bytes) -> WorkerStatus:
    """Decode a worker's document, at most 4 MiB. Raises :class:`MetadataRefused`."""
    return of_json(WorkerStatus, read_json(data, limit=UNPACKED_BYTES))


def decode_peers(data: bytes) -> Peers:
    """Decode a worker's list of all members, at most 4 MiB. Raises :class:`MetadataRefused`."""
    return of_json(Peers, read_json(data, limit=UNPACKED_BYTES))


def decode_rounds(data: bytes) -> Rounds:
    """Decode a worker's last rounds, at most 4 MiB. Raises :class:`MetadataRefused`."""
    return of_json(Rounds, read_json(data, limit=UNPACKED_BYTES))


def encode_ledger(page: LedgerPage) -> bytes:
    """Encode a page as a line of JSON (version, app, cursor) and the unchanged ledger lines."""
    head = dumps({"version": VERSION, "app": page.app, "cursor": page.cursor}).encode()
    return b"\n".join((head, *page.lines))


def decode_ledger(data: bytes) -> LedgerPage:
    """Decode a page of a worker's ledger without parsing its lines. Raises :class:`MetadataRefused`."""
    head, *lines = data.split(b"\n")
    found = read_json(head)
    app, cursor = found.get("app"), found.get("cursor", "")
    return LedgerPage(
        app=read_text(app, "app"), lines=tuple(lines), cursor=read_text(cursor, "cursor")
    )
