"""Attacks by unauthenticated peers: each ends at the log-in and costs other clients nothing."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scramp import ScramClient

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.api import APIS
from tests.integration.broker.security.test_clients import keystore
from tests.support.clients.raw_client import RawClient

API_VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA, DESCRIBE_CONFIGS = 18, 17, 36, 3, 32
UNSUPPORTED_MECHANISM, ILLEGAL_STATE, FAILED = 33, 34, 58
CANARY = "canary-5f1c"
SCRAM = "SCRAM-SHA-256"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker with TLS listeners and a listener without TLS."""
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.location": str(keystore(tmp_path)),
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
        "connection.failed.authentication.delay.ms": 20,
    }
    with EmbeddedBroker(settings=settings, users={"alice": CANARY}) as running:
        yield running


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[RawClient]:
    """A raw connection to the listener without TLS."""
    with RawClient(broker.bootstrap) as connected:
        yield connected


def log_in(
    client: RawClient, password: str = CANARY, user: str = "alice"
) -> tuple[int, list[bytes]]:
    """Log in with SCRAM; return the last error and the messages that were sent."""
    assert client.call(HANDSHAKE, 1, mechanism=SCRAM).error_code == 0
    scram = ScramClient([SCRAM], user, password)
    sent = [scram.get_client_first().encode()]
    answer = client.call(AUTHENTICATE, 2, auth_bytes=sent[0])
    if answer.error_code:
        return int(answer.error_code), sent
    scram.set_server_first(answer.auth_bytes.decode())
    sent.append(scram.get_client_final().encode())
    answer = client.call(AUTHENTICATE, 2, auth_bytes=sent[1])
    if not answer.error_code:
        scram.set_server_final(answer.auth_bytes.decode())
    return int(answer.error_code), sent


def test_every_api_but_three_is_closed_before_log_in(broker: EmbeddedBroker) -> None:
    """After the log-in all APIs are open."""
    with RawClient(broker.bootstrap) as client:
        assert client.call(API_VERSIONS, 3, client_software_name="x", client_software_version="1")
        assert log_in(client)[0] == 0
        assert client.call(METADATA, 12, topics=None).brokers
    for api in APIS.values():
        if api.key in (API_VERSIONS, HANDSHAKE, AUTHENTICATE):
            continue
        with RawClient(broker.bootstrap) as client:
            frame = b"\0\0\0\x0c" + api.key.to_bytes(2, "big") + api.high.to_bytes(2, "big")
            client.socket.sendall(frame + b"\0\0\0\x01\xff\xff\0\0")
            assert client.is_closed(), api.name
    assert broker.call(lambda node: node.counters["requests_unauthenticated"]) == len(APIS) - 3


def test_a_wrong_mechanism_is_answered_with_those_on_offer(client: RawClient) -> None:
    """PLAIN is not offered without TLS."""
    answer = client.call(HANDSHAKE, 1, mechanism="PLAIN")
    assert (answer.error_code, answer.mechanisms) == (UNSUPPORTED_MECHANISM, (SCRAM,))
    assert client.is_closed()


def test_a_wrong_password_and_an_unknown_user_look_alike(broker: EmbeddedBroker) -> None:
    """Both reach the second message and get the same error."""
    seen = []
    for user, password in (("alice", "wrong"), ("nobody", CANARY)):
        with RawClient(broker.bootstrap) as client:
            error, sent = log_in(client, password, user)
            seen.append((error, len(sent), client.is_closed()))
    assert seen == [(FAILED, 2, True)] * 2


def test_messages_of_another_log_in_are_worth_nothing(broker: EmbeddedBroker) -> None:
    """The broker's part of the nonce differs each time."""
    with RawClient(broker.bootstrap) as client:
        error, sent = log_in(client)
        assert error == 0
    with RawClient(broker.bootstrap) as client:
        client.call(HANDSHAKE, 1, mechanism=SCRAM)
        assert client.call(AUTHENTICATE, 2, auth_bytes=sent[0]).error_code == 0
        assert client.call(AUTHENTICATE, 2, auth_bytes=sent[1]).error_code == FAILED
        assert client.is_closed()


@pytest.mark.parametrize(
    "token", [b"", b"\0", b"n,,n=alice", b"\xff\xfe", b"n,,n=alice,r=" + b"x" * 50_000, b"y,,,,"]
)
def test_bytes_that_are_no_message_end_the_log_in(client: RawClient, token: bytes) -> None:
    """They get the error of a wrong password, or fail at the first message."""
    client.call(HANDSHAKE, 1, mechanism=SCRAM)
    answer = client.call(AUTHENTICATE, 2, auth_bytes=token)
    if answer.error_code == 0:
        answer = client.call(AUTHENTICATE, 2, auth_bytes=token)
    assert answer.error_code == FAILED
    assert client.is_closed()


def test_a_log_in_out_of_order_is_refused(broker: EmbeddedBroker) -> None:
    """Without a handshake, after a second one, after the log-in, and without a log-in."""
    with RawClient(broker.bootstrap) as client:
        assert client.call(AUTHENTICATE, 2, auth_bytes=b"x").error_code == FAILED
        assert client.is_closed()
    with RawClient(broker.bootstrap) as client:
        client.call(HANDSHAKE, 1, mechanism=SCRAM)
        assert client.call(HANDSHAKE, 1, mechanism=SCRAM).error_code == UNSUPPORTED_MECHANISM
        assert client.is_closed()
    with RawClient(broker.bootstrap) as client:
        assert log_in(client)[0] == 0
        assert client.call(HANDSHAKE, 1, mechanism=SCRAM).error_code == ILLEGAL_STATE
        assert client.call(METADATA, 12, topics=None).brokers
    with EmbeddedBroker() as plain, RawClient(plain.bootstrap) as client:
        assert client.call(HANDSHAKE, 1, mechanism=SCRAM).error_code == ILLEGAL_STATE
        assert client.call(METADATA, 12, topics=None).brokers


