"""Switches the ledger on: ``FAUST_ASSIGNER_LEDGER=DIR``, or ``faust.App(faust_assigner_ledger=DIR)``.

``FAUST_ASSIGNER_LEDGER``             the folder; each process writes a file of its own there
``FAUST_ASSIGNER_LEDGER_FILE_BYTES``  a file is rotated at this size, 64 MiB unless given
``FAUST_ASSIGNER_LEDGER_BYTES``       all of the folder's ledger files together, 1 GiB unless given
``FAUST_ASSIGNER_LEDGER_SAMPLE_S``    seconds between two samples of a partition, 30 unless given
``FAUST_ASSIGNER_DEPLOY``             a name for this release; the history compares releases by it

The leader writes its decisions, every worker its recoveries and the samples of its partitions.
"""

from __future__ import annotations

import math
import os
import socket
from typing import Any

from mode import get_logger

from faust_assigner.app.ledger.files import FILE_BYTES, TOTAL_BYTES, LedgerFiles
from faust_assigner.app.ledger.sensor import SAMPLE_S, LedgerSensor
from faust_assigner.app.settings import _setting
from faust_assigner.errors import ConfigError

logger = get_logger(__name__)

SWITCH = "FAUST_ASSIGNER_LEDGER"
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
    folder = _setting(app, SWITCH)
    if folder in (None, ""):
        return None
    files = LedgerFiles(
        str(folder), f"{app.conf.id}-{socket.gethostname()}-{os.getpid()}",
        file_bytes=int(_positive(app, "FAUST_ASSIGNER_LEDGER_FILE_BYTES", FILE_BYTES)),
        total_bytes=int(_positive(app, "FAUST_ASSIGNER_LEDGER_BYTES", TOTAL_BYTES)),
    )
    sample_s = _positive(app, "FAUST_ASSIGNER_LEDGER_SAMPLE_S", SAMPLE_S)
    return LedgerSensor(app, files, config=_config(app), sample_s=sample_s)


def _positive(app: Any, name: str, default: float) -> float:
    value = _setting(app, name)
    if value in (None, ""):
        return default
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise ConfigError(f"{name} must be a number above 0, got {value!r}")
    return number


def _config(app: Any) -> dict[str, str]:
    """What a decision's row says of how the app was set up."""
    from faust_assigner import __version__

    config = {"faust_assigner": __version__, "app_version": str(app.conf.version)}
    deploy = _setting(app, "FAUST_ASSIGNER_DEPLOY")
    if deploy not in (None, ""):
        config["deploy"] = str(deploy)
    return config
