"""Small facts of log-ins, rules, certificates and limits, with the opposite case beside each."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from faust_assigner.broker import housekeeping, limits, throttle
from faust_assigner.broker.answers import is_long
from faust_assigner.broker.groups.timers import GroupTimers
from faust_assigner.broker.groups.topic_notifier import TopicNotifier
from faust_assigner.broker.metadata_cache import MetadataCache
from faust_assigner.broker.security import gate as gate_module
from faust_assigner.broker.security.acls import ALLOW, LITERAL, READ, TOPIC, Acl
from faust_assigner.broker.security.authorizer import distinguished_name
from faust_assigner.broker.security.credentials import Credentials, from_password, read_users
from faust_assigner.broker.security.gate import FailedLogIns, Gate, LogInFailed
from faust_assigner.broker.security.tls import Certificates
from faust_assigner.broker.storage.store import MemoryStore
from faust_assigner.broker.throttle import HandlerQueue
from faust_assigner.errors import ConfigError


@pytest.mark.parametrize(
    ("principal", "is_valid"),
    [
        ("User:a", True),
        ("User:", False),
        (":a", False),
        ("User", False),
        ("", False),
        ("A:b:c", True),
    ],
)
def test_a_rule_names_a_type_and_a_name(principal: str, is_valid: bool) -> None:
    """The error quotes the principal."""
    problem = Acl(TOPIC, "t", LITERAL, principal, "*", READ, ALLOW).problem()
    assert problem == (None if is_valid else f"the principal {principal!r} is not TYPE:NAME")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("#shop", "\\#shop"),
        ("sh#op", "sh#op"),
        (" shop ", "\\ shop\\ "),
        (" ", "\\ "),
        ('a,+"\\<>;b', 'a\\,\\+\\"\\\\\\<\\>\\;b'),
    ],
)
def test_a_certificates_name_is_escaped_as_in_rfc_2253(name: str, shown: str) -> None:
    """Attributes are in reverse order; several attributes of a part are joined by a plus sign."""
    subject = ((("countryName", "DE"),), (("commonName", name), ("odd", "x")))
    assert distinguished_name({"subject": subject}) == f"CN={shown}+odd=x,C=DE"


@pytest.mark.parametrize("content", [b"ann=\xff\n", None])
def test_a_file_of_users_that_cannot_be_read_is_named(
    content: bytes | None, tmp_path: Path
) -> None:
    """The message does not quote the file."""
    file = tmp_path / "users"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        read_users(file)
    assert str(refused.value) == f"sasl.users.file cannot be read: {file}"


def test_users_are_read_from_their_lines(tmp_path: Path) -> None:
    """Passwords keep blanks and equals signs; the wrong line has its number."""
    file = tmp_path / "users"
    file.write_text("# comment\n\n ann = a=b \nbob=x\n")
    assert read_users(file) == [("ann", " a=b "), ("bob", "x")]
    file.write_text("ann=a\n# comment\nbob\n")
    with pytest.raises(ConfigError) as refused:
        read_users(file)
    assert str(refused.value) == f"line 3 of {file} is not NAME=PASSWORD"


def test_a_given_salt_is_used_even_if_it_is_empty() -> None:
    """Without a salt each credential gets its own of 16 bytes."""
    assert from_password("SCRAM-SHA-256", "p", b"", 1).salt == b""
    one, two = (from_password("SCRAM-SHA-256", "p", iterations=1).salt for _ in range(2))
    assert (len(one), len(two)) == (16, 16)
    assert one != two


async def test_a_peer_may_send_nothing_while_its_failed_log_in_is_delayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The delay doubles for the next connection of the address."""
    seen: list[tuple[float, bool, bool]] = []
    gates: list[Gate] = []

    async def sleep(seconds: float) -> None:
        seen.append((seconds, gates[-1].has_failed, gates[-1].admits(36)))

    monkeypatch.setattr(gate_module, "asyncio", SimpleNamespace(sleep=sleep))
    failures = FailedLogIns(100, lambda: 5.0)

    async def aside(work: Any) -> bool:
        return bool(work())

    for _ in range(2):
        gates.append(Gate(Credentials(MemoryStore()), ("PLAIN",), failures, "h", aside))
        assert gates[-1].choose("PLAIN", is_raw=False)
        assert gates[-1].admits(36)
        with pytest.raises(LogInFailed, match="is wrong"):
            await gates[-1].answer(b"\0ann")
    assert seen == [(0.1, True, False), (0.2, True, False)]


