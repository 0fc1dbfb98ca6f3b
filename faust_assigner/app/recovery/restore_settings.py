"""An app's connection and restore settings, read from its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth, server_list

from faust_assigner.app.recovery.from_snapshots import sweep_scratch
from faust_assigner.app.recovery.restore_task import Settings
from faust_assigner.app.recovery.unreadable import unreadable_of
from faust_assigner.app.settings import read_or_default
from faust_assigner.settings.table import BATCHED_REPLAY, SNAPSHOTS
from faust_assigner.snapshots.kafka_requests import Connection

if TYPE_CHECKING:
    from faust.app import App


def connection_of(app: App) -> Connection:
    """Return the app's connection to its cluster, read from the app's configuration only."""
    conf, transport = app.conf, app.transport
    return {
        "bootstrap_servers": server_list(transport.url, transport.default_port),
        "client_id": f"{conf.broker_client_id}-restore",
        "request_timeout_ms": int(conf.broker_request_timeout * 1000),
        **credentials_to_aiokafka_auth(conf.broker_credentials, conf.ssl_context),
    }


def settings_of(app: App) -> Settings:
    """Return the app's connection and restore settings; remove old scratch folders."""
    folder = Path(app.conf.tabledir)
    sweep_scratch(folder)
    return Settings(
        read_or_default(app, SNAPSHOTS),
        read_or_default(app, BATCHED_REPLAY),
        connection_of(app),
        "read_committed" if app.in_transaction else "read_uncommitted",
        folder,
        unreadable_of(app),
    )
