"""``faust-assigner serve``: runs one instance until SIGTERM or SIGINT, then stops cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable

from faust_assigner.service.errors import StoreError
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.server.discovery import KafkaTopics
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.metrics import PrometheusMetrics
from faust_assigner.service.server.options import Options
from faust_assigner.service.server.server import AssignerServer
from faust_assigner.service.store.access import EtcdAccess
from faust_assigner.service.store.base import Store
from faust_assigner.service.store.etcd import EtcdStore, loses_leases
from faust_assigner.service.store.memory import MemoryStore
from faust_assigner.service.tasks import cancel_and_wait

logger = logging.getLogger(__name__)


def serve(options: Options, say: Callable[[str], None]) -> None:
    """Run one instance until a signal ends it.

    Raises ConfigError, OSError or StoreError before the instance listens.
    """
    options.check_files()
    logging.basicConfig(
        level=options.server.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    asyncio.run(_serve(options, say))


async def _serve(options: Options, say: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running(options) as (port, metrics_port, health_port):
        host = options.server.bind[0]
        if options.server.metrics:
            say(f"metrics on http://{options.server.metrics[0]}:{metrics_port}/metrics")
        if options.server.health:
            say(f"health probes on {options.server.health[0]}:{health_port}")
        say(f"listening on {host}:{port}")
        await stop.wait()
        say("stopping")


@contextlib.asynccontextmanager
async def running(options: Options) -> AsyncIterator[tuple[int, int, int]]:
    """Run an instance; yield its port, the metrics' port and the probes' port (0: no port)."""
    said = options.server
    async with contextlib.AsyncExitStack() as ends:
        metrics = PrometheusMetrics(said.groups)
        metrics_port = 0
        if said.metrics:
            metrics_port = ends.enter_context(metrics.served(*said.metrics))
        store = _open_store(options, metrics, ends)
        kafka = KafkaTopics(said.kafka) if said.kafka else None
        if kafka is not None:
            ends.push_async_callback(kafka.close)
        counts = {name: metrics.of(name) for name in options.groups}
        nodes = {
            name: AssignerNode(
                store,
                settings,
                node_id=said.node or f"{socket.gethostname()}-{os.getpid()}",
                topics=topics,
                count_partitions=kafka.count if kafka else None,
                metrics=counts[name],
            )
            for name, (settings, topics) in options.groups.items()
        }
        groups = Groups(nodes)
        outer = AssignerServer(groups, options)
        await groups.start()
        ends.push_async_callback(outer.stop)
        await _check_version(store)
        for name, node in nodes.items():
            measuring = asyncio.create_task(
                counts[name].follow(node.condition), name=f"assigner-metrics {name}"
            )
            ends.push_async_callback(cancel_and_wait, measuring)
        port = await outer.start()
        yield port, metrics_port, outer.health_port


async def _check_version(store: Store) -> None:
    """Warn if etcd's release has the bug that ends leases of living consumers."""
    if not isinstance(store, EtcdStore):
        return
    try:
        version = await store.version()
    except StoreError as error:
        logger.info("Could not read etcd's version to check it for a lease bug: %s", error)
        return
    if loses_leases(version):
        logger.warning(
            "etcd %s may end the registrations of living consumers after its leader was paused; "
            "use 3.5.13, 3.4.31 or a later release",
            version,
        )


def _open_store(
    options: Options, metrics: PrometheusMetrics, ends: contextlib.AsyncExitStack
) -> Store:
    """Open etcd if endpoints are given, else a store in memory."""
    said = options.server
    if not said.etcd:
        # Begin at a high revision: hand-off ids are revisions, and an id from the previous process
        # must match no new hand-off.
        return MemoryStore(first_revision=int(time.time() * 1000))
    access = EtcdAccess(
        endpoints=said.etcd,
        ca=said.etcd_ca or None,
        certificate=said.etcd_cert or None,
        key=said.etcd_key or None,
        user=said.etcd_user or None,
        password=said.etcd_password or None,
    )
    store = EtcdStore(access, observe=metrics.store_call)
    ends.push_async_callback(store.close)
    return store
