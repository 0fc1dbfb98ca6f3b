"""Options that are given as nothing, the flags in errors, and what the options become."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.service.server import health as health_module
from faust_assigner.service.server import serve
from faust_assigner.service.server.auth import CertificateAuthenticator, NoAuthentication
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.health import LOOK_S, Health
from faust_assigner.service.server.metrics import PrometheusMetrics
from faust_assigner.service.server.options import Options, _error_with_flag
from faust_assigner.service.store.access import EtcdAccess


@pytest.mark.parametrize("nothing", [None, ""])
def test_an_option_that_is_given_as_nothing_is_not_given(nothing: str | None) -> None:
    """The command line passes each option, also the options that the user left out."""
    said: dict[str, Any] = {"consumer_ttl_s": "3", "leader_ttl_s": "6", "handoff_timeout_s": "9"}
    derived = ("consumer_keepalive_s", "leader_keepalive_s", "release_timeout_s")
    empty = {f"FAUST_ASSIGNER_{name.upper()}": "" for name in derived}
    found = Options.read({**said, **dict.fromkeys(derived, nothing)}, empty).settings
    assert [getattr(found, name) for name in derived] == [1.0, 2.0, 9.0]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            "leader_keepalive_s must be below two thirds of leader_ttl_s (3), got 2",
            "--leader-keepalive-s must be below two thirds of --leader-ttl-s (3), got 2",
        ),
        (
            "release_timeout_s must be below handoff_timeout_s (3)",
            "--release-timeout-s must be below --handoff-timeout-s (3)",
        ),
        ("topic_refresh_s must be above 0", "--topic-refresh-s must be above 0"),
        ("topics must be above 0", "topics must be above 0"),
        ("FAUST_ASSIGNER_TOPIC must be X", "--topic (FAUST_ASSIGNER_TOPIC) must be X"),
        ("SHOP_FAUST_ASSIGNER_TOPIC must be X", "SHOP_FAUST_ASSIGNER_TOPIC must be X"),
        ("--topic a: the bind address of debounce_s", "--topic a: the bind address of debounce_s"),
    ],
)
def test_an_error_names_the_flags_in_place_of_the_fields(error: str, told: str) -> None:
    """A name inside another name is no field; a word of the error is no flag."""
    assert _error_with_flag(error) == told


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((), NoAuthentication()),
        (("tls_cert", "tls_key"), NoAuthentication()),
        (("tls_cert", "tls_key", "tls_client_ca"), CertificateAuthenticator(("ops", "root"))),
    ],
)
def test_callers_are_known_by_certificate_only_if_the_service_asks_for_one(
    tmp_path: Path, given: tuple[str, ...], expected: Any
) -> None:
    """A service with a certificate of its own encrypts, and knows nobody."""
    (tmp_path / "file").touch()
    files = dict.fromkeys(given, str(tmp_path / "file"))
    found = Options.read({**files, "admins": "ops,root"}, {}).authenticator()
    assert type(found) is type(expected)
    assert getattr(found, "admins", None) == getattr(expected, "admins", None)


async def test_what_is_not_given_for_etcd_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An empty text would be a name or a file; each value that is given has its own place."""
    made: list[Any] = []

    class Store:
        """A store that records how it is made."""

        def __init__(self, access: EtcdAccess, observe: Any) -> None:
            made.append((access, observe))

        async def close(self) -> None:
            """Record the call."""
            made.append("closed")

    monkeypatch.setattr(serve, "EtcdStore", Store)
    for name in ("ca", "cert", "key", "tls"):
        (tmp_path / name).touch()
    given = {f"etcd_{name}": str(tmp_path / name) for name in ("ca", "cert", "key")}
    metrics = PrometheusMetrics()
    for more in ({}, {**given, "etcd_user": "u", "etcd_password": "p"}):
        options = Options.read({"etcd": "http://a:1,b:2", **more}, {})
        async with contextlib.AsyncExitStack() as ends:
            serve._open_store(options, metrics, ends)
    assert made == [
        (EtcdAccess(endpoints=("http://a:1", "b:2")), metrics.store_call),
        "closed",
        (
            EtcdAccess(
                endpoints=("http://a:1", "b:2"),
                ca=tmp_path / "ca",
                certificate=tmp_path / "cert",
                key=tmp_path / "key",
                user="u",
                password="p",
            ),
            metrics.store_call,
        ),
        "closed",
    ]


async def test_the_health_is_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look comes at once."""
    acts: list[object] = []

    class Over(Exception):
        """Ends the loop."""

    async def sleep(seconds: float) -> None:
        acts.append(seconds)
        if len(acts) == 6:
            raise Over

    async def look() -> None:
        acts.append("look")

    health: Any = Health(Groups({}))
    health.look = look
    monkeypatch.setattr(health_module.asyncio, "sleep", sleep)
    with pytest.raises(Over):
        await health.follow()
    assert acts == ["look", LOOK_S] * 3
