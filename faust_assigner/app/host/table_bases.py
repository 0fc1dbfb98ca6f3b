"""Protocols of Faust's table classes, with the members that our subclasses call; for type checks only.

Each member has a row in ``private_apis.toml`` or is documented by Faust. ``TP`` and records are
Faust's own types, which have no annotations.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from faust.channels import Channel
    from faust.stores.rocksdb import RocksDBOptions
    from faust.tables.manager import TableManager
    from faust.tables.recovery import RecoveryStats
    from faust.types.app import AppT
    from faust.types.events import EventT
    from faust.types.tables import CollectionT
    from faust.types.tuples import TP
    from mode.services import WaitArgT, WaitResult
    from mode.utils.times import Seconds
    from mode.utils.trees import NodeT
    from rocksdict import Rdict


class TablesBase(Protocol):
    """``faust.tables.manager.TableManager``; it creates its changelog queue and recovery at first use."""

    app: AppT
    beacon: NodeT[object]
    loop: asyncio.AbstractEventLoop
    should_stop: bool
    _recovery: Any
    _channels: Mapping[CollectionT, Channel[object]]

    @property
    def changelog_queue(self) -> Any: ...
    @property
    def recovery(self) -> Any: ...
    def add(self, table: CollectionT) -> CollectionT: ...
    def on_commit(self, offsets: Mapping[TP, int]) -> None: ...
    def values(self) -> Iterable[CollectionT]: ...
    async def _update_channels(self) -> None: ...
    async def on_start(self) -> None: ...
    async def on_stop(self) -> None: ...
    async def sleep(self, n: float) -> None: ...
    def on_partitions_revoked(self, revoked: set[TP]) -> None: ...
    async def on_rebalance(
        self,
        assigned: set[TP],
        revoked: set[TP],
        newly_assigned: set[TP],
        generation_id: int = 0,
    ) -> None: ...


class RecoveryBase(Protocol):
    """``faust.tables.recovery.Recovery``; its offsets are those of the last applied records.

    Before the first applied record an offset is None or -1.
    """

    app: AppT
    tables: TableManager
    in_recovery: bool
    should_stop: bool
    buffers: MutableMapping[CollectionT, list[EventT[object]]]
    tp_to_table: Mapping[TP, CollectionT]
    active_tps: set[TP]
    standby_tps: set[TP]
    active_offsets: MutableMapping[TP, int | None]
    standby_offsets: MutableMapping[TP, int | None]
    _generation_id: int
    _last_flush_at: float | None
    _active_events_received_at: MutableMapping[TP, float]
    _recovery_span: Any
    active_highwaters: MutableMapping[TP, int]
    standby_highwaters: MutableMapping[TP, int]
    actives_for_table: MutableMapping[CollectionT, set[TP]]
    standbys_for_table: MutableMapping[CollectionT, set[TP]]
    completed: asyncio.Event

    def __init__(self, *args: object, **kwargs: object) -> None: ...
    @property
    def signal_recovery_start(self) -> asyncio.Event: ...
    @property
    def signal_recovery_end(self) -> asyncio.Event: ...
    async def _resume_streams(self, generation_id: int = 0) -> None: ...
    def add_active(self, table: CollectionT, tp: TP) -> None: ...
    def add_standby(self, table: CollectionT, tp: TP) -> None: ...
    def revoke(self, tp: TP) -> None: ...
    async def _wait(self, coro: object, timeout: object = None) -> None: ...
    async def wait(
        self, *coros: WaitArgT | asyncio.Event, timeout: Seconds | None = None
    ) -> WaitResult: ...
    async def wait_for_stopped(
        self, *coros: WaitArgT | asyncio.Event, timeout: Seconds | None = None
    ) -> bool: ...
    def _set_recovery_started(self) -> None: ...
    def _set_recovery_ended(self) -> None: ...
    async def on_rebalance(
        self,
        assigned: set[TP],
        revoked: set[TP],
        newly_assigned: set[TP],
        generation_id: int = 0,
    ) -> None: ...
    async def on_stop(self) -> None: ...
    async def sleep(self, n: float) -> None: ...
    def add_future(self, coro: Awaitable[object]) -> asyncio.Future[object]: ...
    def flush_buffers(self) -> None: ...
    def need_recovery(self) -> bool: ...
    def active_stats(self) -> Mapping[TP, RecoveryStats]: ...
    def standby_stats(self) -> Mapping[TP, RecoveryStats]: ...
    def standby_remaining_total(self) -> int: ...


class RocksDBBase(Protocol):
    """``faust.stores.rocksdb.Store``."""

    app: AppT
    table: CollectionT
    path: Path
    read_only: bool
    rocksdb_options: RocksDBOptions
    offset_key: bytes
    key_type: Any
    key_serializer: Any
    _dbs: MutableMapping[int, Rdict]
    _key_index: MutableMapping[bytes, int]

    def __init__(self, *args: object, **kwargs: object) -> None: ...
    async def stop(self) -> None: ...
    def reset_state(self) -> None: ...
    def partition_path(self, partition: int) -> Path: ...
    def _db_for_partition(self, partition: int) -> Rdict: ...
    def _open_for_partition(self, partition: int) -> Rdict: ...
    def revoke_partitions(self, table: CollectionT, tps: set[TP]) -> None: ...
    def apply_changelog_batch(
        self,
        batch: Iterable[EventT[object]],
        to_key: Callable[[object], object],
        to_value: Callable[[object], object],
    ) -> None: ...
    def set_persisted_offset(self, tp: TP, offset: int) -> None: ...
    def _get(self, key: bytes) -> bytes | None: ...
    def _set(self, key: bytes, value: bytes | None) -> None: ...
    def _del(self, key: bytes) -> None: ...
    def _contains(self, key: bytes) -> bool: ...
    def _dbs_for_actives(self) -> Iterator[Rdict]: ...
    def _visible_keys(self, db: Rdict) -> Iterator[bytes]: ...
    def _visible_items(self, db: Rdict) -> Iterator[tuple[bytes, bytes]]: ...


class CollectionBase(Protocol):
    """``faust.tables.base.Collection``, the base of tables and sets."""

    @property
    def data(self) -> Any: ...


class SetsBase(Protocol):
    """``faust.tables.sets.ChangeloggedSetManager``."""

    table: CollectionT
    storage: Any
    ValueType: Any

    def __getitem__(self, key: object) -> Any: ...
    def send_changelog_event(self, key: object, operation: int, value: object) -> None: ...
    def apply_changelog_batch(
        self,
        batch: Iterable[EventT[object]],
        to_key: Callable[[object], object],
        to_value: Callable[[object], object],
    ) -> None: ...
    def sync_from_storage(self) -> None: ...
