"""Installs the repairs of Faust's consumer, transactions, tables and flow in one app.

``FAUST_ASSIGNER_REPAIRS=0`` leaves Faust as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from faust.transport.drivers import aiokafka as driver
from faust.types.enums import ProcessingGuarantee
from mode import get_logger

from faust_assigner.app.consumer import produced_topics
from faust_assigner.app.consumer.batches import BatchesInTime, OwnedBatches
from faust_assigner.app.consumer.commits import FinalCommit
from faust_assigner.app.consumer.fetching import FlowControl, SteadyPartitions, Unrepaired
from faust_assigner.app.consumer.room import Lands
from faust_assigner.app.consumer.waits import Waited
from faust_assigner.app.consumer.whole_records import WholeRecords
from faust_assigner.app.host.check import demand
from faust_assigner.app.host.mixing import mixed
from faust_assigner.app.membership.fence import OnlyMembersWrite
from faust_assigner.app.membership.goodbye import LeavesInTime
from faust_assigner.app.membership.watchdog import Watched
from faust_assigner.app.recovery.loop import SteadyTables
from faust_assigner.app.settings import read_or_default
from faust_assigner.app.transactions.manager import OwnTransactions
from faust_assigner.settings.table import REPAIRS

logger = get_logger(__name__)

MARK = "_faust_assigner_repaired"


def install(app: Any) -> None:
    """Repair ``app`` once, unless its settings forbid it.

    To be called before the app creates its consumer and its tables, as the fixup does when the
    settings are known; called later it can only say that it came too late. Other apps of the process
    are not touched.
    """
    if read_or_default(app, REPAIRS):
        repair(app)


def repair(app: Any) -> None:
    """Repair ``app`` whatever its settings; a second call does nothing. Raises HostMismatch."""
    if getattr(app, MARK, False):
        return
    too_late = app._consumer is not None or "tables" in vars(app)
    if not too_late:
        demand({"repairs"})
    setattr(app, MARK, True)
    if too_late:
        logger.warning(
            "Records may be lost or repeated at a rebalance: the app was in use before it could "
            "be repaired; install faust_assigner with pip, so that Faust finds its fixup"
        )
        return
    if "flow_control" in vars(app):
        app.flow_control.__class__ = FlowControl
    else:
        app.flow_control = FlowControl()  # not the app's own, which would fix its event loop now
    # Read past the settings' own bookkeeping, which takes a setting that was read for one in use.
    tables = object.__getattribute__(app.conf, "TableManager")
    app.conf.TableManager = mixed(SteadyTables, Watched, into=tables)
    guarantee = object.__getattribute__(app.conf, "processing_guarantee")
    batches = OwnedBatches if guarantee == ProcessingGuarantee.EXACTLY_ONCE else BatchesInTime
    app.conf.Stream = mixed(batches, into=object.__getattribute__(app.conf, "Stream"))
    # Not app.transport.Consumer at once: the settings may be asked for by a transport in the making.
    app._new_consumer = partial(_new_consumer, app, app._new_consumer)


def _new_consumer(app: Any, create: Callable[[], Any]) -> Any:
    """The app's consumer, repaired; one of another driver as it is, with a warning."""
    transport = app.transport
    if issubclass(transport.Consumer, driver.Consumer):
        transport.Consumer = mixed(
            Lands,
            Waited,
            LeavesInTime,
            OnlyMembersWrite,
            SteadyPartitions,
            WholeRecords,
            FinalCommit,
            into=transport.Consumer,
        )
        transport.TransactionManager = mixed(OwnTransactions, into=transport.TransactionManager)
    else:
        transport.Consumer = mixed(Unrepaired, into=transport.Consumer)
        logger.warning(
            "Records may be lost or repeated at a rebalance: the consumer of %s is not the one of "
            "Faust's aiokafka driver, the only one repaired",
            transport.url,
        )
    consumer = create()
    produced_topics.install(app.producer)
    return consumer
