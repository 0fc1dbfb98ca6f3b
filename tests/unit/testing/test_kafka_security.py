"""The listeners of a test's Kafka with passwords and certificates: every setting and command."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.testing import kafka_security
from faust_assigner.testing.kafka_security import SecuredListener, plain_settings

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture
def listener(tmp_path: Path) -> SecuredListener:
    """A listener with a password that must be escaped."""
    return SecuredListener("127.0.0.1:4002", tmp_path, "ann", 'p"\\w', "store")


def test_users_log_in_with_plain_on_their_own_listener() -> None:
    """Each user has an entry, in the order of the caller."""
    assert plain_settings({"bob": "p2", "ann": "p1"}) == {
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,USERS:SASL_PLAINTEXT"
        ),
        "listener.name.users.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'user_bob="p2" user_ann="p1";'
        ),
    }


@pytest.mark.parametrize("is_jks", [False, True])
def test_a_client_trusts_the_certificate_in_either_format(
    listener: SecuredListener, tmp_path: Path, is_jks: bool
) -> None:
    """JAAS escapes the quote and the backslash; the file escapes each backslash once more."""
    trust = (
        {
            "ssl.truststore.location": str(tmp_path / "truststore.jks"),
            "ssl.truststore.password": "store",
        }
        if is_jks
        else {"ssl.truststore.location": str(tmp_path / "server.pem"), "ssl.truststore.type": "PEM"}
    )
    expected = {
        "bootstrap.servers": "127.0.0.1:4002",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM} required username="ann" password="p\\"\\\\w";',
        **trust,
    }
    assert listener.properties(jks=is_jks) == expected
    path = tmp_path / "client.properties"
    assert listener.write_properties(path, jks=is_jks) == path
    expected["sasl.jaas.config"] = f'{SCRAM} required username="ann" password="p\\\\"\\\\\\\\w";'
    assert path.read_text() == "".join(f"{name}={value}\n" for name, value in expected.items())


def test_the_broker_has_the_listener_its_key_and_its_user(
    listener: SecuredListener, tmp_path: Path
) -> None:
    """The user's password is given unescaped to the storage tool."""
    name = "listener.name.secured"
    assert listener.server_settings() == {
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL"
        ),
        f"{name}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        f"{name}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        f"{name}.ssl.keystore.location": str(tmp_path / "server.p12"),
        f"{name}.ssl.keystore.type": "PKCS12",
        f"{name}.ssl.keystore.password": "store",
        f"{name}.ssl.key.password": "store",
    }
    assert listener.add_user() == 'SCRAM-SHA-512=[name=ann,password=p"\\w]'


def test_two_listeners_have_different_passwords_which_no_text_shows(tmp_path: Path) -> None:
    """A password has all characters that a properties file and JAAS must escape."""
    one, other = (SecuredListener("127.0.0.1:1", tmp_path) for _ in range(2))
    secrets = {one.password, one.store_password, other.password, other.store_password}
    assert len(secrets) == 4
    assert set('"= \\#') <= set(one.password)
    assert [word for word in secrets if word in f"{one!r} {other!r}"] == []


def test_the_certificate_is_made_exported_and_trusted_in_this_order(
    listener: SecuredListener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is the loopback address; a failure of a command has its output."""
    commands: list[Any] = []
    codes = [0, 0, 0, 2]

    def run(command: list[str], **more: Any) -> Any:
        commands.append((command, more))
        return SimpleNamespace(returncode=codes.pop(0), stdout="out ", stderr="err")

    monkeypatch.setattr(kafka_security.subprocess, "run", run)
    listener.make_certificate()
    store = [
        *("-keystore", str(tmp_path / "server.p12"), "-storetype", "PKCS12"),
        *("-storepass", "store", "-alias", "server"),
    ]
    pem = str(tmp_path / "server.pem")
    assert [command for command, _ in commands] == [
        [
            *("keytool", "-genkeypair", *store, "-keyalg", "RSA", "-keysize", "2048"),
            *("-validity", "7", "-dname", "CN=127.0.0.1"),
            *("-ext", "SAN=IP:127.0.0.1,DNS:localhost"),
        ],
        ["keytool", "-exportcert", "-rfc", *store, "-file", pem],
        [
            *("keytool", "-importcert", "-noprompt"),
            *("-keystore", str(tmp_path / "truststore.jks"), "-storetype", "JKS"),
            *("-storepass", "store", "-alias", "server", "-file", pem),
        ],
    ]
    assert commands[0][1] == {"capture_output": True, "text": True, "timeout": 60}
    with pytest.raises(RuntimeError, match="keytool -genkeypair: out err"):
        listener.make_certificate()
