"""The document at ``/assignor/status``: this worker's part of ``faust-assigner status``.

It shows no secrets: settings that are URLs lose user, password and query. See
:mod:`faust_assigner.wire.worker_status` for its fields.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from faust.tables.sets import SetTable
from mode.utils.times import want_seconds
from yarl import URL

from faust_assigner import __version__
from faust_assigner.app import settings
from faust_assigner.app.consumer.waits import waits_of
from faust_assigner.app.host.group_member import kafka_member_id
from faust_assigner.app.metrics.copies import Lag
from faust_assigner.app.metrics.probes import live_problems
from faust_assigner.app.metrics.stalled import StalledPartition
from faust_assigner.app.rebalance.awaited import by_topic
from faust_assigner.app.rebalance.table_facts import facts_of
from faust_assigner.app.tables.files import corrupt_folders
from faust_assigner.settings.table import SETTINGS
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.worker_status import (
    CORRUPT_FOLDERS,
    CopyLag,
    Numbers,
    Peer,
    Peers,
    Standstill,
    TableStatus,
    WaitUnderWay,
    WorkerStatus,
)

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.types.tuples import TP

#: Faust's own settings that must fit together, or must be equal on all workers.
FAUSTS: Final = (
    "broker_commit_interval",
    "broker_heartbeat_interval",
    "broker_max_poll_interval",
    "broker_rebalance_timeout",
    "broker_request_timeout",
    "broker_session_timeout",
    "consumer_auto_offset_reset",
    "processing_guarantee",
    "store",
    "stream_wait_empty",
    "table_standby_replicas",
    "topic_partitions",
    "topic_disable_leader",
)


def status_of(
    app: AppT,
    *,
    now: float,
    still: Sequence[StalledPartition],
    lags: Mapping[TP, Lag],
    not_ready: Sequence[str],
    is_leader: bool,
    round_age_s: float | None,
    disk: tuple[int, int] | None,
    sizes: Mapping[TP, int],
) -> WorkerStatus:
    """Return this worker's status without a request to a broker. Cost: O(partitions here).

    ``disk`` is the free space and the size of the tables' file system, ``sizes`` the bytes of each
    changelog partition kept here.
    """
    assignor, conf, answer = app.assignor, app.conf, app.assignor._memory.answer
    remaining, remaining_s = _left_to_restore(app)
    return WorkerStatus(
        app=str(conf.id),
        member_id=kafka_member_id(app),
        url=str(conf.canonical_url),
        instance_id=settings.or_default(settings.instance_id, app, None),
        host=socket.gethostname(),
        pid=os.getpid(),
        software=__version__,
        faust=_version("faust-streaming"),
        aiokafka=_version("aiokafka"),
        python=platform.python_version(),
        app_version=str(conf.version),
        generation=assignor.generation,
        decision_id=assignor.decision_id,
        outcome=None if answer is None else answer.outcome,
        is_leader=is_leader,
        is_cooperative=assignor.cooperative,
        is_rebalancing=bool(app.rebalancing),
        is_leaving=bool(app.should_stop or assignor.leaves),
        round_age_s=round_age_s,
        not_ready=tuple(not_ready),
        not_live=tuple(live_problems(app)),
        actives=_numbers_by_topic(assignor.assigned_actives()),
        standbys=_numbers_by_topic(assignor.assigned_standbys()),
        awaited=_numbers_by_topic(assignor.awaited.tps),
        promised={} if answer is None else {t: tuple(runs) for t, runs in answer.promised.items()},
        global_changelogs=tuple(sorted(facts_of(app).globals_)),
        standing=_standstills(still, now),
        copies=_copy_lags(lags),
        waits=_current_waits(app),
        restore_remaining_records=remaining,
        restore_remaining_s=remaining_s,
        disk_free_bytes=None if disk is None else disk[0],
        disk_size_bytes=None if disk is None else disk[1],
        tables=_table_statuses(app, sizes),
        settings=settings_of(app),
        counters=_counters(app),
    )


def _standstills(still: Sequence[StalledPartition], now: float) -> tuple[Standstill, ...]:
    return tuple(
        Standstill(
            topic=one.tp.topic,
            partition=one.tp.partition,
            reason=one.reason,
            seconds=round(now - one.since, 1),
        )
        for one in still
    )


def _copy_lags(lags: Mapping[TP, Lag]) -> tuple[CopyLag, ...]:
    return tuple(
        CopyLag(
            topic=tp.topic,
            partition=tp.partition,
            records=records,
            # After the first measurement the age of a copy's lag is not known.
            seconds=round(age, 1) if age or not records else None,
        )
        for tp, (records, age) in sorted(lags.items())
    )


def _current_waits(app: AppT) -> tuple[WaitUnderWay, ...]:
    return tuple(
        WaitUnderWay(what=wait.what, step=wait.step, seconds=round(wait.total_s, 1))
        for wait in waits_of(app).under_way()
    )


def _left_to_restore(app: AppT) -> tuple[int, float | None]:
    """Return the records that a recovery still reads, and the expected seconds if there are any."""
    progress = getattr(app.tables.recovery, "progress", None)
    figures = None if progress is None else progress.figures()
    if figures is None or not figures.remaining:
        return 0, None
    return figures.remaining, figures.eta_s


def _counters(app: AppT) -> dict[str, int]:
    found = {**app.assignor.counters, CORRUPT_FOLDERS: corrupt_folders(app)}
    return {name: int(count) for name, count in sorted(found.items())}


@cache
def _version(distribution: str) -> str:
    return version(distribution)  # cached, because this call reads a file


def _numbers_by_topic(tps: Iterable[TP]) -> Numbers:
    return {topic: tuple(numbers) for topic, numbers in by_topic(tps).items()}


def _table_statuses(app: AppT, sizes: Mapping[TP, int]) -> tuple[TableStatus, ...]:
    found = []
    for topic, table in sorted(dict(app.tables._changelogs).items()):
        window = table.window
        found.append(
            TableStatus(
                name=str(table.name),
                changelog=topic,
                store=URL(str(table._store or app.conf.store)).scheme,
                is_global=bool(table.is_global),
                is_windowed=window is not None,
                is_set=isinstance(table, SetTable),
                uses_partitioner=bool(table.use_partitioner),
                expires_s=None if window is None else want_seconds(window.expires or 0) or None,
                bytes={
                    str(tp.partition): size
                    for tp, size in sorted(sizes.items())
                    if tp.topic == topic
                },
            )
        )
    return tuple(found)


def settings_of(app: AppT) -> dict[str, str]:
    """Return this package's settings by environment name, and Faust's settings in ``FAUSTS``.

    Default values are included: workers of two versions may have two defaults.
    """
    found = {
        setting.name: setting_text(settings.read_or_default(app, setting))
        for setting in SETTINGS
        if setting.is_keyword
    }
    return found | {name: setting_text(getattr(app.conf, name, None)) for name in FAUSTS}


def setting_text(value: object) -> str:
    """Return a setting's value as text; a URL loses its user, password and query."""
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return ",".join(map(setting_text, value))
    text = str(getattr(value, "value", value))  # an enum is shown by its value
    if "://" not in text:
        return text
    try:
        return str(URL(text).with_user(None).with_query(None).with_fragment(None))
    except ValueError:
        return "an invalid URL"


def peers_of(app: AppT) -> Peers:
    """Return all members of this worker's last round, as its leader named them."""
    assignor = app.assignor
    directory: Directory = assignor._memory.directory
    named = dict(zip(directory.urls, directory.instances, strict=False))
    by_url: dict[str, dict[str, list[int]]] = {url: {} for url in directory.urls}
    for distribution in (assignor.changelog_distribution, assignor.external_topic_distribution):
        for url, topics in distribution.items():
            by_url.setdefault(url, {}).update(topics)
    return Peers(
        app=str(app.conf.id),
        generation=assignor.generation,
        peers=tuple(
            Peer(
                url=url,
                instance_id=named.get(url) or None,
                actives={t: tuple(n) for t, n in sorted(topics.items()) if n},
            )
            for url, topics in sorted(by_url.items())
            if url
        ),
    )
