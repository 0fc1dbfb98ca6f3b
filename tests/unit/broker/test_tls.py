"""The TLS context of a listener: its demands on clients, and the reload of changed files."""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from faust_assigner.broker import server as server_module
from faust_assigner.broker.node import Node
from faust_assigner.broker.security.tls import Certificates
from faust_assigner.broker.server import BrokerServer, TlsDoor
from faust_assigner.broker.settings import Settings
from faust_assigner.errors import ConfigError
from tests.support.certificates import Authority, Pair
from tests.support.waiting import PATIENCE_S


class Files:
    """A key store that changes, with a modification time for each content."""

    def __init__(self, folder: Path) -> None:
        self.path, self._written = folder / "broker.pem", 1_000_000_000
        self.authority = Authority(folder)

    def sign(self, name: str) -> Pair:
        """Return a key and its certificate."""
        return self.authority.sign(name)

    def write(self, *parts: bytes) -> None:
        """Replace the content."""
        self.path.write_bytes(b"".join(parts))
        self._written += 10
        os.utime(self.path, (self._written, self._written))

    def put(self, pair: Pair) -> None:
        """Write a key with its certificate."""
        self.write(pair.key.read_bytes(), pair.cert.read_bytes())

    def encrypt(self, pair: Pair) -> None:
        """Write a key with a password, and its certificate."""
        key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
        secret = serialization.BestAvailableEncryption(b"pw")
        coded = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret
        )
        self.write(coded, pair.cert.read_bytes())

    def open(self, **settings: str) -> Certificates:
        """Return the context over these files."""
        given = {key.replace("_", "."): value for key, value in settings.items()}
        return Certificates(Settings.parse({"ssl.keystore.location": str(self.path), **given}))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Return a key store with the certificate of "one"."""
    made = Files(tmp_path)
    made.put(made.sign("one"))
    return made


def served(certificates: Certificates) -> str:
    """Return the name in the certificate that a client gets, after a handshake in memory."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        certificates.context.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(3):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    given = ends[0].getpeercert(binary_form=True)
    assert given is not None
    return next(name for name in ("one", "two") if name.encode() in given)


def test_a_changed_certificate_is_served_to_new_connections(files: Files) -> None:
    """Unchanged files are not read again."""
    certificates = files.open()
    assert (certificates.reload(), served(certificates)) == (False, "one")
    files.put(files.sign("two"))
    assert (certificates.reload(), served(certificates)) == (True, "two")
    assert not certificates.reload()


