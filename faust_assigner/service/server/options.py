"""Every option of ``faust-assigner serve``: a flag and ``FAUST_ASSIGNER_*`` in the environment, one table.

The table of docs/reference/service.md is made from it, see ``page.py``.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from faust_assigner.errors import ConfigError
from faust_assigner.service.server.auth import (
    CertificateDoor,
    Door,
    OpenDoor,
    TokenDoor,
    read_tokens,
)
from faust_assigner.service.settings import ServiceSettings
from faust_assigner.settings.schema import SWITCH, TEXT, Kind, Setting, number, read, whole

_DEFAULTS: Final = ServiceSettings()


def address(said: Any) -> tuple[str, int]:
    """``HOST:PORT``, with brackets around an IPv6 host. Raises ValueError."""
    found = re.fullmatch(r"\[?([^\[\]]+?)\]?:(\d{1,5})", str(said))
    if found is None or int(found[2]) > 65_535:
        raise ValueError(said)
    return found[1], int(found[2])


def _list(said: Any) -> tuple[str, ...]:
    words = said.split(",") if isinstance(said, str) else said
    return tuple(word.strip() for word in words if word.strip())


def _urls(said: Any) -> tuple[str, ...]:
    found = _list(said)
    for word in found:
        scheme, slashes, rest = word.rpartition("://")
        address(rest)
        if slashes and scheme not in ("http", "https"):
            raise ValueError(word)
    return found


def _topics(said: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in _list(said):
        name, equals, count = word.partition("=")
        if not equals or not name or name in found or not count.isdecimal() or int(count) < 1:
            raise ValueError(word)
        found[name] = int(count)
    return found


def _file(said: Any) -> Path:
    path = Path(said)
    if not path.is_file():
        raise ValueError(said)
    return path


ADDRESS: Final = Kind("HOST:PORT", address)
LIST: Final = Kind("names with commas between", _list)
URLS: Final = Kind("URLs http(s)://HOST:PORT with commas between", _urls)
TOPICS: Final = Kind("NAME=COUNT, each name once, with commas between", _topics)
FILE: Final = Kind("a file that is there", _file)
_SECONDS: Final = number("seconds above 0")
_OR_ZERO: Final = number("0 or more seconds", least=0.0)
_ONE: Final = whole("a whole number above 0", least=1)
_REPLICAS: Final = whole("0 or more", least=0)
#: How a value is named in a line of help, where its kind's words are too many.
_SHORT: Final = {
    LIST: "NAME,...",
    URLS: "URL,...",
    TOPICS: "NAME=COUNT",
    FILE: "FILE",
    TEXT: "TEXT",
    _SECONDS: "SECONDS",
    _OR_ZERO: "SECONDS",
    _ONE: "COUNT",
    _REPLICAS: "COUNT",
}


def _setting(
    name: str, kind: Kind[Any], default: Any, unit: str, meaning: str, shown: str = ""
) -> Setting[Any]:
    return Setting(
        f"FAUST_ASSIGNER_{name}", kind, default, unit, meaning, "service/server", shown, False
    )


OPTIONS: Final[tuple[Setting[Any], ...]] = (
    _setting(
        "BIND", ADDRESS, ("127.0.0.1", 50051), "", "where consumers connect", "127.0.0.1:50051"
    ),
    _setting(
        "ETCD",
        URLS,
        (),
        "",
        "etcd's endpoints, `http://host:port`; the state is in memory without",
        "none",
    ),
    _setting("PREFIX", TEXT, _DEFAULTS.prefix, "", "of all keys in etcd: one prefix, one group"),
    _setting("TOPIC", TOPICS, {}, "", "topics and their partition counts; may be repeated", "none"),
    _setting(
        "KAFKA", TEXT, None, "", "Kafka's `host:port`, asked for the counts of topics", "none"
    ),
    _setting(
        "CONSUMER_TTL",
        _SECONDS,
        _DEFAULTS.consumer_ttl_s,
        "seconds",
        "how long a silent consumer is waited for",
    ),
    _setting(
        "CONSUMER_KEEPALIVE",
        _SECONDS,
        _DEFAULTS.consumer_keepalive_s,
        "seconds",
        "how often its lease is renewed",
    ),
    _setting(
        "LEADER_TTL",
        _SECONDS,
        _DEFAULTS.leader_ttl_s,
        "seconds",
        "how long a silent leader is waited for",
    ),
    _setting(
        "LEADER_KEEPALIVE",
        _SECONDS,
        _DEFAULTS.leader_keepalive_s,
        "seconds",
        "how often the leader's lease is renewed",
    ),
    _setting(
        "ELECTION_RETRY",
        _SECONDS,
        _DEFAULTS.election_retry_s,
        "seconds",
        "how often a follower tries to become the leader",
    ),
    _setting(
        "DEBOUNCE",
        _OR_ZERO,
        _DEFAULTS.debounce_s,
        "seconds",
        "how long joins and leaves are gathered before a rebalance",
    ),
    _setting(
        "HANDOFF_TIMEOUT",
        _SECONDS,
        _DEFAULTS.handoff_timeout_s,
        "seconds",
        "after it a handoff is given up",
    ),
    _setting(
        "RELEASE_TIMEOUT",
        _SECONDS,
        _DEFAULTS.release_timeout_s,
        "seconds",
        "after it an old owner that has not released a partition is expelled (`--strict`)",
    ),
    _setting(
        "COOLDOWN",
        _OR_ZERO,
        _DEFAULTS.cooldown_s,
        "seconds",
        "how long a consumer that could not warm a partition is not asked again",
    ),
    _setting(
        "STRICT",
        SWITCH,
        _DEFAULTS.strict,
        "",
        "the old owner stops before the new one starts; `--no-strict` allows two owners at a time",
    ),
    _setting("MAX_HANDOFFS", _ONE, _DEFAULTS.max_handoffs, "", "handoffs at once, of the group"),
    _setting(
        "MAX_HANDOFFS_PER_CONSUMER",
        _ONE,
        _DEFAULTS.max_handoffs_per_consumer,
        "",
        "handoffs at once, of one new owner",
    ),
    _setting(
        "REPLICAS",
        _REPLICAS,
        _DEFAULTS.replicas,
        "",
        "standbys of each partition, among consumers that keep replicas",
    ),
    _setting(
        "CHANNEL",
        _ONE,
        _DEFAULTS.channel,
        "",
        "commands that wait for a slow consumer; beyond it gets a fresh assignment instead",
    ),
    _setting("MAX_CALLS", _ONE, 20_000, "", "streams and calls at once; more are refused"),
    _setting("TLS_CERT", FILE, None, "", "the service's certificate, PEM", "none: no encryption"),
    _setting("TLS_KEY", FILE, None, "", "its key, PEM", "none"),
    _setting(
        "TLS_CLIENT_CA",
        FILE,
        None,
        "",
        "who signs consumers' certificates, PEM; a consumer's name is then its certificate's",
        "none",
    ),
    _setting(
        "TOKENS",
        FILE,
        None,
        "",
        "a file of lines `NAME TOKEN` or `NAME sha256:HEX`; a consumer's name is then its token's",
        "none",
    ),
    _setting("ADMINS", LIST, (), "", "the names that may use the operators' calls", "none"),
    _setting(
        "INSECURE", SWITCH, False, "", "listen beyond loopback without encryption or authentication"
    ),
    _setting("ETCD_CA", FILE, None, "", "who signs etcd's certificate, PEM", "none"),
    _setting("ETCD_CERT", FILE, None, "", "the service's certificate for etcd, PEM", "none"),
    _setting("ETCD_KEY", FILE, None, "", "its key, PEM", "none"),
    _setting("ETCD_USER", TEXT, "", "", "the user at etcd", "none"),
    _setting(
        "ETCD_PASSWORD", TEXT, "", "", "the user's password; better said in the environment", "none"
    ),
    _setting(
        "METRICS", ADDRESS, None, "", "where Prometheus finds the metrics", "none: no metrics"
    ),
    _setting(
        "NODE",
        TEXT,
        "",
        "",
        "this instance's name in the leader's key",
        "the machine's name and the process id",
    ),
)
BY_NAME: Final = {
    setting.name.removeprefix("FAUST_ASSIGNER_").lower(): setting for setting in OPTIONS
}


@dataclass(frozen=True)
class Options:
    """What ``serve`` was asked for, by the options' names in small letters."""

    said: Mapping[str, Any]
    settings: ServiceSettings

    @classmethod
    def read(cls, arguments: Mapping[str, object], environment: Mapping[str, str]) -> Options:
        """Arguments before the environment before the defaults. Raises ConfigError, in the flags' names."""
        try:
            return cls._read(arguments, environment)
        except ConfigError as error:
            raise ConfigError(_in_flags(str(error))) from None

    @classmethod
    def _read(cls, arguments: Mapping[str, object], environment: Mapping[str, str]) -> Options:
        said = {
            name: read(setting, argument=arguments.get(name), environment=environment)
            for name, setting in BY_NAME.items()
        }
        for name in ("consumer", "leader"):
            # A short time to live needs no second option: its keepalive follows.
            keepalive = BY_NAME[f"{name}_keepalive"]
            if not (arguments.get(f"{name}_keepalive") or environment.get(keepalive.name)):
                said[f"{name}_keepalive"] = min(said[f"{name}_keepalive"], said[f"{name}_ttl"] / 3)
        release = BY_NAME["release_timeout"]
        if not (arguments.get("release_timeout") or environment.get(release.name)):
            said["release_timeout"] = min(said["release_timeout"], said["handoff_timeout"])
        settings = ServiceSettings(
            prefix=said["prefix"],
            strict=said["strict"],
            replicas=said["replicas"],
            channel=said["channel"],
            max_handoffs=said["max_handoffs"],
            max_handoffs_per_consumer=said["max_handoffs_per_consumer"],
            **{
                f"{name}_s": said[name]
                for name in (
                    "consumer_ttl",
                    "consumer_keepalive",
                    "leader_ttl",
                    "leader_keepalive",
                    "election_retry",
                    "debounce",
                    "handoff_timeout",
                    "release_timeout",
                    "cooldown",
                )
            },
        )
        options = cls(said, settings)
        options._check()
        return options

    def _check(self) -> None:
        said = self.said
        if bool(said["tls_cert"]) != bool(said["tls_key"]):
            raise ConfigError("--tls-cert and --tls-key go together")
        if said["tls_client_ca"] and not said["tls_cert"]:
            raise ConfigError("--tls-client-ca wants --tls-cert and --tls-key")
        if said["insecure"] or is_loopback(said["bind"][0]):
            return
        if not said["tls_cert"]:
            raise ConfigError(
                f"{said['bind'][0]} is not loopback: give --tls-cert and --tls-key, or --insecure"
            )
        if not (said["tokens"] or said["tls_client_ca"]):
            raise ConfigError(
                f"{said['bind'][0]} is not loopback: "
                "give --tokens or --tls-client-ca, or --insecure"
            )

    def check_files(self) -> None:
        """Raises ConfigError for what is no certificate, or not its key: gRPC would blame the address."""
        said, context = self.said, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for role in ("tls", "etcd"):
            if said[f"{role}_cert"] and said[f"{role}_key"]:
                with _loaded(f"--{role}-cert and --{role}-key", "a certificate and its key"):
                    # Without the empty password somebody would be asked for that of an encrypted key.
                    context.load_cert_chain(said[f"{role}_cert"], said[f"{role}_key"], password="")
        for name in ("tls_client_ca", "etcd_ca"):
            if said[name]:
                with _loaded(flag(BY_NAME[name]), "certificates"):
                    context.load_verify_locations(said[name])

    def door(self) -> Door:
        """Who may come in. Raises ConfigError."""
        if self.said["tokens"]:
            return TokenDoor(read_tokens(self.said["tokens"]), self.said["admins"])
        return CertificateDoor(self.said["admins"]) if self.said["tls_client_ca"] else OpenDoor()


@contextlib.contextmanager
def _loaded(flags: str, what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ConfigError(f"{flags}: not {what} in PEM: {why}") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def flag(setting: Setting[Any]) -> str:
    """``FAUST_ASSIGNER_LEADER_TTL`` -> ``--leader-ttl``."""
    return "--" + setting.name.removeprefix("FAUST_ASSIGNER_").lower().replace("_", "-")


def metavar(setting: Setting[Any]) -> str:
    """Its value's name in the help."""
    return _SHORT.get(setting.kind, setting.kind.words)


def _in_flags(error: str) -> str:
    """A setting that cannot be, as whoever typed it knows it."""
    first, _, rest = error.partition(" ")
    for name, setting in BY_NAME.items():
        first = f"{flag(setting)} ({first})" if first == setting.name else first
        first = flag(setting) if first in (name, f"{name}_s") else first
        rest = rest.replace(f" {name}_s ", f" {flag(setting)} ")
    return f"{first} {rest}"


def shown(setting: Setting[Any]) -> str:
    """The default in words."""
    if setting.shown:
        return setting.shown
    if isinstance(setting.default, bool):
        return "1" if setting.default else "0"
    return f"{setting.default:g}" if isinstance(setting.default, float) else str(setting.default)
