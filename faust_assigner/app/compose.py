"""Puts one app's parts together: the classes that replace Faust's, then the services and hooks.

One class on this page replaces each class of Faust. Its bases are in the order in which a call
passes them. No object changes its class later.

An app's own classes stay below ours (:func:`over`):

- The settings ``TableManager``, ``Stream`` and ``Router`` name classes, and so do ``Table``,
  ``GlobalTable``, ``SetTable`` and ``SetGlobalTable``. A class that does not derive from Faust's
  is refused with a ConfigError.
- The transport names the classes of consumer and transaction manager in its class attributes. The
  consumer class names the class of its thread in the attribute ``thread_class``. A consumer class
  that overrides ``_new_consumer_thread()`` without this attribute is refused.
- A flow control that exists already shares its state with ours.
- A consumer of a different driver stays unrepaired, which is logged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from faust.streams import Stream
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.transport import by_url
from faust.transport.consumer import TransactionManager
from faust.transport.drivers import aiokafka as driver
from faust.types.enums import ProcessingGuarantee
from mode import get_logger

from faust_assigner.app import sensors
from faust_assigner.app.consumer import lanes, produced_topics
from faust_assigner.app.consumer.back_pressure import BackPressure
from faust_assigner.app.consumer.batches import BatchesInTime, TransactionalBatches
from faust_assigner.app.consumer.commits import FinalCommit
from faust_assigner.app.consumer.fetching import FlowControl, FlowGate, Unrepaired
from faust_assigner.app.consumer.waits import DeadlineWaits
from faust_assigner.app.consumer.whole_records import RecordBoundaryCommits
from faust_assigner.app.host.check import demand
from faust_assigner.app.host.mixing import over, parts_of
from faust_assigner.app.ledger import install as ledger
from faust_assigner.app.membership import leave
from faust_assigner.app.membership.driver_assignor import IgnoresAppAssignor, warn_of_memory
from faust_assigner.app.membership.fence import MembershipFence
from faust_assigner.app.membership.shutdown import BoundedShutdown
from faust_assigner.app.membership.watchdog import Watched
from faust_assigner.app.metrics import install as metrics
from faust_assigner.app.queries.forwarding import AllowlistRouter
from faust_assigner.app.queries.reading import table_route
from faust_assigner.app.queries.replica_status import ReplicaStatus
from faust_assigner.app.queries.router import MARK as STANDING
from faust_assigner.app.queries.router import KeyRouter
from faust_assigner.app.rebalance import follow_up
from faust_assigner.app.rebalance.consumer_thread import (
    AssigningThread,
    IncrementalThread,
    RepairedThread,
)
from faust_assigner.app.rebalance.incremental import IncrementalRebalance
from faust_assigner.app.recovery.by_partition import PartitionRecovery
from faust_assigner.app.recovery.loop import RecoveryLoop
from faust_assigner.app.recovery.restoring import RestoringRecovery
from faust_assigner.app.recovery.table_manager import RecoveringTables, RestoringTables
from faust_assigner.app.settings import read_or_default
from faust_assigner.app.tables.scope import ScopedTable
from faust_assigner.app.transactions.manager import PartitionTransactions
from faust_assigner.app.weights import provider
from faust_assigner.errors import ConfigError
from faust_assigner.settings.table import (
    BATCHED_REPLAY,
    COOPERATIVE,
    REPAIRS,
    SNAPSHOTS,
    STALE_READS,
)

logger = get_logger(__name__)

#: The attribute of an app with the class of the table manager that its settings named.
TABLES_NAMED = "_faust_assigner_tables_named"

#: The attribute of an app's own consumer class with its own class of the consumer's thread.
THREAD_NAMED = "thread_class"


class EagerConsumer(
    BackPressure,
    DeadlineWaits,
    BoundedShutdown,
    MembershipFence,
    FlowGate,
    RecordBoundaryCommits,
    FinalCommit,
    driver.Consumer,  # type: ignore[misc]
):
    """The consumer, repaired; a rebalance stops all of its partitions."""

    def _new_consumer_thread(self) -> Any:
        return _new_thread(RepairedThread, self)


class IncrementalConsumer(
    BackPressure,
    DeadlineWaits,
    BoundedShutdown,
    MembershipFence,
    FlowGate,
    RecordBoundaryCommits,
    FinalCommit,
    IncrementalRebalance,
    driver.Consumer,  # type: ignore[misc]
):
    """The consumer, repaired; a rebalance stops only the partitions that move."""

    def _new_consumer_thread(self) -> Any:
        return _new_thread(IncrementalThread, self)


class AssigningConsumer(driver.Consumer):  # type: ignore[misc]
    """Faust's unrepaired consumer, under our assignor."""

    def _new_consumer_thread(self) -> Any:
        return _new_thread(AssigningThread, self)