@pytest.mark.parametrize("damage", ["empty", "no PEM", "key of another", "encrypted key", "gone"])
def test_files_that_cannot_be_used_leave_the_certificate_from_before(
    files: Files, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """The error is logged once; repaired files are used."""
    certificates, one, two = files.open(), files.sign("one"), files.sign("two")
    if damage == "key of another":
        files.write(one.key.read_bytes(), two.cert.read_bytes())
    elif damage == "encrypted key":
        files.encrypt(two)
    elif damage == "gone":
        files.path.unlink()
    else:
        files.write(b"" if damage == "empty" else b"none")
    assert [certificates.reload() for _ in range(2)] == [False, False]
    assert served(certificates) == "one"
    assert caplog.text.count("the changed TLS files are unusable") == (damage != "gone")
    files.put(two)
    assert (certificates.reload(), served(certificates)) == (True, "two")


def test_unusable_files_are_an_error_at_the_start(files: Files) -> None:
    """The error names an encrypted key, and no terminal prompts for its password."""
    files.encrypt(files.sign("two"))
    with pytest.raises(ConfigError, match="has an encrypted key"):
        files.open()
    files.path.unlink()
    with pytest.raises(ConfigError, match="the TLS files cannot be read"):
        files.open()


@pytest.mark.parametrize(
    ("choice", "mode"),
    [("none", ssl.CERT_NONE), ("requested", ssl.CERT_OPTIONAL), ("required", ssl.CERT_REQUIRED)],
)
def test_a_client_needs_a_certificate_as_the_setting_says(
    files: Files, choice: str, mode: ssl.VerifyMode
) -> None:
    """An authority of the trust store must have signed it; TLS 1.2 is the oldest version."""
    store = str(files.authority.ca)
    context = files.open(ssl_client_auth=choice, ssl_truststore_location=store).context
    assert (context.verify_mode, context.minimum_version) == (mode, ssl.TLSVersion.TLSv1_2)
    assert len(context.get_ca_certs()) == 1


def is_let_in(
    certificates: Certificates, client: ssl.SSLContext, sessions: list[ssl.SSLSession | None]
) -> bool:
    """Return whether the broker accepts the client in a handshake that resumes its last session."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    mine = client.wrap_bio(to_client, to_server, session=sessions[-1])
    server = certificates.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (mine, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    server.write(b"x")
    mine.read(1)  # reads the ticket of the session
    sessions.append(mine.session)
    return server.getpeercert() is not None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_an_authority_that_left_the_trust_store_signs_for_no_new_connection(
    files: Files, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """A reload counts even for a resumed session; the new authority's clients are accepted."""
    trust, authorities, clients = tmp_path / "trust.pem", [], []
    sessions: list[list[ssl.SSLSession | None]] = [[None], [None]]
    for name in ("former", "latter"):
        folder = tmp_path / name
        folder.mkdir()
        authorities.append(Authority(folder, name))
        pair = authorities[-1].sign("client")
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        client.maximum_version = version
        client.load_cert_chain(pair.cert, pair.key)
        clients.append(client)
    trust.write_bytes(authorities[0].ca.read_bytes())
    certificates = files.open(ssl_client_auth="required", ssl_truststore_location=str(trust))
    found = [is_let_in(certificates, *one) for one in zip(clients, sessions, strict=True)]
    assert found == [True, False]
    trust.write_bytes(authorities[1].ca.read_bytes())
    os.utime(trust, (1_000_000_000, 1_000_000_000))
    assert certificates.reload()
    found = [is_let_in(certificates, *one) for one in zip(clients, sessions, strict=True)]
    assert found == [False, True]


@pytest.mark.parametrize(("choice", "tickets"), [("none", 2), ("requested", 0), ("required", 0)])
def test_no_session_is_resumed_where_clients_may_show_a_certificate(
    files: Files, choice: str, tickets: int
) -> None:
    """A resumed session would skip the check of the certificate, also of one that is only requested."""
    store = str(files.authority.ca)
    context = files.open(ssl_client_auth=choice, ssl_truststore_location=store).context
    assert context.num_tickets == tickets
    assert bool(context.options & ssl.OP_NO_TICKET) is not bool(tickets)


async def test_a_connection_counts_before_its_handshake(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half-open handshakes fill the limit of an address; each is counted when its time is over."""
    may_begin, shake_hands = asyncio.Event(), TlsDoor._shake_hands

    async def later(self: TlsDoor, transport: asyncio.Transport) -> asyncio.Transport | None:
        await may_begin.wait()
        return await shake_hands(self, transport)

    monkeypatch.setattr(server_module, "LOG_IN_TIMEOUT_S", 0.1)
    monkeypatch.setattr(TlsDoor, "_shake_hands", later)
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(files.path),
        "max.connections.per.ip": 2,
    }
    server = BrokerServer(Node(Settings.parse(settings)))
    port = await server.start()
    mute = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
    async with asyncio.timeout(PATIENCE_S):
        assert await mute[2][0].read() == b"", "it is refused at once"
        assert server.node.counters["connections_refused"] == 1
        may_begin.set()
        assert [await reader.read() for reader, _ in mute[:2]] == [b"", b""]
    assert server.node.counters["handshakes_failed"] == 2
    assert server.connections == 0
    monkeypatch.setattr(server_module, "LOG_IN_TIMEOUT_S", PATIENCE_S)
    client = ssl.create_default_context(cafile=str(files.authority.ca))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
    writer.write(b"\0\0\0\x0b\0\x12\0\0\0\0\0\x07\0\x01a")  # ApiVersions
    assert (await reader.readexactly(8))[4:] == b"\0\0\0\x07"
    for _, each in (*mute, (reader, writer)):
        each.close()
    await server.stop()
