"""Real clients log in: every protocol and mechanism, changing users and changing certificates."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from faust_assigner.broker import EmbeddedBroker
from tests.support.certificates import Authority

ALL = ",".join(
    f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
)
USERS = {"alice": "her secret, =", "bob": "b"}


def keystore(folder: Path) -> Path:
    """Write a PEM file with a new key and certificate; ``authority.ca.pem`` is the authority's."""
    made = Authority(folder).sign("localhost")
    path = folder / "broker.pem"
    path.write_bytes(made.key.read_bytes() + made.cert.read_bytes())
    return path


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker with listeners of all four protocols."""
    settings = {
        "listeners": ALL,
        "ssl.keystore.location": str(keystore(tmp_path)),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "connection.failed.authentication.delay.ms": 10,
    }
    with EmbeddedBroker(settings=settings, users=USERS) as running:
        yield running


def config(
    broker: EmbeddedBroker, protocol: str, mechanism: str, folder: Path, **more: Any
) -> dict[str, Any]:
    """Return librdkafka's settings."""
    user = more.pop("user", "alice")
    return {
        "bootstrap.servers": broker.address(protocol),
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": more.pop("password", USERS.get(user, "")),
        "ssl.ca.location": str(folder / "authority.ca.pem"),
        "message.timeout.ms": 20_000,
        **more,
    }


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("SSL", "PLAIN"),
        ("SASL_SSL", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-512"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ],
)
def test_both_clients_write_and_read_behind_each_listener(
    broker: EmbeddedBroker, tmp_path: Path, protocol: str, mechanism: str
) -> None:
    """librdkafka and aiokafka write, aiokafka reads; metadata has the listener that they use."""
    producer = Producer(config(broker, protocol, mechanism, tmp_path))
    failed: list[Any] = []
    producer.produce("t", b"from librdkafka", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(30) == 0
    assert failed == [None]

    async def story() -> list[bytes]:
        context = ssl.create_default_context(cafile=str(tmp_path / "authority.ca.pem"))
        same: dict[str, Any] = {
            "bootstrap_servers": broker.address(protocol),
            "security_protocol": protocol,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": USERS["alice"],
            "ssl_context": context,
        }
        async with AIOKafkaProducer(**same) as writer:
            await writer.send_and_wait("t", b"from aiokafka")
        async with AIOKafkaConsumer("t", auto_offset_reset="earliest", **same) as reader:
            return [(await reader.getone()).value for _ in range(2)]

    seen = asyncio.run(asyncio.wait_for(story(), 60))
    assert seen == [b"from librdkafka", b"from aiokafka"]


def test_users_are_made_changed_listed_and_removed_by_an_admin_client(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """The listing has mechanisms and iterations, and no secret."""
    admin = AdminClient(config(broker, "SASL_SSL", "SCRAM-SHA-256", tmp_path))

    def alter(*changes: Any) -> None:
        for done in admin.alter_user_scram_credentials(list(changes)).values():
            done.result(30)

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 5_000)
    alter(UserScramCredentialUpsertion("carol", info, b"first"))
    told = admin.describe_user_scram_credentials(["carol"])["carol"].result(30)
    assert [(i.mechanism, i.iterations) for i in told.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 5_000)
    ]
    assert logs_in(
        config(broker, "SASL_SSL", "SCRAM-SHA-256", tmp_path, user="carol", password="first")
    )
    alter(UserScramCredentialUpsertion("carol", info, b"second"))
    for password, may_enter in (("first", False), ("second", True)):
        given = config(
            broker, "SASL_SSL", "SCRAM-SHA-256", tmp_path, user="carol", password=password
        )
        assert logs_in(given) is may_enter
    alter(UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256))
    assert not logs_in(given)
    with pytest.raises(KafkaException):
        admin.describe_user_scram_credentials(["carol"])["carol"].result(30)


def logs_in(given: dict[str, Any]) -> bool:
    """Return whether a client gets metadata."""
    failures: list[Any] = []
    client = Producer({**given, "error_cb": failures.append})
    deadline = time.monotonic() + 60
    while not failures and time.monotonic() < deadline:
        client.poll(0.05)
        try:
            client.list_topics(timeout=0.5)
            return True
        except KafkaException:
            continue
    assert any("uthentication failed" in str(failure) for failure in failures), failures
    return False


def test_users_survive_a_restart_and_a_file_of_users_is_read(tmp_path: Path) -> None:
    """The store keeps the file's passwords only as salted credentials."""
    users = tmp_path / "users"
    users.write_text("# two of them\ndave=canary=1\n\nerin=canary2\n")
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.plain.without.tls": True,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.users.file": str(users),
    }
    with EmbeddedBroker(tmp_path / "data", settings=settings) as running:
        given = config(
            running, "SASL_PLAINTEXT", "PLAIN", tmp_path, user="dave", password="canary=1"
        )
        assert logs_in(given)
    users.write_text("")
    with EmbeddedBroker(tmp_path / "data", settings=settings) as running:
        given = config(
            running, "SASL_PLAINTEXT", "SCRAM-SHA-256", tmp_path, user="erin", password="canary2"
        )
        assert logs_in(given)
    stored = b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir() if path.is_file())
    assert b"erin" in stored
    assert b"canary" not in stored


@pytest.mark.slow
def test_a_new_certificate_is_used_without_a_restart(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """The broker logs an unusable file and keeps the old certificate."""

    def served() -> str:
        host, port = broker.address("SSL").split(":")
        return ssl.get_server_certificate((host, int(port)))

    first = served()
    (tmp_path / "broker.pem").write_text("nothing of use")
    time.sleep(2.5)
    assert served() == first
    keystore(tmp_path)
    deadline = time.monotonic() + 60
    while served() == first:
        assert time.monotonic() < deadline, "the old certificate is still served"
        time.sleep(0.1)
    assert logs_in(config(broker, "SASL_SSL", "SCRAM-SHA-256", tmp_path))
