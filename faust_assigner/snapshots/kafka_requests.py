"""Runs requests to Kafka from synchronous code, and separates retriable from permanent errors."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError

from faust_assigner.errors import TryAgain
from faust_assigner.snapshots.manifest import SnapshotError

T = TypeVar("T")
Connection = Mapping[str, Any]

#: The connection settings that decide about access to a broker.
_ENTRY = (
    "ssl_context",
    "security_protocol",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_oauth_token_provider",
    "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name",
)
_KNOCK_TIMEOUT_MS = 3_000


class UnreachableError(SnapshotError, TryAgain):
    """Kafka did not answer; a retry may succeed."""

    exit_code = TryAgain.exit_code


class RefusedByKafka(SnapshotError):
    """Kafka refused the request: a wrong password or certificate, a missing right, an impossible request."""


def run_request(connection: Connection, question: Coroutine[object, None, T]) -> T:
    """Return the answer to ``question``; raises UnreachableError or RefusedByKafka for aiokafka's errors."""
    try:
        return asyncio.run(question)
    except (KafkaError, TimeoutError) as error:
        raise asyncio.run(_explain_error(connection, error)) from error


async def _explain_error(connection: Connection, error: Exception) -> SnapshotError:
    place = ",".join(connection["bootstrap_servers"])
    if isinstance(error, KafkaConnectionError):
        # aiokafka reports a refused login as an unreachable broker: connect again for the real reason.
        refusal = await find_connection_error(connection)
        if refusal is not None:
            return RefusedByKafka(f"{place}: {type(refusal).__name__}: {refusal}")
        return UnreachableError(f"{place}: {error}")
    kind = UnreachableError if is_retriable(error) else RefusedByKafka
    return kind(f"{place}: {type(error).__name__}: {error}")


def is_retriable(error: Exception) -> bool:
    """Return whether a later request may succeed."""
    return isinstance(error, TimeoutError) or bool(getattr(error, "retriable", False))


async def find_connection_error(connection: Connection) -> Exception | None:
    """Return the reason of a refused connection; None if no broker can be reached."""
    entry = {name: connection[name] for name in _ENTRY if name in connection}
    for host, port, _ in collect_hosts(connection.get("bootstrap_servers", "localhost")):
        try:
            door = await create_conn(host, port, request_timeout_ms=_KNOCK_TIMEOUT_MS, **entry)
        except (KafkaConnectionError, TimeoutError):
            continue
        except (ssl.SSLError, KafkaError) as error:
            return error
        except OSError:
            continue
        door.close()
    return None
