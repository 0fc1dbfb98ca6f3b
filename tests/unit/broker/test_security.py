"""Listeners, credentials, and the delay after failed log-ins, without a socket."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker, server
from faust_assigner.broker.security import gate
from faust_assigner.broker.security.credentials import (
    ITERATIONS,
    MECHANISMS,
    Credentials,
    from_password,
    from_salted,
    read_users,
)
from faust_assigner.broker.security.gate import FailedLogIns
from faust_assigner.broker.security.listeners import Listener, mechanisms, parse_listeners
from faust_assigner.broker.server import warn_if_open
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.store import MemoryStore, StoreFailed
from faust_assigner.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listeners": "SSL://127.0.0.1:1"}, "needs ssl.keystore.location"),
        ({"listeners": "TLS://127.0.0.1:1"}, "with a protocol of"),
        ({"listeners": "PLAINTEXT://127.0.0.1"}, "with a protocol of"),
        ({"listeners": "PLAINTEXT://127.0.0.1:70000"}, "with a protocol of"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "names a protocol twice"),
        (
            {"listeners": "SASL_PLAINTEXT://a:1", "sasl.enabled.mechanisms": "PLAIN"},
            "sasl.plain.without.tls",
        ),
        ({"advertised.listeners": "SASL_SSL://a:1"}, "listeners has no SASL_SSL"),
        ({"ssl.client.auth": "required"}, "needs ssl.truststore.location"),
    ],
)
def test_listeners_that_cannot_be_are_refused_with_a_reason(
    settings: dict[str, Any], words: str
) -> None:
    """The start fails before the broker listens."""
    with pytest.raises(ConfigError, match=words):
        Settings.parse(settings)


def offered(settings: Settings, listener: Listener) -> tuple[str, ...]:
    """Return the mechanisms of a listener under these settings."""
    return mechanisms(
        settings.sasl_enabled_mechanisms,
        listener,
        plain_without_tls=settings.sasl_plain_without_tls,
    )


def test_plain_is_offered_over_tls_alone_unless_a_setting_says_so() -> None:
    """Otherwise the password would cross the network in plain text."""
    text = "SASL_SSL://a:1,SASL_PLAINTEXT://b:2"
    given = {
        "listeners": text,
        "ssl.keystore.location": "x",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    }
    secure, open_one = parse_listeners("listeners", text)
    assert offered(Settings.parse(given), secure) == ("PLAIN", "SCRAM-SHA-256")
    assert offered(Settings.parse(given), open_one) == ("SCRAM-SHA-256",)
    loose = Settings.parse(given | {"sasl.plain.without.tls": True})
    assert offered(loose, open_one) == ("PLAIN", "SCRAM-SHA-256")


@pytest.mark.parametrize("iterations", [4_096, 8_192])
def test_a_credential_is_that_of_the_standard(iterations: int) -> None:
    """RFC 7677 has the example: user 'user', password 'pencil', 4,096 iterations."""
    salt = bytes.fromhex("5b6d99687d123e ac14c41fdbd4a9c6ea".replace(" ", ""))
    made = from_password("SCRAM-SHA-256", "pencil", salt, iterations)
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    assert made.stored_key == hashlib.sha256(client_key).digest()
    assert made == from_salted("SCRAM-SHA-256", salted, salt, iterations)


def test_credentials_survive_a_start_and_never_hold_a_password() -> None:
    """An equal password changes no credential; a new password changes both mechanisms."""
    store = MemoryStore()
    first = Credentials(store)
    first.set_password("alice", "canary")
    before = dict(store.scan(b""))
    first.set_password("alice", "canary")
    assert dict(store.scan(b"")) == before
    again = Credentials(store)
    assert list(again) == [("alice", mechanism) for mechanism in MECHANISMS]
    assert again.is_password("alice", "canary")
    assert not again.is_password("alice", "canary2")
    assert not again.is_password("bob", "canary")
    assert not any(b"canary" in key + value for key, value in before.items())
    again.set_password("alice", "other")
    assert not again.is_password("alice", "canary")
    assert Credentials(store).is_password("alice", "other")


def test_a_password_is_checked_with_the_iterations_of_its_user() -> None:
    """A tool may store a credential with more iterations than the broker's own."""
    users, mechanism = Credentials(MemoryStore()), MECHANISMS[0]
    users.change(
        {("alice", mechanism): from_password(mechanism, "secret", iterations=ITERATIONS + 1)}
    )
    assert users.is_password("alice", "secret")
    assert not users.is_password("alice", "other")


def test_a_credential_that_one_change_puts_and_deletes_is_gone() -> None:
    """The store deletes after it puts, in memory and after a restart."""
    store = MemoryStore()
    users, name = Credentials(store), ("alice", MECHANISMS[0])
    users.change({name: from_password(MECHANISMS[0], "secret")}, [name])
    assert list(users) == list(Credentials(store)) == []


def test_a_user_who_does_not_exist_has_the_same_salt_each_time() -> None:
    """A second broker uses a different salt."""
    one, two = Credentials(MemoryStore()), Credentials(MemoryStore())
    salts = {one.fake_credential("x", MECHANISMS[0]).salt for _ in range(3)}
    assert len(salts) == 1
    assert salts != {two.fake_credential("x", MECHANISMS[0]).salt}
    assert salts != {one.fake_credential("y", MECHANISMS[0]).salt}


