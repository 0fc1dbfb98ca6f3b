"""The log-in of a connection: the messages that admit a peer, and the end of failed log-ins."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest
from scramp import ScramClient

from faust_assigner.broker.api import APIS, sasl
from faust_assigner.broker.connection import Connection
from faust_assigner.broker.security import gate as module
from faust_assigner.broker.security.credentials import (
    ITERATIONS,
    LONGEST_SALT,
    LONGEST_USER,
    MECHANISMS,
    MOST_ITERATIONS,
    Credentials,
    from_password,
)
from faust_assigner.broker.security.gate import FRAME_BYTES, PLAIN, FailedLogIns, Gate, LogInFailed
from faust_assigner.broker.security.listeners import Listener
from faust_assigner.broker.storage.store import MemoryStore
from tests.support.asking import ask
from tests.support.hall import Hall, Wire, frames, in_hall

SCRAM = MECHANISMS[0]
FETCH, METADATA, API_VERSIONS, HANDSHAKE, AUTHENTICATE, DESCRIBE, ALTER = 1, 3, 18, 17, 36, 50, 51
POLICY_VIOLATION = 44
FAILED, UNSUPPORTED_MECHANISM, ILLEGAL_STATE, NOT_FOUND, DUPLICATE, UNACCEPTABLE = (
    58,
    33,
    34,
    91,
    92,
    93,
)


@pytest.fixture
def users() -> Credentials:
    """Return credentials with alice, whose password is "secret"."""
    found = Credentials(MemoryStore())
    found.set_password("alice", "secret")
    return found


def gate(
    users: Credentials,
    mechanism: str = "",
    address: str = "a",
    failures: FailedLogIns | None = None,
) -> Gate:
    """Return a connection's gate with ``mechanism`` chosen; by default no answer is delayed."""

    async def aside(work: Any) -> bool:
        return bool(work())

    offered = (PLAIN, SCRAM)
    made = Gate(users, offered, failures or FailedLogIns(0, lambda: 0.0), address, aside)
    assert not mechanism or made.choose(mechanism, is_raw=False)
    return made


async def begin(door: Gate, user: str, password: str) -> ScramClient:
    """Send the first of SCRAM's two messages and process the answer."""
    client = ScramClient([SCRAM], user, password)
    answer = await door.answer(client.get_client_first().encode())
    client.set_server_first(answer.decode())
    return client


async def test_a_right_password_lets_a_user_in_by_either_mechanism(users: Credentials) -> None:
    """The broker also proves to a SCRAM client that it knows the password."""
    door = gate(users, SCRAM)
    client = await begin(door, "alice", "secret")
    client.set_server_final((await door.answer(client.get_client_final().encode())).decode())
    assert (door.user, door.is_open) == ("alice", True)
    for token in (b"\0alice\0secret", b"alice\0alice\0secret"):  # with and without authorization id
        door = gate(users, PLAIN)
        assert await door.answer(token) == b""
        assert (door.user, door.is_open) == ("alice", True)


@pytest.mark.parametrize(("user", "password"), [("alice", "secret2"), ("bob", "secret")])
async def test_a_wrong_password_and_an_unknown_user_are_refused_by_the_second_message(
    users: Credentials, user: str, password: str
) -> None:
    """The broker answers the first message with a salt in both cases."""
    door = gate(users, SCRAM)
    client = await begin(door, user, password)
    with pytest.raises(LogInFailed, match="the user name, the password or the message is wrong"):
        await door.answer(client.get_client_final().encode())
    assert not door.is_open


