"""Reads the doctor's facts about an app from its configuration, without starting the app.

The app's module is imported, as ``faust -A`` does, and the app is configured. The parts of this
package are not installed, because they could refuse the app, and the doctor must still check it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faust.cli.base import find_app
from faust.tables.sets import SetTable
from faust.transport import by_url
from faust.transport.drivers import aiokafka as driver
from mode.utils.times import want_seconds

from faust_assigner.app import settings
from faust_assigner.app.fixup import PARTS, Fixup, chose_our_assignor
from faust_assigner.app.host.check import demand
from faust_assigner.app.tables.disk import in_memory, tree_bytes
from faust_assigner.doctor.facts import AppFacts, Table
from faust_assigner.errors import ConfigError, FaustAssignerError, HostMismatch
from faust_assigner.settings import table as settings_table
from faust_assigner.settings.table import SETTINGS

if TYPE_CHECKING:
    from faust.types.app import AppT

#: The most characters of a short value, such as SHLVL's 1. Many instance ids contain such a value
#: by chance, so it counts only if the variable's name indicates the name or number of a worker.
SHORT_CHARS = 2
_NAMING = re.compile(
    r"ORDINAL|INDEX|POD|INSTANCE|WORKER|REPLICA|NODE|NAME|HOST|NUMBER|(^|_)ID($|_)", re.IGNORECASE
)


class AppNotLoaded(FaustAssignerError):
    """Raised if the app's module cannot be imported, or has no app with the given name."""

    exit_code = 2


@contextmanager
def without_parts() -> Iterator[None]:
    """Keep our fixup from changing apps that are configured while the block runs."""
    original = Fixup._when_configured

    def look_only(self: Fixup, app: AppT, **_: object) -> None:
        """Do nothing, in place of the method that installs our parts or refuses the app."""

    Fixup._when_configured = look_only  # type: ignore[method-assign]
    try:
        yield
    finally:
        Fixup._when_configured = original  # type: ignore[method-assign]


def load(name: str) -> AppFacts:
    """Return the facts of the app of ``faust -A NAME``. Raises :class:`AppNotLoaded`."""
    # The module's output is not part of the doctor's answer.
    with without_parts(), redirect_stdout(sys.stderr):
        try:
            app: AppT = find_app(name)
            app.finalize()
            app.discover()
        except Exception as error:
            raise AppNotLoaded(f"-A {name}: {type(error).__name__}: {error}") from error
        except SystemExit as error:
            raise AppNotLoaded(
                f"-A {name}: importing its module calls sys.exit: {error}"
            ) from error
        return facts_of(app)


def facts_of(app: Any) -> AppFacts:
    """Return the facts of a configured app."""
    conf = app.conf
    folder = Path(conf.tabledir)
    return AppFacts(
        app_id=str(conf.id),
        assignor=f"{conf.PartitionAssignor.__module__}:{conf.PartitionAssignor.__name__}",
        is_ours=chose_our_assignor(app),
        has_fixup=any(isinstance(fixup, Fixup) for fixup in app.fixups),
        is_our_driver=_is_our_driver(conf),
        brokers=tuple(str(url.host or "") for url in conf.broker_consumer),
        url=str(conf.canonical_url),
        instance_id=conf.consumer_group_instance_id or None,
        environment=naming_values(os.environ),
        host=os.uname().nodename,
        tables=tuple(_table_facts(app)),
        sources=dict(_source_topics(app)),
        default_partitions=int(conf.topic_partitions),
        wrong_settings=tuple(_wrong_settings(app)),
        misfits=tuple(_host_mismatches()),
        heartbeat_s=float(conf.broker_heartbeat_interval),
        session_s=float(conf.broker_session_timeout),
        poll_s=None
        if conf.broker_max_poll_interval is None
        else float(conf.broker_max_poll_interval),
        rebalance_s=float(conf.broker_rebalance_timeout),
        leave_s=settings.read_or_default(app, settings_table.LEAVE_S),
        replicas=int(conf.table_standby_replicas),
        rack=settings.read_or_default(app, settings_table.RACK),
        is_cooperative=settings.read_or_default(app, settings_table.COOPERATIVE),
        has_repairs=settings.read_or_default(app, settings_table.REPAIRS),
        ledger=_text_or_none(settings.read_or_default(app, settings_table.LEDGER)),
        disk_free_bytes=_free_bytes(folder),
        stores_bytes=tuple(_store_sizes(folder)),
    )


def naming_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables that may make a worker's name unique.

    >>> naming_values({"SHLVL": "1", "POD_INDEX": "4", "LC_NAME": "C.UTF-8"})
    ('4', 'C.UTF-8')
    """
    return tuple(
        value
        for name, value in environment.items()
        if len(value) > SHORT_CHARS or _NAMING.search(name)
    )


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


def _is_our_driver(conf: Any) -> bool:
    try:
        return issubclass(by_url(conf.broker_consumer[0]).Consumer, driver.Consumer)
    except ImportError:
        return False


def _table_facts(app: AppT) -> Iterator[Table]:
    memory = set(in_memory(app))
    for topic, table in sorted(dict(app.tables._changelogs).items()):
        window = table.window
        expires = None if window is None or not window.expires else want_seconds(window.expires)
        yield Table(
            name=str(table.name),
            changelog=topic,
            is_global=bool(table.is_global),
            is_windowed=window is not None,
            is_set=isinstance(table, SetTable),
            uses_partitioner=bool(table.use_partitioner),
            expires_s=expires,
            partitions=table.partitions,
            in_memory=table.name in memory,
        )


def _source_topics(app: AppT) -> Iterator[tuple[str, int | None]]:
    for agent in app.agents.values():
        for topic in getattr(agent.channel, "topics", None) or ():
            yield str(topic), getattr(agent.channel, "partitions", None)


def _wrong_settings(app: AppT) -> Iterator[str]:
    try:
        settings.check_names(app)
    except ConfigError as error:
        yield str(error)
    for setting in SETTINGS:
        if setting.is_keyword:
            try:
                settings.read(app, setting)
            except ConfigError as error:
                yield str(error)
    try:
        settings.instance_id(app)
    except ConfigError as error:
        yield str(error)


def _host_mismatches() -> Iterator[str]:
    try:
        demand({"assignor", *PARTS})
    except HostMismatch as error:
        yield str(error)


def _store_sizes(folder: Path) -> list[int]:
    """Return the sizes of the table partitions; none if another user owns the folder."""
    with suppress(OSError):
        return sorted(tree_bytes(path) for path in folder.glob("*-*.db"))
    return []


def _free_bytes(folder: Path) -> int | None:
    with suppress(OSError):
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return shutil.disk_usage(folder).free
    return None
