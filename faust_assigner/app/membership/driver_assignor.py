"""Use the app's assignor in every app, also in apps for which Faust does not use its own assignor.

Without tables and without standbys, Faust's aiokafka driver passes aiokafka's round-robin assignor to the
consumer and ignores the app's assignor. Workers then idle, partitions move at every change, and
``group_for_topic`` knows no topic. The driver has no setting for this. So this module replaces the assignor
of the consumer between its creation and its start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from mode import get_logger

from faust_assigner.app.membership.idle import comes_back
from faust_assigner.app.membership.instance import guard_instance
from faust_assigner.app.membership.leader_guard import guard_leader
from faust_assigner.app.tables.disk import in_memory

if TYPE_CHECKING:
    from faust_assigner.app.host.bases import ConsumerBase as Consumer
else:
    Consumer = object

logger = get_logger(__name__)


class UsesAppAssignor(Consumer):
    """A part of the app's consumer: its AIOKafkaConsumer joins the group with the app's assignor."""

    def _new_consumer_thread(self) -> Any:
        thread = super()._new_consumer_thread()
        # The driver hard-codes its thread class, so change this instance.
        thread._create_worker_consumer = partial(_with_ours, thread, thread._create_worker_consumer)
        return thread


def _with_ours(thread: Any, create: Callable[[Any], Any], transport: Any) -> Any:
    """Create an AIOKafkaConsumer as Faust does, with the app's assignor and the guards of this package."""
    consumer, assignor = create(transport), thread.app.assignor
    guard_leader(consumer)
    guard_instance(consumer, thread.app)
    comes_back(consumer)
    if thread._assignor is not assignor:
        thread._assignor = assignor
        consumer._partition_assignment_strategy = [assignor]
    return consumer


class IgnoresAppAssignor(Consumer):
    """A part of other drivers' consumers: log a warning that the app's assignor is not used."""

    def _new_consumer_thread(self) -> Any:
        logger.warning(
            "The app's partition assignor is not used: the driver of %s assigns by itself; "
            "use kafka:// or aiokafka://",
            ", ".join(map(str, self.transport.url)),
        )
        return super()._new_consumer_thread()


def warn_of_memory(app: Any) -> None:
    """Log the names of the tables that keep their rows in memory."""
    if tables := in_memory(app):
        logger.warning(
            "Tables kept in memory: %s. Each of their partitions is replayed from its changelog "
            "after each move and each restart; set store='rocksdb://' to keep files and to move "
            "partitions warm",
            ", ".join(tables),
        )
