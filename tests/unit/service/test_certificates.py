"""Changed certificate files are read again; an incomplete change harms no handshake."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest

from faust_assigner.service import certificates
from faust_assigner.service.certificates import Certificates, Pem, PemFiles
from faust_assigner.service.client import Access
from faust_assigner.service.client.operator import is_serving
from faust_assigner.service.server.options import Options
from faust_assigner.service.server.serve import running
from tests.support.assigning.instances import calls_ended
from tests.support.certificates import Authority, Pair


def copied(pair: Pair, folder: Path) -> Pair:
    """Copy the pair to the names that the service reads."""
    found = Pair(folder / "tls.crt", folder / "tls.key")
    shutil.copy(pair.cert, found.cert)
    shutil.copy(pair.key, found.key)
    return found


def shown_at(port: int) -> bytes:
    """The certificate that the port presents."""
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port))).strip()


def der(path: Path) -> bytes:
    """The certificate of a file."""
    return ssl.PEM_cert_to_DER_cert(path.read_text()).strip()


async def test_a_new_certificate_is_shown_to_the_next_connection(tmp_path: Path) -> None:
    """No restart is needed, as cert-manager renews certificates every few weeks."""
    authority = Authority(tmp_path)
    pair = copied(authority.sign("one"), tmp_path)
    said = {"bind": "127.0.0.1:0", "tls_cert": str(pair.cert), "tls_key": str(pair.key)}
    async with running(Options.read(said, {})) as (port, *_):
        access = Access(ca=authority.ca)
        assert await is_serving(f"127.0.0.1:{port}", "process", access)
        first = await _asked(port)
        copied(authority.sign("two"), tmp_path)
        second = await _asked(port)
        assert (first, second) == (der(tmp_path / "one.pem"), der(tmp_path / "two.pem"))
        assert await is_serving(f"127.0.0.1:{port}", "process", access)
    await calls_ended()


async def _asked(port: int) -> bytes:

    return await asyncio.to_thread(shown_at, port)


async def test_an_authority_that_is_exchanged_lets_in_what_the_new_one_signs(
    tmp_path: Path,
) -> None:
    """New connections with a certificate of the old CA are refused."""
    server, old, new = (Authority(tmp_path, name) for name in ("server", "old", "new"))
    pair, ca = copied(server.sign("service"), tmp_path), tmp_path / "client-ca.pem"
    shutil.copy(old.ca, ca)
    said = {"bind": "127.0.0.1:0", "tls_cert": str(pair.cert), "tls_key": str(pair.key)}
    async with running(Options.read({**said, "tls_client_ca": str(ca)}, {})) as (port, *_):

        async def is_let_in(authority: Authority, name: str) -> bool:
            mine = authority.sign(name)
            access = Access(ca=server.ca, cert=mine.cert, key=mine.key)
            return await is_serving(f"127.0.0.1:{port}", "process", access)

        assert [await is_let_in(old, "a"), await is_let_in(new, "b")] == [True, False]
        shutil.copy(new.ca, ca)
        assert [await is_let_in(old, "c"), await is_let_in(new, "d")] == [False, True]
    await calls_ended()


def test_a_certificate_without_its_key_yet_is_not_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Files change one after the other: the last valid pair stays, and one line is logged."""
    authority = Authority(tmp_path)
    pair = copied(authority.sign("one"), tmp_path)
    certificates = Certificates(pair.cert, pair.key)
    certificates.credentials()
    assert certificates.changed() is None
    two = authority.sign("two")
    shutil.copy(two.cert, pair.cert)
    assert (certificates.changed(), certificates.changed()) == (None, None)
    assert caplog.text.count("keeps its previous certificates") == 1
    shutil.copy(two.key, pair.key)
    assert certificates.changed() is not None
    assert certificates.changed() is None
    pair.key.unlink()
    assert certificates.changed() is None


@pytest.mark.parametrize("changed", ["pair", "authorities"])
def test_files_that_change_while_they_are_read_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """The state of the files is noted before their content."""
    authority, other = Authority(tmp_path, "one-ca"), Authority(tmp_path, "other-ca")
    pair, ca = copied(authority.sign("one"), tmp_path), tmp_path / "client-ca.pem"
    shutil.copy(authority.ca, ca)
    two = authority.sign("two")
    files = PemFiles(pair.cert, pair.key, ca, "--pair", "--ca", "The test")
    read = Path.read_bytes

    def read_and_change(path: Path) -> bytes:
        found = read(path)
        if changed == "pair" and path == pair.key:
            copied(two, tmp_path)
        if changed == "authorities" and path == ca:
            shutil.copy(other.ca, ca)
        return found

    with monkeypatch.context() as during:
        during.setattr(Path, "read_bytes", read_and_change)
        first = files.read()
    assert first == Pem(*map(read, (authority.ca, tmp_path / "one.pem", tmp_path / "one.key")))
    new_pair = "two" if changed == "pair" else "one"
    new_ca = authority.ca if changed == "pair" else other.ca
    names = (new_ca, tmp_path / f"{new_pair}.pem", tmp_path / f"{new_pair}.key")
    assert (files.changed(), files.changed()) == (Pem(*map(read, names)), None)


def test_a_pair_that_changes_during_its_check_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next look reads the same content once more and checks it."""
    authority = Authority(tmp_path)
    pair = copied(authority.sign("one"), tmp_path)
    two = authority.sign("two")
    files = PemFiles(pair.cert, pair.key, None, "--pair", "--ca", "The test")
    check = certificates.check_pair

    def check_and_change(cert: Path, key: Path, flags: str) -> None:
        check(cert, key, flags)
        copied(two, tmp_path)

    with monkeypatch.context() as during:
        during.setattr(certificates, "check_pair", check_and_change)
        files.read()
    assert files.changed() == Pem(None, two.cert.read_bytes(), two.key.read_bytes())
    assert files.changed() is None
