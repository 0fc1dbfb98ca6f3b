"""Warnings at the start: the driver ignores the app's assignor, or tables are kept in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mode import get_logger

from faust_assigner.app.tables.disk import in_memory

if TYPE_CHECKING:
    from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
    from faust.types.app import AppT

    from faust_assigner.app.host.bases import ConsumerBase as Consumer
else:
    Consumer = object

logger = get_logger(__name__)


class IgnoresAppAssignor(Consumer):
    """A mixin for the consumers of other drivers: it logs that the app's assignor is not used."""

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        logger.warning(
            "The app's partition assignor is not used: the driver of %s assigns by itself; "
            "use kafka:// or aiokafka://",
            ", ".join(map(str, self.transport.url)),
        )
        return super()._new_consumer_thread()


def warn_of_memory(app: AppT) -> None:
    """Log a warning with the names of the tables that keep their rows in memory."""
    if tables := in_memory(app):
        logger.warning(
            "Tables kept in memory: %s. Each of their partitions is replayed from its changelog "
            "after each move and each restart; set store='rocksdb://' to keep files and to move "
            "partitions warm",
            ", ".join(tables),
        )
