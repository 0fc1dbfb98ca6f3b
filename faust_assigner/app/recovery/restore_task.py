"""One restore: its settings, its partitions, their results, its threads and their stop signal."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from mode import get_logger

from faust_assigner.app.recovery.decoding import ANYTHING, Decoding
from faust_assigner.app.recovery.progress import Progress
from faust_assigner.app.recovery.restore_throttle import RestoreThrottle
from faust_assigner.app.recovery.unreadable import Unreadable
from faust_assigner.snapshots.kafka_requests import Connection

if TYPE_CHECKING:
    from aiokafka import TopicPartition
    from faust.types.tuples import TP
    from rocksdict import Rdict

logger = get_logger(__name__)

#: Seconds that a rebalance waits for a stopped restore, which usually ends after one fetch (0.2 s).
SETTLE_TIMEOUT_S = 15.0

P = ParamSpec("P")
T = TypeVar("T")

LOCAL, SNAPSHOT, REPLAY = "local", "snapshot", "replay"


@dataclass(frozen=True)
class Settings:
    """The settings of a restore: the place of snapshots, the connection, the allowed restores."""

    snapshots: str | None
    batched: bool
    connection: Connection
    isolation_level: str
    #: Scratch space on the tables' own disk, so that files are moved instead of copied.
    folder: Path
    #: Called with the records that do not decode.
    unreadable: Callable[[TP, Sequence[Unreadable]], None] = lambda tp, records: None
    #: The limit of the restore's CPU share while streams run, and the restore's progress.
    pace: RestoreThrottle = field(default_factory=RestoreThrottle)
    progress: Progress = field(default_factory=Progress)


@dataclass(frozen=True)
class Cold:
    """One partition to restore: its database, and the stored offset (-1 if there is none).

    ``highwater`` is the last offset to reach, as far as Faust knows. ``takes_files`` is true if the
    database can ingest SST files.
    """

    tp: TopicPartition
    database: Rdict
    offset: int
    highwater: int
    takes_files: bool
    #: How records of the changelog decode; records that do not decode are left out.
    decoding: Decoding = ANYTHING


@dataclass(frozen=True)
class Restored:
    """The result of one partition's restore. Offsets are of the last applied records.

    Times are epoch seconds.
    """

    tp: TopicPartition
    source: str
    started: float
    ended: float
    start_offset: int
    end_offset: int
    #: Bytes of the snapshot files that were downloaded; 0 without a snapshot.
    bytes: int
    #: The number of changelog offsets that the batched replay passed, after the snapshot or the
    #: local files.
    replayed: int = 0
    #: Bytes of keys and values of the replayed records.
    replayed_bytes: int = 0


class Stop:
    """The stop signal of a restore thread: set by a call, or true after ``seconds``."""

    def __init__(self, seconds: float | None = None) -> None:
        self._event = threading.Event()
        self._seconds, self._deadline = (
            seconds,
            None if seconds is None else time.monotonic() + seconds,
        )

    def set(self) -> None:
        """Signal the thread to end now."""
        self._event.set()

    def renew(self) -> None:
        """Restart the time limit after a step in which the consumer was not silent."""
        if self._seconds is not None:
            self._deadline = time.monotonic() + self._seconds

    def __call__(self) -> bool:
        """Return whether the thread must end now."""
        late = self._deadline is not None and time.monotonic() > self._deadline
        return late or self._event.is_set()


class RestoreThreads:
    """The threads that restore, open or build databases."""

    def __init__(self) -> None:
        #: The stop signal of the current restore.
        self.stop_signal = Stop()
        self._working: set[asyncio.Future[Any]] = set()

    async def stop_and_wait(self) -> None:
        """Stop the restore and wait until no thread holds a database."""
        self.stop_signal.set()
        if self._working:
            _, late = await asyncio.wait(set(self._working), timeout=SETTLE_TIMEOUT_S)
            if late:
                logger.error(
                    "A restore did not stop within %.0f s of a rebalance", SETTLE_TIMEOUT_S
                )

    async def run(self, function: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
        """Run in a thread; ``stop_and_wait`` waits for the thread even if this call is cancelled."""
        work = asyncio.ensure_future(asyncio.to_thread(function, *arguments, **more))
        self._working.add(work)
        work.add_done_callback(self._work_ended)
        return await asyncio.shield(work)

    def _work_ended(self, work: asyncio.Future[Any]) -> None:
        self._working.discard(work)
        # If the waiting task was cancelled, asyncio would report the error as never retrieved.
        if not work.cancelled():
            work.exception()