def test_failures_of_one_address_wait_twice_as_long_each_time_and_are_forgotten() -> None:
    """A second address has its own delay; the longest delay is 5 s."""
    now = [0.0]
    failures = FailedLogIns(100, lambda: now[0])
    assert [failures.delay_s("a") for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert failures.delay_s("b") == 0.1
    now[0] = 60.0
    assert failures.delay_s("b") == 0.2
    now[0] = 120.5
    assert failures.delay_s("a") == failures.delay_s("b") == 0.1


def test_the_address_that_has_been_quiet_for_longest_is_forgotten_at_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An address with a new failure is not quiet."""
    monkeypatch.setattr(gate, "ADDRESSES", 2)
    failures = FailedLogIns(100, lambda: 0.0)
    assert [failures.delay_s(address) for address in "abac"] == [0.1, 0.1, 0.2, 0.1]
    assert failures.delay_s("a") == 0.4
    assert failures.delay_s("b") == 0.1


def test_an_address_with_colons_is_written_in_brackets() -> None:
    """The port follows the brackets."""
    (one,) = parse_listeners("listeners", "SSL://[::1]:9093")
    assert (one.host, str(one)) == ("::1", "SSL://[::1]:9093")
    (two,) = parse_listeners("listeners", "127.0.0.1:9092")
    assert str(two) == "PLAINTEXT://127.0.0.1:9092"


def test_a_file_of_users_is_named_where_it_is_wrong_and_its_passwords_are_not(
    tmp_path: Path,
) -> None:
    """The error has the line; comments and empty lines are skipped, '=' may be in a password."""
    path = tmp_path / "users"
    path.write_text("# users\n\nalice=a=b\n")
    assert read_users(path) == [("alice", "a=b")]
    path.write_text("alice=x\ncanary\n")
    with pytest.raises(ConfigError, match="line 2 of") as refused:
        read_users(path)
    assert "canary" not in str(refused.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_users(tmp_path / "none")


def test_a_plain_password_is_that_of_the_users_first_mechanism() -> None:
    """A later change of only the second mechanism does not change the password."""
    found = Credentials(MemoryStore())
    found.change({("alice", "SCRAM-SHA-512"): from_password("SCRAM-SHA-512", "later")})
    assert found.is_password("alice", "later")
    found.change({("alice", "SCRAM-SHA-256"): from_password("SCRAM-SHA-256", "first")})
    assert [found.is_password("alice", one) for one in ("first", "later")] == [True, False]


def test_a_known_password_is_completed_for_the_mechanism_that_lacks_it() -> None:
    """A tool created the user for a single mechanism; the file of users is for all."""
    users = Credentials(MemoryStore())
    users.change({("alice", MECHANISMS[0]): from_password(MECHANISMS[0], "secret")})
    users.set_password("alice", "secret")
    assert list(users) == [("alice", mechanism) for mechanism in MECHANISMS]


AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
CERTIFICATES = {"ssl.client.auth": "required", "ssl.truststore.location": "ca.pem"}


@pytest.mark.parametrize(
    ("protocol", "address", "given", "warns"),
    [
        ("PLAINTEXT", "0.0.0.0", {}, True),
        ("PLAINTEXT", "::", {}, True),
        ("PLAINTEXT", "127.0.0.1", {}, False),
        ("PLAINTEXT", "0.0.0.0", CERTIFICATES, True),
        ("PLAINTEXT", "0.0.0.0", AUTHORIZER, False),
        ("SSL", "0.0.0.0", {}, True),
        ("SSL", "0.0.0.0", CERTIFICATES, False),
        ("SASL_PLAINTEXT", "0.0.0.0", {}, False),
    ],
)
def test_a_listener_that_lets_every_client_of_the_network_in_is_a_warning(
    protocol: str,
    address: str,
    given: dict[str, str],
    warns: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The warning names the listener; the socket's address counts, not the setting."""
    listener = Listener(protocol, "any", 9092)
    warn_if_open(listener, ["10.0.0.1", address], Settings.parse(given))
    found = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text.startswith(f"{listener} accepts every client") for text in found] == [True] * warns


async def test_a_listener_is_looked_at_with_the_addresses_of_its_sockets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each broker checks at its start, embedded or not."""
    seen: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(
        server, "warn_if_open", lambda one, addresses, _: seen.append((str(one), list(addresses)))
    )
    async with EmbeddedBroker() as broker:
        assert seen == [(f"PLAINTEXT://{broker.bootstrap}", ["127.0.0.1"])]


def test_a_start_that_fails_at_its_users_leaves_the_store_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start can open the store."""

    def full(*arguments: object) -> None:
        raise StoreFailed("no space")

    with monkeypatch.context() as patched:
        patched.setattr(Credentials, "set_password", full)
        with pytest.raises(StoreFailed):
            EmbeddedBroker(tmp_path, users={"alice": "secret"}).__enter__()
    with EmbeddedBroker(tmp_path, users={"alice": "secret"}) as broker:
        assert broker.call(lambda node: len(node.credentials)) == len(MECHANISMS)