def test_new_connections_get_the_context_of_the_latest_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The listeners keep the first context, which hands each connection over to the latest one."""
    stamps = [((1, 1),), ((1, 1),), ((2, 1),), ((2, 2),), (), ((2, 2),)]
    loaded: list[Any] = []

    def load(self: Certificates) -> Any:
        loaded.append(SimpleNamespace(sni_callback=None))
        if len(loaded) == 3:
            raise ConfigError("an encrypted key")
        return loaded[-1]

    monkeypatch.setattr(Certificates, "_stamps", lambda self: stamps.pop(0))
    monkeypatch.setattr(Certificates, "_load", load)
    certificates = Certificates(cast(Any, None))
    peer = cast(Any, SimpleNamespace(context=None))
    found = []
    for _ in range(5):
        found.append(certificates.reload())
        loaded[0].sni_callback(peer, "name", None)
        found.append(loaded.index(peer.context))
        assert certificates.context is loaded[0]
    assert found == [False, 0, True, 1, False, 1, False, 1, False, 1]


@pytest.mark.parametrize(
    ("values", "elements", "size", "is_so"),
    [
        ({"a": [1, 2, 3], "b": "12"}, 3, 2, False),
        ({"a": [1, 2, 3], "b": "12"}, 2, 2, True),
        ({"a": [1, 2, 3], "b": "12"}, 3, 1, True),
        ({"a": [{"c": b"123"}, {"c": "45"}], "n": 9}, 2, 5, False),
        ({"a": [{"c": b"123"}, {"c": "45"}], "n": 9}, 2, 4, True),
        ({"a": [{"c": (1, 2)}, {"c": (3,)}]}, 5, 0, False),
        ({"a": [{"c": (1, 2)}, {"c": (3,)}]}, 4, 0, True),
        ({}, 0, 0, False),
    ],
)
def test_an_answer_is_long_beyond_either_limit(
    values: Any, elements: int, size: int, is_so: bool
) -> None:
    """Exactly as many elements, bytes and characters as allowed are short."""
    assert is_long(values, elements, size) is is_so


async def test_closed_timers_and_notifiers_do_nothing_more() -> None:
    """A timer that is set afterwards never rings, and no group is told of an earlier change."""
    rung: list[Any] = []
    timers = GroupTimers(lambda: 1_000, rung.append)
    timers.start(asyncio.get_running_loop())
    timers.set("before", 1_000)
    timers.close()
    timers.set("after", 1_000)
    told: list[str] = []
    notifier = TopicNotifier(cast(Any, []))
    notifier.start(asyncio.get_running_loop(), HandlerQueue(), lambda: iter([told.append("group")]))
    notifier.rights_changed()
    waiting = notifier.update
    assert waiting is not None
    notifier.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert waiting.cancelled()
    notifier.rights_changed()
    assert notifier.update is waiting
    assert (rung, told) == ([], [])
    idle = TopicNotifier(cast(Any, []))
    idle.start(asyncio.get_running_loop(), HandlerQueue(), lambda: iter([told.append("group")]))
    idle.close()
    idle.changed("t")
    assert idle.update is None


async def test_an_update_of_many_groups_gives_its_place_in_the_line_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each group takes 40 s; otherwise four updates would stop all long handlers."""
    times = itertools.count(0, 40)
    monkeypatch.setattr(throttle, "time", SimpleNamespace(monotonic=lambda: next(times)))
    line, places = HandlerQueue(), []
    notifier = TopicNotifier(cast(Any, []))
    for _ in range(5):
        notifier.start(
            asyncio.get_running_loop(),
            line,
            lambda: (places.append(line.places.locked()) for _ in range(3)),
        )
        notifier.rights_changed()
        assert notifier.update is not None
        await notifier.update
        assert notifier.update is None
    assert places == [False] * 15
    assert [line.places.locked() or await line.places.acquire() for _ in range(4)] == [True] * 4


async def test_a_chore_may_take_longer_than_any_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step takes 40 s; the place of the chore in the line is free afterwards."""
    times = itertools.count(0, 40)
    monkeypatch.setattr(throttle, "time", SimpleNamespace(monotonic=lambda: next(times)))
    steps: list[int] = []

    def chore() -> Iterator[int]:
        for step in range(5):
            steps.append(step)
            yield step
        raise asyncio.CancelledError

    line = HandlerQueue()
    with pytest.raises(asyncio.CancelledError):
        await housekeeping.repeat(line, 0, chore)
    assert steps == [0, 1, 2, 3, 4]
    assert line.places._value == throttle.LONG_AT_A_TIME


async def test_answers_of_an_earlier_version_take_no_room_in_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten bytes are kept: the two answers after the change are both there, a third one clears them."""
    monkeypatch.setattr(limits, "CACHED_METADATA_BYTES", 10)
    version, made = [1], list[str]()
    cache = MetadataCache(lambda: version[0])

    async def get(key: str, size: int) -> None:
        async def make() -> bytes:
            made.append(key)
            return bytes(size)

        assert await cache.get(key, make) == bytes(size)

    await get("old", 8)
    version[0] = 2
    for key, size in (("a", 2), ("b", 8), ("a", 2), ("b", 8)):
        await get(key, size)
    assert made == ["old", "a", "b"]
    for key, size in (("c", 1), ("c", 1), ("b", 8), ("a", 2)):
        await get(key, size)
    assert made == ["old", "a", "b", "c", "b", "a"]
