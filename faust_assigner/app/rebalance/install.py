"""Installs cooperative rounds in one app: setting ``COOPERATIVE`` of :mod:`faust_assigner.settings.table`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from faust.transport import by_url
from faust.transport.drivers import aiokafka as driver
from mode import get_logger

from faust_assigner.app.consumer import lanes
from faust_assigner.app.host.mixing import mixed
from faust_assigner.app.membership import leave
from faust_assigner.app.rebalance.incremental import HandsOver
from faust_assigner.app.recovery.by_partition import TablesByState
from faust_assigner.app.recovery.loop import SteadyTables
from faust_assigner.app.recovery.restoring import RestoringTables
from faust_assigner.app.settings import read_or_default
from faust_assigner.app.transactions.incremental import LetsGo
from faust_assigner.settings.table import COOPERATIVE

logger = get_logger(__name__)


def install(app: Any) -> None:
    """Have ``app`` take part in cooperative rounds; to be called after the repairs and the restore.

    Where one of them is missing, or the driver is another, the app's rounds are eager, which is said.
    """
    if not read_or_default(app, COOPERATIVE):
        logger.info("Rebalances are eager, each stops all partitions: %s is off", COOPERATIVE.name)
        return
    # Read past the settings' own bookkeeping, which takes a setting that was read for one in use.
    tables = object.__getattribute__(app.conf, "TableManager")
    if issubclass(tables, TablesByState):
        return
    fits = issubclass(tables, SteadyTables) and issubclass(tables, RestoringTables)
    if app._consumer is not None or "tables" in vars(app) or not fits:
        logger.warning(
            "Rebalances are eager, each stops all partitions: cooperative rounds need the repairs "
            "and the batched replay, installed before the app is in use"
        )
        return
    if not _has_known_driver(app):
        _warn_of_driver(app.conf.broker_consumer)
        return
    app.conf.TableManager = mixed(TablesByState, into=tables)
    leave.install(app)
    lanes.install(app)
    app._new_consumer = partial(_new_consumer, app, app._new_consumer)


def _new_consumer(app: Any, create: Callable[[], Any]) -> Any:
    transport = app.transport
    if issubclass(transport.Consumer, driver.Consumer):
        transport.Consumer = mixed(HandsOver, into=transport.Consumer)
        transport.TransactionManager = mixed(LetsGo, into=transport.TransactionManager)
    else:
        _warn_of_driver(transport.url)
    return create()


def _has_known_driver(app: Any) -> bool:
    """Whether the app's consumer will be the one of Faust's aiokafka driver; it is not made yet."""
    urls = object.__getattribute__(app.conf, "broker_consumer")
    try:
        return issubclass(by_url(urls[0]).Consumer, driver.Consumer)
    except ImportError:  # the app itself will say so when it starts
        return False


def _warn_of_driver(urls: Any) -> None:
    logger.warning(
        "Rebalances are eager, each stops all partitions: cooperative rounds need Faust's "
        "aiokafka driver, not the one of %s",
        ", ".join(map(str, urls)) if isinstance(urls, list) else urls,
    )
