"""Users and log-in requests: Apache Kafka and the embedded broker answer the same requests alike."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing.kafka import KafkaServer
from tests.support.clients.raw_client import RawClient

HANDSHAKE, AUTHENTICATE, DESCRIBE, ALTER = 17, 36, 50, 51
SHA_256, SHA_512 = 1, 2


def told(bootstrap: str) -> dict[str, Any]:
    """Return the error codes of each request, and the described users."""
    prefix = f"u{uuid.uuid4().hex[:8]}-"
    seen: dict[str, Any] = {}
    with RawClient(bootstrap, 30) as client:

        def upsert(user: str, mechanism: int = SHA_256, iterations: int = 4_096) -> dict[str, Any]:
            return {
                "name": user and prefix + user,
                "mechanism": mechanism,
                "iterations": iterations,
                "salt": b"salt",
                "salted_password": b"x" * 32,
            }

        def remove(user: str, mechanism: int = SHA_256) -> dict[str, Any]:
            return {"name": user and prefix + user, "mechanism": mechanism}

        def alter(step: str, removals: list[Any], upserts: list[Any]) -> None:
            answer = client.call(ALTER, 0, deletions=removals, upsertions=upserts)
            seen[step] = sorted(
                (one.user.removeprefix(prefix), int(one.error_code)) for one in answer.results
            )

        def described(*users: str) -> list[Any]:
            asked = [{"name": prefix + user} for user in users]
            answer = client.call(DESCRIBE, 0, users=asked)
            return sorted(
                (
                    one.user.removeprefix(prefix),
                    int(one.error_code),
                    sorted((info.mechanism, info.iterations) for info in one.credential_infos),
                )
                for one in answer.results
            )

        alter("made twice", [], [upsert("a"), upsert("a", SHA_512, 8_192)])
        alter("made", [], [upsert("a"), upsert("b")])
        alter("made more", [], [upsert("a", SHA_512, 8_192)])
        deadline = time.monotonic() + 60  # Kafka's metadata is applied a moment later
        while len(described("a")[0][2]) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        seen["described"] = described("a", "b", "nobody")
        seen["described twice"] = described("a", "a", "b")
        alter("few iterations", [], [upsert("a", iterations=4_095)])
        alter("many iterations", [], [upsert("a", iterations=16_385)])
        alter("unknown mechanism", [], [upsert("a", 9), upsert("b", 0)])
        alter("no name", [], [upsert("")])
        alter("no such one", [remove("nobody"), remove("b", SHA_512)], [])
        alter("twice", [remove("a")], [upsert("a")])
        alter("mixed", [], [upsert("c"), upsert("a", iterations=1)])
        alter("removed", [remove("a"), remove("b")], [])
        deadline = time.monotonic() + 60
        while len(described("a")[0][2]) > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        seen["described at the end"] = described("a", "b", "c")
        for version in (0, 1):
            answer = client.call(HANDSHAKE, version, mechanism="PLAIN")
            seen[f"handshake {version}"] = (int(answer.error_code), answer.mechanisms)
        seen["authenticate"] = int(client.call(AUTHENTICATE, 2, auth_bytes=b"x").error_code)
    return seen


@pytest.mark.kafka
def test_users_are_described_and_altered_as_by_kafka(kafka: KafkaServer) -> None:
    """On a listener without log-in: every error, and the users that remain at the end."""
    theirs = told(kafka.bootstrap)
    with EmbeddedBroker() as broker:
        ours = told(broker.bootstrap)
    assert {step: (ours[step], theirs[step]) for step in theirs if ours[step] != theirs[step]} == {}
