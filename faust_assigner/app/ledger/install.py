"""Installs the ledger in an app, unless ``FAUST_ASSIGNER_LEDGER`` is off.

The setting is described in :mod:`faust_assigner.settings.table`. The leader writes its decisions.
Every worker writes its recoveries and the samples of its partitions.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from mode import get_logger

from faust_assigner.app.ledger.files import LedgerFiles
from faust_assigner.app.ledger.sensor import LedgerSensor
from faust_assigner.app.ledger.topic import LedgerTopic
from faust_assigner.app.ledger.writer import LedgerWriter
from faust_assigner.app.settings import read
from faust_assigner.app.weights.provider import connection_of
from faust_assigner.errors import ConfigError
from faust_assigner.settings import table
from faust_assigner.settings.schema import TOPIC

if TYPE_CHECKING:
    from faust.types.app import AppT

logger = get_logger(__name__)

MARK = "_faust_assigner_ledger"


def install(app: AppT) -> LedgerSensor | None:
    """Add the ledger's sensor to ``app`` unless the ledger is off; a second call has no effect.

    Never raises. The sensor connects to the assignor and the tables only when the app starts. An
    invalid setting is logged, and the ledger stays off.
    """
    present: LedgerSensor | None = getattr(app, MARK, None)
    if present is not None:
        return present
    try:
        sensor = _create_sensor(app)
    except ConfigError as error:
        logger.error("The ledger stays off: %s", error)
        return None
    if sensor is not None:
        setattr(app, MARK, sensor)
        app.sensors.add(sensor)
    return sensor


def place_of(app: AppT) -> Path | str | None:
    """Return the app's ledger folder or ``topic:NAME``; None if it is off. Raises ConfigError."""
    said = read(app, table.LEDGER)
    if said is None or said is not table.LEDGER.default:
        return said
    return Path(app.conf.datadir) / said  # the default is relative to the data directory


def _create_sensor(app: AppT) -> LedgerSensor | None:
    place = place_of(app)
    if place is None:
        return None
    name = f"{app.conf.id}-{socket.gethostname()}-{os.getpid()}"
    file_bytes, total_bytes = read(app, table.LEDGER_FILE_BYTES), read(app, table.LEDGER_BYTES)
    writer: LedgerWriter
    if isinstance(place, str):
        writer = LedgerTopic(
            place.removeprefix(TOPIC),
            name,
            lambda: connection_of(app),
            segment_bytes=file_bytes,
            total_bytes=total_bytes,
        )
    else:
        writer = LedgerFiles(place, name, file_bytes=file_bytes, total_bytes=total_bytes)
    return LedgerSensor(
        app, writer, config=_app_config(app), sample_s=read(app, table.LEDGER_SAMPLE_S)
    )


def _app_config(app: AppT) -> dict[str, str]:
    """Return the app's configuration that each decision's row contains."""
    from faust_assigner import __version__

    config = {"faust_assigner": __version__, "app_version": str(app.conf.version)}
    deploy = read(app, table.DEPLOY)
    return config if deploy is None else {**config, "deploy": deploy}
