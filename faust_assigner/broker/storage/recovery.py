"""Check the store at a start, before the broker serves: its format, and that no acknowledged data is missing.

The check uses the number of writes and the end of each partition in the write audit (``write_audit.py``), and
the store's checksum of every value. If data is missing, the start fails with an error that names the loss.
With ``log.recovery.accept.loss`` the broker logs the loss and starts without the data; no offset is reused.
"""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.losses import accept_losses, unexplained_holes, unreadable
from faust_assigner.broker.storage.rocks_store import RocksStore
from faust_assigner.broker.storage.store import FORMAT, FORMAT_VERSIONS, Store, StoreFailed
from faust_assigner.broker.topics import Catalogue

logger = logging.getLogger(__name__)
CHECK_BYTES = 4 * 2**20  # read in one step
CLUSTER = b"cluster"  # the key of the cluster's id
NAMED = 20  # the most losses in one message


class StoreDamaged(StoreFailed):
    """Acknowledged data is missing or unreadable; the message names it."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Lost offsets [first, beyond) of one partition; ``is_batch``: one batch that the index still has."""

    name: str
    log: PartitionLog
    first: int
    beyond: int
    is_batch: bool = False

    def __str__(self) -> str:
        return f"{self.name}: offsets {self.first} to {self.beyond - 1}"


def open_cluster(store: Store, settings: Settings) -> str:
    """Return the id of the cluster; initialise a new store. Raises StoreFailed for an unknown format."""
    _refuse_empty_after_loss(store, settings)
    version = store.get(FORMAT)
    if version not in (None, *FORMAT_VERSIONS):
        raise StoreFailed(
            f"data format {version!r} is not one of {FORMAT_VERSIONS!r}; another version of "
            "the broker wrote the data"
        )
    saved = store.get(CLUSTER)
    if saved is not None:
        return saved.decode()
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    store.write([(CLUSTER, cluster_id.encode()), (FORMAT, FORMAT_VERSIONS[0])])
    return cluster_id


def _refuse_empty_after_loss(store: Store, settings: Settings) -> None:
    """Refuse an empty store whose writes were lost, before it is initialised as a new store."""
    lost = store.lost_writes if isinstance(store, RocksStore) and store.get(CLUSTER) is None else 0
    if lost and not settings.log_recovery_accept_loss:
        raise StoreDamaged(_loss_sentence(lost, []))


def examine(
    store: Store,
    catalogue: Catalogue,
    settings: Settings,
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Compare the store with the write audit. Raises StoreDamaged; ``progress`` may raise to stop it."""
    if not isinstance(store, RocksStore):
        return
    losses = [*_missing_ends(store, catalogue), *_unexplained_losses(catalogue)]
    excused = not store.write_audit.same_boot and not store.lost_writes
    if excused and losses:
        logger.warning(
            "Data is missing after a power failure: %s", "; ".join(map(str, losses[:NAMED]))
        )
        losses = []
    if settings.log_recovery_check_batches or store.was_salvaged:
        losses += _unreadable_losses(catalogue, progress)
    if store.lost_writes or losses:
        _accept_or_refuse_losses(store, losses, settings)
    ends = {
        log.place: log.end_offset
        for topic in catalogue
        for log in topic.partitions
        if log.end_offset
    }
    store.write_audit.restart(store.sequence, ends)


def _accept_or_refuse_losses(store: RocksStore, losses: list[Loss], settings: Settings) -> None:
    message = _loss_sentence(store.lost_writes, losses)
    if not settings.log_recovery_accept_loss:
        raise StoreDamaged(
            f"{message}. Set log.recovery.accept.loss=true to start without this data"
        )
    logger.error("%s; the broker starts without this data", message)
    by_log: dict[bytes, list[Loss]] = {}
    for loss in losses:
        by_log.setdefault(loss.log.place, []).append(loss)
    for those in by_log.values():
        spans = [(loss.first, loss.beyond) for loss in those]
        accept_losses(those[0].log, spans, [loss.first for loss in those if loss.is_batch])


def _loss_sentence(lost_writes: int, losses: list[Loss]) -> str:
    parts = [f"{lost_writes} acknowledged writes are missing"] if lost_writes else []
    parts += [str(loss) for loss in losses[:NAMED]]
    if len(losses) > NAMED:
        parts.append(f"and {len(losses) - NAMED} more")
    return "the store is damaged: " + "; ".join(parts)


def _all_logs(catalogue: Catalogue) -> Iterator[tuple[str, PartitionLog]]:
    for topic in catalogue:
        for number, log in enumerate(topic.partitions):
            yield f"{topic.name}-{number}", log


def _missing_ends(store: RocksStore, catalogue: Catalogue) -> Iterator[Loss]:
    for name, log in _all_logs(catalogue):
        end = store.write_audit.ends.get(log.place, 0)
        if end > log.end_offset:
            yield Loss(name, log, log.end_offset, end)


def _unexplained_losses(catalogue: Catalogue) -> Iterator[Loss]:
    for name, log in _all_logs(catalogue):
        for first, beyond in unexplained_holes(log):
            yield Loss(name, log, first, beyond)


def _unreadable_losses(catalogue: Catalogue, progress: Callable[[], None]) -> Iterator[Loss]:
    for name, log in _all_logs(catalogue):
        for offset, beyond in unreadable(log, CHECK_BYTES, progress):
            yield Loss(name, log, offset, beyond, is_batch=True)