def _new_thread(ours: type, consumer: Any) -> Any:
    """Make the consumer's thread of ``ours``, over the class that the app's own consumer names."""
    theirs = getattr(consumer, THREAD_NAMED, driver.AIOKafkaConsumerThread)
    return over(ours, theirs)(consumer, loop=consumer.loop, beacon=consumer.beacon)


class ForeignConsumer(Unrepaired, IgnoresAppAssignor):
    """The part of a different driver's consumer, with the methods that repaired tables call."""


class RepairedTransactions(PartitionTransactions, TransactionManager):  # type: ignore[misc]
    """The transaction manager."""


class RepairedRecovery(RecoveryLoop, Recovery):  # type: ignore[misc]
    """The recovery, repaired."""


class RestoringRepairedRecovery(RestoringRecovery, RecoveryLoop, Recovery):  # type: ignore[misc]
    """The recovery, repaired, with batched replay and snapshots."""


class RecoveryByPartition(PartitionRecovery, RestoringRecovery, RecoveryLoop, Recovery):  # type: ignore[misc]
    """The recovery, repaired, with batched replay and snapshots, separately for each partition."""


class RepairedTables(RecoveringTables, Watched, TableManager):  # type: ignore[misc]
    """The table manager, repaired."""

    recovery_class = RepairedRecovery


class ReplayingTables(RestoringTables, TableManager):  # type: ignore[misc]
    """Faust's unrepaired table manager, with batched replay and snapshots."""


class RestoringRepairedTables(RecoveringTables, Watched, TableManager):  # type: ignore[misc]
    """The table manager, repaired, with batched replay and snapshots."""

    recovery_class = RestoringRepairedRecovery


class TablesByPartition(RecoveringTables, Watched, TableManager):  # type: ignore[misc]
    """The table manager of an app whose rebalances stop only the partitions that move."""

    recovery_class = RecoveryByPartition


class TimelyStream(BatchesInTime, Stream):  # type: ignore[misc]
    """The stream, under ``at_least_once``."""


class TransactionalStream(TransactionalBatches, Stream):  # type: ignore[misc]
    """The stream, under ``exactly_once``."""


#: The installed parts for tables -> the class of the table manager.
TABLES: Final[dict[frozenset[str], type]] = {
    frozenset({"repairs"}): RepairedTables,
    frozenset({"restore"}): ReplayingTables,
    frozenset({"repairs", "restore"}): RestoringRepairedTables,
    frozenset({"repairs", "restore", "cooperative"}): TablesByPartition,
}


def repair(app: Any) -> None:
    """Repair ``app``'s tables, streams, flow and consumer; a second call has no effect.

    Call this before the app creates its consumer and its tables, as the fixup does when the
    settings are known. A later call can only log that it came too late. Other apps of the process
    are not changed. Raises HostMismatch.
    """
    if "repairs" in parts_of(app) or "repairs came late" in parts_of(app):
        return
    if _is_in_use(app):
        parts_of(app).add("repairs came late")
        logger.warning(
            "Records may be lost or repeated at a rebalance: the app was in use before it could "
            "be repaired; install faust_assigner with pip, so that Faust finds its fixup"
        )
        return
    demand({"repairs"})
    # Not app.flow_control: Faust would create its own now and bind the event loop of this moment.
    app.flow_control = FlowControl(vars(app).get("flow_control"))
    is_exact = _chosen(app, "processing_guarantee") == ProcessingGuarantee.EXACTLY_ONCE
    app.conf.Stream = over(
        TransactionalStream if is_exact else TimelyStream, _chosen(app, "Stream")
    )
    _add(app, "repairs")