def test_a_log_in_of_the_oldest_kind_has_no_requests_around_its_tokens(
    broker: EmbeddedBroker,
) -> None:
    """After SaslHandshake 0 tokens have only a size, and a failure closes the connection."""
    for password, may_enter in ((CANARY, True), ("wrong", False)):
        with RawClient(broker.bootstrap) as client:
            assert client.call(HANDSHAKE, 0, mechanism=SCRAM).error_code == 0
            scram = ScramClient([SCRAM], "alice", password)
            send_raw(client, scram.get_client_first())
            scram.set_server_first(client.receive_frame().decode())
            send_raw(client, scram.get_client_final())
            if may_enter:
                scram.set_server_final(client.receive_frame().decode())
                assert client.call(METADATA, 12, topics=None).brokers
            else:
                assert client.is_closed()


def send_raw(client: RawClient, token: str) -> None:
    """Send a token with only its size before it."""
    client.socket.sendall(len(token).to_bytes(4, "big") + token.encode())


def test_each_failure_of_an_address_waits_longer(broker: EmbeddedBroker) -> None:
    """The wait starts at 20 ms and doubles: the sixth wait has at least 32 times that."""
    waits = []
    for _ in range(6):
        with RawClient(broker.bootstrap) as client:
            began = time.monotonic()
            assert log_in(client, "wrong")[0] == FAILED
            waits.append(time.monotonic() - began)
    assert waits[5] >= 0.64
    assert all(waited >= 0.02 * 2**n for n, waited in enumerate(waits))


def test_a_large_frame_is_not_awaited_before_log_in(client: RawClient) -> None:
    """64 KiB suffice for each of the three APIs."""
    client.socket.sendall((64 * 1024 + 1).to_bytes(4, "big"))
    assert client.is_closed()


def test_half_open_handshakes_keep_nobody_out(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """300 peers open the TLS listeners and send nothing or half a hello; another peer is served."""
    silent = []
    try:
        for number in range(300):
            host, port = broker.address("SASL_SSL").split(":")
            one = socket.create_connection((host, int(port)), 10)
            if number % 2:
                one.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
            silent.append(one)
        context = ssl.create_default_context(cafile=str(tmp_path / "authority.ca.pem"))
        host, port = broker.address("SSL").split(":")
        with (
            socket.create_connection((host, int(port)), 10) as plain,
            context.wrap_socket(plain, server_hostname=host) as spoken,
        ):
            assert spoken.version() in ("TLSv1.2", "TLSv1.3")
        with RawClient(broker.bootstrap) as client:
            assert log_in(client)[0] == 0
    finally:
        for one in silent:
            one.close()


def test_a_peer_without_tls_and_a_peer_with_old_tls_get_nothing(broker: EmbeddedBroker) -> None:
    """TLS 1.2 is the oldest accepted version."""
    with RawClient(broker.address("SSL"), 5) as client:
        client.send(API_VERSIONS, 0)
        answer = b""
        while part := client.socket.recv(4_096):
            answer += part
        assert answer[:1] in (b"", b"\x15")  # nothing, or a TLS alert
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    host, port = broker.address("SSL").split(":")
    with socket.create_connection((host, int(port)), 10) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain)


def test_secrets_are_in_no_log_line_and_no_config(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A password with one wrong letter, or in the wrong field, is a secret too."""
    caplog.set_level(logging.DEBUG)
    for user, password in (("alice", CANARY + "x"), (CANARY, "x")):
        with RawClient(broker.bootstrap) as client:
            log_in(client, password, user)
    with RawClient(broker.bootstrap) as client:
        client.call(HANDSHAKE, 1, mechanism=SCRAM)
        client.call(AUTHENTICATE, 2, auth_bytes=CANARY.encode())
    with RawClient(broker.bootstrap) as client:
        assert log_in(client)[0] == 0
        resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
        (result,) = client.call(DESCRIBE_CONFIGS, 4, resources=[resource]).results
        assert result.configs
        assert not any(CANARY in (entry.value or "") for entry in result.configs)
    assert "it did not log in" in caplog.text
    assert CANARY not in caplog.text


def test_a_client_without_a_certificate_is_refused_where_one_is_required(tmp_path: Path) -> None:
    """The listener has ssl.client.auth=required."""
    settings: dict[str, Any] = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(keystore(tmp_path)),
        "ssl.truststore.location": str(tmp_path / "authority.ca.pem"),
        "ssl.client.auth": "required",
    }
    with EmbeddedBroker(settings=settings) as running:
        host, port = running.bootstrap.split(":")
        for has_certificate in (True, False):
            context = ssl.create_default_context(cafile=str(tmp_path / "authority.ca.pem"))
            if has_certificate:
                context.load_cert_chain(tmp_path / "broker.pem")
            with socket.create_connection((host, int(port)), 10) as plain:
                assert is_served(context, plain, host) is has_certificate


def is_served(context: ssl.SSLContext, plain: socket.socket, host: str) -> bool:
    """Return whether the broker keeps the connection; a TLS 1.3 refusal follows the handshake."""
    try:
        with context.wrap_socket(plain, server_hostname=host) as spoken:
            spoken.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff")
            return spoken.recv(4) != b""
    except (ssl.SSLError, ConnectionError):
        return False