async def test_a_proof_for_another_nonce_is_refused(users: Credentials) -> None:
    """Recorded messages of a different log-in are useless."""
    recorded = (await begin(gate(users, SCRAM), "alice", "secret")).get_client_final()
    door = gate(users, SCRAM)
    client = await begin(door, "alice", "secret")
    nonce = re.search(r"r=([^,]*)", client.get_client_final())
    assert nonce is not None
    for final in (recorded, re.sub(r"r=[^,]*", f"r={nonce[1]}", recorded)):
        door = gate(users, SCRAM)
        await begin(door, "alice", "secret")
        with pytest.raises(LogInFailed):
            await door.answer(final.encode())


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0secret2",
        b"\0bob\0secret",
        b"bob\0alice\0secret",
        b"\0alice\0",
        b"\0\0secret",
        b"alice\0secret",
        b"\0alice\0secret\0",
        b"\xff\0alice\0secret",
        b"",
    ],
)
async def test_any_other_plain_message_is_refused(users: Credentials, token: bytes) -> None:
    """A user cannot act as a different user, and an empty password is no password."""
    door = gate(users, PLAIN)
    with pytest.raises(LogInFailed):
        await door.answer(token)
    assert not door.is_open


async def test_an_empty_password_is_refused_also_where_it_is_the_users(users: Credentials) -> None:
    """Otherwise a user with an empty password would be open to every client."""
    users.set_password("alice", "")
    with pytest.raises(LogInFailed):
        await gate(users, PLAIN).answer(b"\0alice\0")