def restore(app: Any) -> None:
    """Make ``app`` replay tables in batches and restore them from snapshots, as configured."""
    if "restore" in parts_of(app) or not (
        read_or_default(app, SNAPSHOTS) or read_or_default(app, BATCHED_REPLAY)
    ):
        return
    if "tables" in vars(app):
        logger.warning(
            "Tables are replayed by Faust's own loop: the app was in use before snapshots could "
            "be set up; install faust_assigner with pip, so that Faust finds its fixup"
        )
        return
    _add(app, "restore")


def ask_our_assignor(app: Any) -> None:
    """Make ``app``'s consumer join with the app's assignor, even without tables and standbys."""
    if app._consumer is not None:
        logger.warning(
            "Too late to install the app's assignor: the app's consumer exists already; without "
            "tables and standbys, partitions are assigned by round-robin"
        )
        return
    _add(app, "driver_assignor")


def rebalance_incrementally(app: Any) -> None:
    """Make ``app``'s rebalances stop only the partitions that move.

    Call this after the installation of the repairs and the restore. If one of these is missing, or
    if the driver is not Faust's aiokafka driver, rebalances are eager, which is logged.
    """
    if not read_or_default(app, COOPERATIVE):
        logger.info("Rebalances are eager and stop all partitions: %s is off", COOPERATIVE.name)
        return
    if "cooperative" in parts_of(app):
        return
    if _is_in_use(app) or not {"repairs", "restore"} <= parts_of(app):
        logger.warning(
            "Rebalances are eager and stop all partitions: cooperative rounds need the repairs "
            "and the batched replay, installed before the app is in use"
        )
        return
    if not _has_known_driver(app):
        _warn_of_driver(_chosen(app, "broker_consumer"))
        return
    _add(app, "cooperative")
    leave.install(app)
    lanes.install(app)


def forward_requests(app: Any) -> None:
    """Make ``app`` forward requests for keys to allowed URLs only, from the first request on.

    The setting ``FAUST_ASSIGNER_URLS`` lists the allowed URLs.
    """
    app.conf.Router = over(AllowlistRouter, _chosen(app, "Router"))


def answer_requests(app: Any) -> None:
    """Make ``app`` answer requests for keys as an owner, or from copies (setting ``STALE_READS``).

    Call this after :func:`forward_requests`.
    """
    chosen = _chosen(app, "Router")
    if issubclass(chosen, KeyRouter) or not read_or_default(app, REPAIRS):
        return
    standing = ReplicaStatus(app, read_or_default(app, STALE_READS))
    setattr(app, STANDING, standing)
    app.conf.Router = over(KeyRouter, chosen)
    app.table_route = partial(table_route, app.table_route)
    if standing.bound_s > 0:
        app._extra_services.append(standing)
        for setting in ("Table", "GlobalTable", "SetTable", "SetGlobalTable"):
            setattr(app.conf, setting, over(ScopedTable, _chosen(app, setting)))


#: Part -> the function that installs the part in an app, in the order of installation.
INSTALLERS: Final[dict[str, Callable[[Any], object]]] = {
    "repairs": repair,
    "restore": restore,
    "driver_assignor": ask_our_assignor,
    "router": forward_requests,
    "weights": provider.install,
    "ledger": ledger.install,
    "follow_up": follow_up.install,
    "cooperative": rebalance_incrementally,
    "reads": answer_requests,
    "metrics": metrics.install,
}


def install(app: Any, parts: Collection[str]) -> None:
    """Install ``parts`` in ``app``, before it creates its consumer and its tables."""
    sensors.install(app)
    for part, installer in INSTALLERS.items():
        if part in parts:
            installer(app)


