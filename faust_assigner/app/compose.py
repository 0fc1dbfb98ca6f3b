"""The composition of one app's parts: the classes that replace Faust's, then the services and hooks.

One class of this package replaces each class of Faust that needs changes. No object changes its class
later. An app may have its own subclasses of Faust's classes. Then the class in use derives from this
package's class and from the app's class (:func:`over`).

- Settings of the app contain its classes: ``Agent``, ``TableManager``, ``Stream``, ``Router``,
  ``Table``, ``GlobalTable``, ``SetTable`` and ``SetGlobalTable``. A class that does not derive from Faust's
  class is refused with a ConfigError.
- Class attributes of the transport contain the classes of the consumer and the transaction manager.
  The consumer's attribute ``thread_class`` contains the class of its thread. A consumer class that
  overrides ``_new_consumer_thread()`` without this attribute is refused.
- If the app already has a flow control, the new flow control shares its state.
- An app with a different driver than aiokafka's stays unrepaired, which is logged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from faust.agents.replies import ReplyConsumer
from faust.transport import by_url
from faust.transport.drivers import aiokafka as driver
from faust.types.enums import ProcessingGuarantee
from mode import get_logger

from faust_assigner.app import sensors
from faust_assigner.app.consumer import delivery, produced_topics
from faust_assigner.app.consumer.agents import LastingAgent
from faust_assigner.app.consumer.fetching import FlowControl
from faust_assigner.app.consumer.replies import Replies, read_replies_once
from faust_assigner.app.consumer.stream_take import BatchingStream
from faust_assigner.app.host.check import demand
from faust_assigner.app.host.mixing import over, parts_of
from faust_assigner.app.ledger import install as ledger
from faust_assigner.app.membership import leave
from faust_assigner.app.membership.driver_assignor import IgnoresAppAssignor, warn_of_memory
from faust_assigner.app.membership.watchdog import RepairedTables
from faust_assigner.app.metrics import install as metrics
from faust_assigner.app.queries.forwarding import AllowlistRouter
from faust_assigner.app.queries.reading import table_route
from faust_assigner.app.queries.replica_status import ReplicaStatus
from faust_assigner.app.queries.router import MARK as STANDING
from faust_assigner.app.queries.router import KeyRouter
from faust_assigner.app.rebalance import follow_up
from faust_assigner.app.rebalance.consumer import RepairedConsumer
from faust_assigner.app.rebalance.consumer_thread import THREAD_NAMED, AssigningConsumer
from faust_assigner.app.settings import read_or_default
from faust_assigner.app.tables.scope import ScopedTable
from faust_assigner.app.transactions.manager import PartitionTransactions
from faust_assigner.app.weights import provider
from faust_assigner.errors import ConfigError
from faust_assigner.settings.table import COOPERATIVE, SNAPSHOTS, STALE_READS_S

if TYPE_CHECKING:
    from faust.app import App
    from faust.types.transports import ConsumerT

logger = get_logger(__name__)


def repair(app: App) -> None:
    """Repair ``app``'s tables, streams, flow and consumer; a second call has no effect.

    Call this before the app creates its consumer and its tables; the fixup calls it when the
    settings are final. After that, the function only logs that it is too late for the repairs. Other
    apps of the process are not changed. Raises HostMismatch.
    """
    if "repairs" in parts_of(app) or "repairs came late" in parts_of(app):
        return
    if _is_in_use(app):
        parts_of(app).add("repairs came late")
        logger.warning(
            "Records may be lost or repeated at a rebalance: the app was in use before the "
            "repairs of Faust's rebalance were installed; install faust_assigner with pip, so "
            "that Faust finds its fixup"
        )
        return
    if not _has_known_driver(app):
        logger.warning(
            "Records may be lost or repeated at a rebalance, and rebalances stop all partitions: "
            "the repairs need Faust's aiokafka driver, and the app uses the driver of %s",
            _broker_urls(app),
        )
        return
    demand({"repairs"})
    if not read_or_default(app, COOPERATIVE):
        logger.info("Rebalances are eager and stop all partitions: %s is off", COOPERATIVE.name)
    # Do not read app.flow_control: Faust would create its own, bound to the current event loop.
    app.flow_control = FlowControl(vars(app).get("flow_control"))
    is_exact = _setting_value(app, "processing_guarantee") == ProcessingGuarantee.EXACTLY_ONCE
    app.conf.Stream = over(BatchingStream, _setting_value(app, "Stream"))
    app.conf.TableManager = over(RepairedTables, _setting_value(app, "TableManager"))
    app.conf.Agent = over(LastingAgent, _setting_value(app, "Agent"))
    leave.install(app)
    # Without a beacon: Faust adds the service to the app's tree when it starts.
    app._reply_consumer = over(Replies, ReplyConsumer)(app)
    read_replies_once(app)
    delivery.install_lanes(app, is_exact=is_exact)
    _add(app, "repairs")


def ask_our_assignor(app: App) -> None:
    """Make ``app``'s consumer join with the app's assignor, even without tables and standbys.

    For such an app Faust uses aiokafka's round-robin assignor.
    """
    if app._consumer is not None:
        logger.warning(
            "Too late to install the app's assignor: the app's consumer exists already; without "
            "tables and standbys, partitions are assigned by round-robin"
        )
        return
    _add(app, "driver_assignor")


def forward_requests(app: App) -> None:
    """Make ``app`` forward requests for keys to allowed URLs only, from the first request on.

    The setting ``FAUST_ASSIGNER_URLS`` lists the allowed URLs.
    """
    if not issubclass(
        chosen := _setting_value(app, "Router"), KeyRouter
    ):  # a KeyRouter checks the allowlist itself
        app.conf.Router = over(AllowlistRouter, chosen)


def answer_requests(app: App) -> None:
    """Make ``app`` answer requests for keys as an owner, or from copies (setting ``STALE_READS_S``).

    No effect without the repairs, which record the restored partitions. Call this after
    :func:`repair` and before :func:`forward_requests`.
    """
    chosen = _setting_value(app, "Router")
    if issubclass(chosen, KeyRouter) or "repairs" not in parts_of(app):
        return
    standing = ReplicaStatus(app, read_or_default(app, STALE_READS_S))
    setattr(app, STANDING, standing)
    app.conf.Router = over(KeyRouter, chosen)
    app.table_route = partial(table_route, app.table_route)
    if standing.bound_s > 0:
        app.service(standing)
        for setting in ("Table", "GlobalTable", "SetTable", "SetGlobalTable"):
            setattr(app.conf, setting, over(ScopedTable, _setting_value(app, setting)))


#: Part -> the function that installs the part in an app, in the order of installation.
INSTALLERS: Final[dict[str, Callable[[App], object]]] = {
    "repairs": repair,
    "driver_assignor": ask_our_assignor,
    "weights": provider.install,
    "ledger": ledger.install,
    "follow_up": follow_up.install,
    "reads": answer_requests,
    "router": forward_requests,
    "metrics": metrics.install,
}


def install(app: App, parts: Collection[str]) -> None:
    """Install ``parts`` in ``app``; call this before the app creates its consumer and its tables."""
    sensors.install(app)
    for part, installer in INSTALLERS.items():
        if part in parts:
            installer(app)
    if "repairs" not in parts_of(app) and read_or_default(app, SNAPSHOTS):
        logger.warning(
            "%s is not used: Faust alone restores the tables of an app without the repairs",
            SNAPSHOTS.name,
        )


def _add(app: App, part: str) -> None:
    """Note ``part`` as installed, and make the app create its consumer with this part."""
    parts = parts_of(app)
    if not parts & {"repairs", "driver_assignor"}:
        # Do not read app.transport here: a transport under construction may be reading the settings.
        app._new_consumer = partial(_new_consumer, app, app._new_consumer)
    parts.add(part)


def _new_consumer(app: App, create: Callable[[], ConsumerT]) -> ConsumerT:
    """Create the app's consumer with its parts; a consumer of a different driver logs a warning.

    With the repairs, the app's producer gets the changes of ``consumer/produced_topics.py``. Raises
    ConfigError if the app got a different driver after the repairs.
    """
    parts, transport = parts_of(app), app.transport
    if "driver_assignor" in parts:
        warn_of_memory(app)
    if issubclass(transport.Consumer, driver.Consumer):
        ours = RepairedConsumer if "repairs" in parts else AssigningConsumer
        _check_thread_class(transport.Consumer)
        transport.Consumer = over(ours, transport.Consumer)
        if "repairs" in parts:
            transport.TransactionManager = over(PartitionTransactions, transport.TransactionManager)
    elif "repairs" in parts:
        raise ConfigError(
            f"the app got the driver of {transport.url} after its configuration: name the driver "
            "in "
            "the setting broker, or set FAUST_ASSIGNER_REPAIRS=0"
        )
    else:
        transport.Consumer = over(IgnoresAppAssignor, transport.Consumer)
    consumer = create()
    if "repairs" in parts:
        produced_topics.install(app.producer)
    return consumer


def _check_thread_class(consumer: type) -> None:
    """Raise ConfigError if the app's own consumer creates its thread without ``thread_class``."""
    made = consumer._new_consumer_thread  # type: ignore[attr-defined]
    if made is not driver.Consumer._new_consumer_thread and not (
        issubclass(consumer, (RepairedConsumer, AssigningConsumer))
        or hasattr(consumer, THREAD_NAMED)
    ):
        raise ConfigError(
            f"{consumer.__module__}.{consumer.__qualname__} must name the class of its thread in "
            f"the attribute {THREAD_NAMED}: its _new_consumer_thread() is not called"
        )


def _has_known_driver(app: App) -> bool:
    """Return whether the app's consumer will be the consumer of Faust's aiokafka driver."""
    try:
        return issubclass(
            by_url(_setting_value(app, "broker_consumer")[0]).Consumer, driver.Consumer
        )
    except ImportError:  # the app itself raises this when it starts
        return False


def _broker_urls(app: App) -> str:
    """Return the URLs of the app's brokers, as text."""
    return ", ".join(map(str, _setting_value(app, "broker_consumer")))


def _is_in_use(app: App) -> bool:
    """Return whether the app has created an object that a part would replace."""
    return app._consumer is not None or "tables" in vars(app)


def _setting_value(app: App, setting: str) -> Any:
    """Return a setting's value; a normal read would make Faust mark the setting as in use."""
    return object.__getattribute__(app.conf, setting)