async def test_a_made_up_credential_never_lets_a_peer_in(
    users: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right proof for an unknown user is refused as well."""
    monkeypatch.setattr(
        users, "fake_credential", lambda user, mechanism: from_password(mechanism, "x")
    )
    assert not users.is_password("bob", "x")
    door = gate(users, SCRAM)
    client = await begin(door, "bob", "x")
    with pytest.raises(LogInFailed):
        await door.answer(client.get_client_final().encode())


async def test_a_user_who_is_deleted_cannot_log_in_any_more(users: Credentials) -> None:
    """A log-in in progress fails, and a log-in after a restart of the broker."""
    door = gate(users, SCRAM)
    client = await begin(door, "alice", "secret")
    users.change({}, [("alice", mechanism) for mechanism in MECHANISMS])
    with pytest.raises(LogInFailed):
        await door.answer(client.get_client_final().encode())
    assert list(users) == list(Credentials(users._store)) == []
    with pytest.raises(LogInFailed):
        await gate(users, PLAIN).answer(b"\0alice\0secret")


def test_each_password_is_salted_anew_for_each_mechanism(users: Credentials) -> None:
    """Equal passwords have different keys, so a table of keys fits a single user only."""
    users.set_password("bob", "secret")
    before = {users.get(*name).salt for name in users}  # type: ignore[union-attr]
    users.set_password("bob", "other")
    after = {users.get(*name).salt for name in users}  # type: ignore[union-attr]
    assert (len(before), len(before | after)) == (4, 6)


async def test_before_log_in_three_apis_are_admitted_and_after_a_failure_none(
    users: Credentials,
) -> None:
    """After the log-in all APIs are admitted."""
    door = gate(users, PLAIN)
    admitted = {key for key in APIS if door.admits(key)}
    assert admitted == {API_VERSIONS, HANDSHAKE, AUTHENTICATE}
    await door.answer(b"\0alice\0secret")
    assert all(map(door.admits, APIS))
    door = gate(users, PLAIN)
    with pytest.raises(LogInFailed):
        await door.answer(b"")
    assert not any(map(door.admits, APIS))


@pytest.mark.parametrize("second", [False, True])
async def test_a_mechanism_that_is_not_offered_and_a_second_choice_end_the_log_in(
    users: Credentials, second: bool
) -> None:
    """A peer cannot change to the weaker mechanism after messages of the stronger mechanism."""
    door = gate(users, SCRAM if second else "")
    assert not door.choose(PLAIN if second else MECHANISMS[1], is_raw=False)
    assert not door.admits(AUTHENTICATE)


async def test_each_failure_of_an_address_waits_twice_as_long_for_its_answer(
    users: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delay counts over an address's connections and does not affect other addresses."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=sleep))
    failures = FailedLogIns(100, lambda: 0.0)
    for address in ("a", "a", "b"):
        with pytest.raises(LogInFailed):
            await gate(users, PLAIN, address, failures).answer(b"")
    assert waited == [0.1, 0.2, 0.1]


async def test_a_raw_log_in_is_followed_by_requests(users: Credentials) -> None:
    """Bare tokens end with the log-in."""
    door = gate(users)
    assert door.choose(PLAIN, is_raw=True)
    assert door.is_raw
    await door.answer(b"\0alice\0secret")
    assert not door.is_raw


async def test_a_log_in_is_not_repeated(users: Credentials) -> None:
    """A listener without SASL has no log-in."""
    door = gate(users, PLAIN)
    await door.answer(b"\0alice\0secret")
    for peer in (SimpleNamespace(gate=door), SimpleNamespace(gate=None)):
        call: Any = SimpleNamespace(peer=peer, version=1)
        handshake = sasl.handshake(call, SimpleNamespace(mechanism=PLAIN))
        answer = await sasl.authenticate(call, SimpleNamespace(auth_bytes=b"\0alice\0secret"))
        assert handshake["error_code"] == answer["error_code"] == ILLEGAL_STATE
    assert door.is_open


async def test_a_token_after_the_log_in_is_a_failure_though_it_is_right(users: Credentials) -> None:
    """A connection logs in once."""
    door = gate(users, PLAIN)
    assert await door.answer(b"\0alice\0secret") == b""
    with pytest.raises(LogInFailed):
        await door.answer(b"\0alice\0secret")
    assert door.has_failed


async def test_the_answer_to_a_failure_names_no_reason(users: Credentials) -> None:
    """A wrong password and an unknown user get the same answer."""
    answers = []
    for token in (b"\0alice\0wrong", b"\0bob\0wrong"):
        call: Any = SimpleNamespace(peer=SimpleNamespace(gate=gate(users, PLAIN)))
        answers.append(await sasl.authenticate(call, SimpleNamespace(auth_bytes=token)))
    assert answers[0] == answers[1]
    assert answers[0]["error_code"] == FAILED
    assert answers[0]["error_message"] == "Authentication failed: invalid user name or password"


@pytest.mark.parametrize("api_key", [FETCH, METADATA, DESCRIBE, ALTER])
def test_a_connection_that_asks_for_another_api_before_log_in_is_closed(api_key: int) -> None:
    """The connection gets no answer."""

    async def story(hall: Hall) -> tuple[bool, int, int]:
        peer, wire = connect(hall, "SASL_PLAINTEXT")
        values = {METADATA: {"topics": ()}, DESCRIBE: {"users": ()}}.get(api_key, {})
        version = 4 if api_key == FETCH else 0
        peer.data_received(next(frames(api_key, 1, version, **values)))
        while not wire.closed and not hall.written:
            await asyncio.sleep(0)
        return wire.closed, len(hall.written), hall.node.counters["requests_unauthenticated"]

    assert in_hall(story) == (True, 0, 1)


def connect(hall: Hall, protocol: str) -> tuple[Connection, Wire]:
    """Connect a peer to a listener of this protocol."""
    made = Connection(hall.server, Listener(protocol, "127.0.0.1", 0))
    wire = Wire("peer", hall.written)
    made.connection_made(wire)
    return made, wire


def test_a_large_request_is_not_awaited_before_log_in() -> None:
    """Unknown peers use no memory; a peer without a log-in may send up to the broker's limit."""

    async def story(hall: Hall) -> list[bool]:
        found = []
        for protocol, size in (
            ("SASL_PLAINTEXT", FRAME_BYTES),
            ("SASL_PLAINTEXT", FRAME_BYTES + 1),
            ("PLAINTEXT", FRAME_BYTES + 1),
        ):
            peer, wire = connect(hall, protocol)
            peer.data_received(size.to_bytes(4, "big"))
            found.append(wire.closed)
        return found

    assert in_hall(story) == [False, True, False]


def upsert(**more: Any) -> dict[str, Any]:
    """Return a change of a user's credential."""
    given = {"name": "u", "mechanism": 1, "iterations": ITERATIONS, "salt": b"s"}
    return {**given, "salted_password": b"p", **more}


@pytest.mark.parametrize(
    ("upsertions", "deletions", "error"),
    [
        ([upsert()], [], 0),
        ([upsert(iterations=MOST_ITERATIONS, mechanism=2)], [], 0),
        ([upsert(iterations=ITERATIONS - 1)], [], UNACCEPTABLE),
        ([upsert(iterations=MOST_ITERATIONS + 1)], [], UNACCEPTABLE),
        ([upsert(salt=b"")], [], UNACCEPTABLE),
        ([upsert(salt=b"s" * LONGEST_SALT)], [], 0),
        ([upsert(salt=b"s" * (LONGEST_SALT + 1))], [], UNACCEPTABLE),
        ([upsert(salted_password=b"")], [], UNACCEPTABLE),
        ([upsert(name="")], [], UNACCEPTABLE),
        ([upsert(name="u" * LONGEST_USER)], [], 0),
        ([upsert(name="u" * (LONGEST_USER + 1))], [], UNACCEPTABLE),
        ([upsert(mechanism=0)], [], UNSUPPORTED_MECHANISM),
        ([upsert(mechanism=3)], [], UNSUPPORTED_MECHANISM),
        ([upsert(), upsert(mechanism=2)], [], DUPLICATE),
        ([], [{"name": "u", "mechanism": 1}], NOT_FOUND),
    ],
)
def test_a_change_of_a_credential_is_made_or_refused_with_its_reason(
    upsertions: list[Any], deletions: list[Any], error: int
) -> None:
    """The number of iterations has both limits; a refused change stores no credential."""

    async def story(hall: Hall) -> tuple[int, int]:
        answer = await ask(hall, ALTER, 0, upsertions=upsertions, deletions=deletions)
        (result,) = answer.results
        return int(result.error_code), len(list(hall.node.credentials))

    assert in_hall(story) == (error, 0 if error else 1)


def test_a_description_of_a_user_has_no_salt_and_no_key() -> None:
    """The answer has only the mechanisms and their iterations."""

    async def story(hall: Hall) -> tuple[list[tuple[int, int]], str]:
        hall.node.credentials.set_password("alice", "secret")
        answer = await ask(hall, DESCRIBE, 0, users=None)
        (result,) = answer.results
        infos = [(int(one.mechanism), int(one.iterations)) for one in result.credential_infos]
        return infos, repr(answer)

    infos, text = in_hall(story)
    assert infos == [(1, ITERATIONS), (2, ITERATIONS)]
    assert not re.search("salt|key|secret", text)


def test_credentials_are_stored_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit, credentials can change and be deleted; without authorizer any client may do so."""
    monkeypatch.setattr(sasl, "MAX_CREDENTIALS", 2)

    async def story(hall: Hall) -> list[int]:
        codes = []
        for change in (upsert(), upsert(mechanism=2), upsert(name="v"), upsert(salt=b"t")):
            answer = await ask(hall, ALTER, 0, upsertions=[change], deletions=[])
            codes.append(int(answer.results[0].error_code))
        gone = [{"name": "u", "mechanism": 2}]
        await ask(hall, ALTER, 0, upsertions=[], deletions=gone)
        answer = await ask(hall, ALTER, 0, upsertions=[upsert(name="v")], deletions=[])
        return [*codes, int(answer.results[0].error_code), len(hall.node.credentials)]

    assert in_hall(story) == [0, 0, POLICY_VIOLATION, 0, 0, 2]


async def test_a_long_scram_message_is_refused_unread(
    users: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message of 64 KB before any log-in would stop the event loop for more than a second."""
    limit = module.SCRAM_BYTES
    name = "a" * (limit - len("n,,n=,r=x"))
    assert len(name) > LONGEST_USER / 2
    assert await gate(users, SCRAM).answer(f"n,,n={name},r=x".encode())
    monkeypatch.setattr(module, "ScramMechanism", None)  # an attempt to read would fail differently
    with pytest.raises(LogInFailed):
        await gate(users, SCRAM).answer(f"n,,n={name}b,r=x".encode())