def _add(app: Any, part: str) -> None:
    """Add ``part``, and make the app create its table manager and consumer with this part."""
    parts, conf = parts_of(app), app.conf
    if TABLES_NAMED not in vars(app):
        setattr(app, TABLES_NAMED, _chosen(app, "TableManager"))
        # Not app.transport.Consumer here: a transport under construction may be reading the
        # settings.
        app._new_consumer = partial(_new_consumer, app, app._new_consumer)
    parts.add(part)
    tables = TABLES.get(frozenset(parts & {"repairs", "restore", "cooperative"}))
    if tables is not None:
        conf.TableManager = over(tables, getattr(app, TABLES_NAMED))


def _new_consumer(app: Any, create: Callable[[], Any]) -> Any:
    """Create the app's consumer with its parts; a consumer of a different driver gets warnings.

    With the repairs, its producer gets the changes of ``consumer/produced_topics.py``.
    """
    parts, transport = parts_of(app), app.transport
    if "driver_assignor" in parts:
        warn_of_memory(app)
    if issubclass(transport.Consumer, driver.Consumer):
        if (consumer := _consumer_of(parts)) is not None:
            _check_thread(transport.Consumer)
            transport.Consumer = over(consumer, transport.Consumer)
        if "repairs" in parts:
            transport.TransactionManager = over(RepairedTransactions, transport.TransactionManager)
    else:
        _take_foreign(transport, parts)
    consumer = create()
    if "repairs" in parts:
        produced_topics.install(app.producer)
    return consumer


def _check_thread(consumer: type) -> None:
    """Raise ConfigError if the app's own consumer makes a thread of a class that it does not name."""
    made = consumer._new_consumer_thread  # type: ignore[attr-defined]
    if made is not driver.Consumer._new_consumer_thread and not (
        issubclass(consumer, (EagerConsumer, AssigningConsumer, IncrementalConsumer))
        or hasattr(consumer, THREAD_NAMED)
    ):
        raise ConfigError(
            f"{consumer.__module__}.{consumer.__qualname__} must name the class of its thread in "
            f"the attribute {THREAD_NAMED}: its _new_consumer_thread() is not called"
        )


def _consumer_of(parts: Collection[str]) -> type | None:
    """Return the consumer class of an app with ``parts``; None for Faust's own."""
    if "cooperative" in parts:
        return IncrementalConsumer
    if "repairs" in parts:
        return EagerConsumer
    return AssigningConsumer if "driver_assignor" in parts else None


def _take_foreign(transport: Any, parts: Collection[str]) -> None:
    """Install the parts that a different driver's consumer allows, and log the missing parts."""
    if "repairs" in parts:
        logger.warning(
            "Records may be lost or repeated at a rebalance: only the consumer of Faust's "
            "aiokafka driver is repaired, and the app uses the driver of %s",
            transport.url,
        )
    if "cooperative" in parts:
        _warn_of_driver(transport.url)
    if {"repairs", "driver_assignor"} & set(parts):
        ours = ForeignConsumer if "repairs" in parts else IgnoresAppAssignor
        transport.Consumer = over(ours, transport.Consumer)


def _has_known_driver(app: Any) -> bool:
    """Return whether the app's future consumer is the consumer of Faust's aiokafka driver."""
    try:
        return issubclass(by_url(_chosen(app, "broker_consumer")[0]).Consumer, driver.Consumer)
    except ImportError:  # the app itself raises this when it starts
        return False


def _warn_of_driver(urls: Any) -> None:
    logger.warning(
        "Rebalances are eager and stop all partitions: cooperative rounds need Faust's aiokafka "
        "driver, not the driver of %s",
        ", ".join(map(str, urls)) if isinstance(urls, list) else urls,
    )


def _is_in_use(app: Any) -> bool:
    """Return whether the app has created an object that a part would replace."""
    return app._consumer is not None or "tables" in vars(app)


def _chosen(app: Any, setting: str) -> Any:
    """Return a setting's value without Faust's bookkeeping, which would mark it as in use."""
    return object.__getattribute__(app.conf, setting)
