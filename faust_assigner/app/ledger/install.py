"""Switches the ledger on where the settings ``LEDGER*`` ask for it, see :mod:`faust_assigner.settings.table`.

The leader writes its decisions, every worker its recoveries and the samples of its partitions.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from mode import get_logger

from faust_assigner.app.ledger.files import LedgerFiles
from faust_assigner.app.ledger.sensor import LedgerSensor
from faust_assigner.app.settings import read
from faust_assigner.errors import ConfigError
from faust_assigner.settings import table

logger = get_logger(__name__)

MARK = "_faust_assigner_ledger"


def install(app: Any) -> LedgerSensor | None:
    """Add the ledger's sensor to ``app`` if its settings ask for one; a second call does nothing.

    Never raises and touches neither assignor nor tables: those are listened to once the app starts.
    A setting that cannot be used is said, and the ledger stays off.
    """
    present: LedgerSensor | None = getattr(app, MARK, None)
    if present is not None:
        return present
    try:
        sensor = _sensor(app)
    except ConfigError as error:
        logger.error("The ledger stays off: %s", error)
        return None
    if sensor is not None:
        setattr(app, MARK, sensor)
        app.sensors.add(sensor)
    return sensor


def _sensor(app: Any) -> LedgerSensor | None:
    folder = read(app, table.LEDGER)
    if folder is None:
        return None
    files = LedgerFiles(
        folder,
        f"{app.conf.id}-{socket.gethostname()}-{os.getpid()}",
        file_bytes=read(app, table.LEDGER_FILE_BYTES),
        total_bytes=read(app, table.LEDGER_BYTES),
    )
    return LedgerSensor(app, files, config=_config(app), sample_s=read(app, table.LEDGER_SAMPLE_S))


def _config(app: Any) -> dict[str, str]:
    """What a decision's row says of how the app was set up."""
    from faust_assigner import __version__

    config = {"faust_assigner": __version__, "app_version": str(app.conf.version)}
    deploy = read(app, table.DEPLOY)
    return config if deploy is None else {**config, "deploy": deploy}
