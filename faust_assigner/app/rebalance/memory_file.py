"""The memory file with this member's partitions: written at each assignment, read at the first join.

After a stop of all workers no task has a living owner. With the members' memory files the leader
returns each task to its former owner (see ``Member.former_actives``). The file is in the app's data
directory:

    {"version": 1, "app": "shop", "generation": 7, "actives": {"orders": [0, 3], ...},
     "offers": {"capacity": 1.0, "rack": null, "topics": "9f86d081..."}}

If the file is missing, damaged, of a different version or of a different app, the member has no
former partitions. :class:`MemoryFile` never raises.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mode import get_logger

from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Claims
from faust_assigner.wire.bounded import LARGEST_INT, UNPACKED_BYTES, read_json, read_stock_claims
from faust_assigner.wire.join import JoinData
from faust_assigner.wire.runs import Runs

if TYPE_CHECKING:
    from faust.types.app import AppT

logger = get_logger(__name__)

NAME = "faust-assigner-memory.json"
VERSION = 1
#: The maximum size in bytes; a larger file is neither written nor read.
MOST_BYTES = UNPACKED_BYTES


@dataclass(frozen=True)
class FormerPartitions:
    """A member's partitions in ``generation``, before its process ended; -1 and empty if unknown.

    ``offers`` are the capacity, the rack and a digest of the subscription, as the leader knew them;
    empty if unknown.
    """

    generation: int = -1
    actives: Mapping[str, Runs] = field(default_factory=dict)
    offers: Mapping[str, Any] = field(default_factory=dict)


def offers_of(said: JoinData | None, wanted: Sequence[str]) -> dict[str, object]:
    """Return the offers (capacity, rack, digest of the subscription) of a join.

    ``said`` is the metadata of the join, ``wanted`` the sorted subscription. The result is empty if
    ``said`` is None.
    """
    if said is None:
        return {}
    topics = hashlib.sha256("\n".join(wanted).encode()).hexdigest()
    return {"capacity": said.capacity, "rack": said.rack_id, "topics": topics}


def has_other_offers(
    said: JoinData | None,
    wanted: Sequence[str],
    former: FormerPartitions,
    *,
    generation: int,
    planned: Collection[str],
    given: Collection[str],
) -> bool:
    """Return whether a static member rejoined without a round (KIP-345) and with new metadata.

    Then no leader has read the new metadata. If the memory file is of the same ``generation``, its
    offers are compared with the new ones. Otherwise the topics are compared. The metadata are new if
    the leader has not ``planned`` a subscribed topic, or has ``given`` a topic that is not
    subscribed.
    """
    if said is None:
        return False
    if generation == former.generation:
        return any(
            former.offers.get(name, of) != of for name, of in offers_of(said, wanted).items()
        )
    known = {*planned} or {*wanted}  # the answer of a stock leader may contain no groups
    return said.instance_id is not None and not {*given} <= {*wanted} <= known


class MemoryFile:
    """One app's memory file.

    The counter ``memory_failures`` counts failed writes, ``memories_ignored`` counts failed reads.
    """

    def __init__(self, app: AppT, counters: Counter[str]) -> None:
        self._app = app
        self._counters = counters
        self._former: FormerPartitions | None = None
        self._failing = False

    def former(self) -> FormerPartitions:
        """Return the partitions of the last process with this data directory; cache the result."""
        if self._former is None:
            try:
                self._former = read(self._path(), str(self._app.conf.id))
            except FileNotFoundError:
                self._former = FormerPartitions()
            except Exception as exc:
                self._counters["memories_ignored"] += 1
                logger.warning(
                    "Could not read this member's partitions from disk; they may "
                    "move after a stop of all workers: %s",
                    exc,
                )
                self._former = FormerPartitions()
        return self._former

    def keep(
        self, generation: int, actives: Claims, offers: Mapping[str, object] | None = None
    ) -> None:
        """Replace the file.

        Each failed write is counted; of consecutive failed writes only the first is logged.

        The file is not written without a data directory: the app was never started as a worker.
        """
        try:
            path = self._path()
            if not path.parent.is_dir():
                return
            write(path, str(self._app.conf.id), generation, actives, offers or {})
            self._failing = False
        except Exception as exc:
            self._counters["memory_failures"] += 1
            if not self._failing:
                logger.warning(
                    "Could not write this member's partitions to disk; they may move after a stop of "
                    "all workers: %s",
                    exc,
                )
            self._failing = True

    def _path(self) -> Path:
        return Path(self._app.conf.appdir) / NAME


def read(path: Path, app_id: str) -> FormerPartitions:
    """Read the file, at most ``MOST_BYTES`` + 1 bytes. Raises MetadataRefused or OSError."""
    # Do not block: the path may be a pipe without a writer.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise MetadataRefused(f"{path} is not a file")
        said = read_json(file.read(MOST_BYTES + 1), limit=MOST_BYTES)
    version, whose, generation = said.get("version"), said.get("app"), said.get("generation")
    if type(version) is not int or version != VERSION:
        raise MetadataRefused(f"{path} does not have version {VERSION}")
    if whose != app_id:
        raise MetadataRefused(f"{path} belongs to a different app")
    if type(generation) is not int or not 0 <= generation < LARGEST_INT:
        raise MetadataRefused(f"{path} has no generation")
    actives, _ = read_stock_claims({"actives": said.get("actives"), "standbys": {}})
    offers = said.get("offers")
    return FormerPartitions(generation, actives, offers if isinstance(offers, dict) else {})


def write(
    path: Path, app_id: str, generation: int, actives: Claims, offers: Mapping[str, object]
) -> None:
    """Replace ``path`` atomically. Raises OSError, or MetadataRefused if the text is too large."""
    owned = {topic: list(Runs.of(actives[topic])) for topic in sorted(actives)}
    text = json.dumps(
        {
            "version": VERSION,
            "app": app_id,
            "generation": generation,
            "actives": owned,
            "offers": dict(offers),
        },
        separators=(",", ":"),
    ).encode()
    if len(text) > MOST_BYTES:
        raise MetadataRefused(f"the partitions take {len(text)} bytes, the limit is {MOST_BYTES}")
    whole = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with whole.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(whole, path)
    except BaseException:
        whole.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Sync the folder, so that the renamed file survives a power failure."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
