"""Compare property names with the names of Kafka's clients, to report misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from logging import getLogger
from types import MappingProxyType
from typing import Final

from faust_assigner.errors import ConfigError

logger = getLogger(__name__)

#: Property names of the Java clients 3.9 to 4.4: producers, consumers and admin clients.
_NAMES: Final = """
    acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset
    batch.size bootstrap.controllers bootstrap.resolve.timeout.ms bootstrap.servers buffer.memory
    buffer.memory.allocation.strategy check.crcs client.dns.lookup client.id client.rack
    compression.gzip.level compression.lz4.level compression.type compression.zstd.level config.providers
    connections.max.idle.ms default.api.timeout.ms delivery.timeout.ms enable.auto.commit
    enable.idempotence enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms
    fetch.min.bytes group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
    interceptor.classes isolation.level key.deserializer key.serializer linger.ms max.block.ms
    max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    max.request.size metadata.cluster.check.enable metadata.max.age.ms metadata.max.idle.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys partitioner.rack.aware receive.buffer.bytes reconnect.backoff.max.ms
    reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    sasl.mechanism sasl.password sasl.username security.protocol security.providers send.buffer.bytes
    session.timeout.ms share.acknowledgement.mode share.acquire.mode
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.cipher.suites
    ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
    ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
    ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
    ssl.truststore.type transaction.timeout.ms transaction.two.phase.commit.enable transactional.id
    value.deserializer value.serializer
"""
_KNOWN: Final = frozenset(_NAMES.split())
#: Each property with one of these prefixes is accepted: users and new releases add such names.
_OPEN: Final = ("config.providers.", "sasl.oauthbearer.")
#: librdkafka's property name -> the equivalent property of Kafka's clients.
_LIBRDKAFKAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "metadata.broker.list": "bootstrap.servers",
        "ssl.ca.location": "ssl.truststore.location with ssl.truststore.type=PEM",
        "ssl.ca.pem": "ssl.truststore.certificates",
        "ssl.certificate.location": "ssl.keystore.location with ssl.keystore.type=PEM",
        "ssl.certificate.pem": "ssl.keystore.certificate.chain",
        "ssl.key.location": "ssl.keystore.location with ssl.keystore.type=PEM",
        "ssl.key.pem": "ssl.keystore.key",
    }
)
#: An unknown name with at least this similarity (0 to 1) to a name of Kafka counts as misspelled.
#: A lower limit would refuse schema.registry.ssl.truststore.location, which is a correct name.
_SIMILAR: Final = 0.8


def check_names(names: Iterable[str], source: str) -> None:
    """Check the names of properties from ``source``, a file or the environment.

    Raises ConfigError for a name that is similar to a name of Kafka, and for a name of librdkafka.
    Any other unknown name is logged as a warning, because vendors add properties.
    """
    for name in sorted(set(names) - _KNOWN):
        if name.startswith(_OPEN):
            continue
        nearest = _LIBRDKAFKAS.get(name) or _similar(name)
        if nearest:
            raise ConfigError(f"{source}: unknown property {name!r}; did you mean {nearest}?")
        logger.warning(
            "%s: %r is not a property of Kafka's clients; it has no effect", source, name
        )


def _similar(name: str) -> str | None:
    found = difflib.get_close_matches(
        name.lower().replace("_", "."), sorted(_KNOWN), n=1, cutoff=_SIMILAR
    )
    return found[0] if found else None
