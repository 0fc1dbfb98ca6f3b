"""The table manager's part in recoveries: it creates the recovery and stops it at a revocation."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from faust.tables.recovery import Recovery
from mode.utils.queues import ThrowableQueue

from faust_assigner.app.host.mixing import over
from faust_assigner.app.recovery.by_partition import PartitionRecovery
from faust_assigner.app.tables import windowed_tables as windows
from faust_assigner.app.tables.write_behind import install_write_behind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faust.types.app import AppT
    from faust.types.events import EventT
    from faust.types.tables import CollectionT
    from faust.types.tuples import TP, Message

    from faust_assigner.app.host.table_bases import TablesBase as TableManager
    from faust_assigner.app.tables.window_closing import Closing
else:
    from faust.tables.manager import TableManager


class ChangelogQueue(ThrowableQueue):  # type: ignore[misc]
    """The queue of changelog records; records of an earlier generation are dropped.

    The offset of such a record would mark unread records of this generation as applied.
    """

    def __init__(self, app: AppT, **kwargs: object) -> None:
        self.app = app
        super().__init__(**kwargs)

    async def get(self) -> EventT[object]:
        """Return the next record of this generation for a partition that this worker replays."""
        while True:
            event: EventT[object] = await super().get()
            if self._belongs(event.message):
                return event

    def _belongs(self, message: Message) -> bool:
        recovery = self.app.tables.recovery
        return message.generation_id in (None, self.app.consumer_generation_id) and (
            message.tp in recovery.active_tps or message.tp in recovery.standby_tps
        )


class RecoveringTables(TableManager):
    """Faust's table manager with our recovery and changelog queue."""

    _recovery: Any

    def __init__(self, *args: object, **kwargs: object) -> None:
        #: The parts that close windows, one for each windowed table.
        self.closings: list[Closing] = []
        super().__init__(*args, **kwargs)

    @cached_property
    def changelog_queue(self) -> ChangelogQueue:
        """Queue between the fetcher and the tables."""
        return ChangelogQueue(
            self.app,
            maxsize=self.app.conf.stream_buffer_maxsize,
            flow_control=self.app.flow_control,
            clear_on_resume=True,
        )

    @property
    def recovery(self) -> Any:
        """The recovery service, created at first use."""
        if self._recovery is None:
            kind = over(PartitionRecovery, Recovery)
            self._recovery = kind(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery

    def add(self, table: CollectionT) -> CollectionT:
        """Manage ``table``; wrap its store before the first database is opened."""
        install_write_behind(table)
        added = super().add(table)
        if (closing := windows.install(self.app, table)) is not None:
            self.closings.append(closing)
        return added

    def on_commit(self, offsets: Mapping[TP, int]) -> None:
        """Handle committed offsets: files may record them, and windows may close."""
        super().on_commit(offsets)
        windows.committed(self.closings, offsets)

    def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Stop every restore first: other workers may soon own the partitions."""
        self.recovery.stop_assigning()
        self.recovery.stop_restoring()
        super().on_partitions_revoked(revoked)

    async def on_rebalance(
        self, assigned: set[TP], revoked: set[TP], newly_assigned: set[TP], generation_id: int = 0
    ) -> None:
        """Open and close databases only while no restore thread holds a database."""
        await self.recovery.stop_and_wait()
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)

    async def on_stop(self) -> None:
        """Leave the group before the tables are closed, once the streams are done."""
        leave = getattr(self.app.consumer, "leave_group", None)
        if self.app.should_stop and leave is not None and self.recovery.started:
            await leave()
        await super().on_stop()

    async def _update_channels(self) -> None:
        await super()._update_channels()
        for channel in self._channels.values():
            channel.on_decode_error = self.recovery.unreadable.add_undecoded
