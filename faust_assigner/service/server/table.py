"""The options of ``faust-assigner serve``; each is a flag and a variable ``FAUST_ASSIGNER_*``.

``page.py`` makes the table of docs/reference/service.md from these options.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from faust_assigner.service.settings import ServiceSettings
from faust_assigner.settings.schema import SWITCH, TEXT, Kind, Setting, number, one_of, whole

_DEFAULTS: Final = ServiceSettings()


def address(said: Any) -> tuple[str, int]:
    """Parse ``HOST:PORT``, with brackets around an IPv6 host. Raises ValueError."""
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
LIST: Final = Kind("names, separated by commas", _list)
URLS: Final = Kind("URLs http(s)://HOST:PORT, separated by commas", _urls)
TOPICS: Final = Kind("NAME=COUNT, each name once, separated by commas", _topics)
FILE: Final = Kind("an existing file", _file)
LEVEL: Final = one_of("debug", "info", "warning", "error")
_SECONDS: Final = number("seconds above 0")
_OR_ZERO: Final = number("0 or more seconds", least=0.0)
_ONE: Final = whole("a whole number above 0", least=1)
_REPLICAS: Final = whole("0 or more", least=0)
#: The names of values in a help line, for kinds with a long description.
_SHORT: Final = {
    LIST: "NAME,...",
    URLS: "URL,...",
    TOPICS: "NAME=COUNT",
    FILE: "FILE",
    LEVEL: "LEVEL",
    TEXT: "TEXT",
    _SECONDS: "SECONDS",
    _OR_ZERO: "SECONDS",
    _ONE: "COUNT",
    _REPLICAS: "COUNT",
}


def _setting(
    name: str, kind: Kind[Any], default: Any, unit: str, meaning: str, shown: str = ""
) -> Setting[Any]:
    return Setting(f"FAUST_ASSIGNER_{name}", kind, default, unit, meaning, shown, False)


OPTIONS: Final[tuple[Setting[Any], ...]] = (
    _setting(
        "BIND", ADDRESS, ("127.0.0.1", 50051), "", "where consumers connect", "127.0.0.1:50051"
    ),
    _setting(
        "ETCD",
        URLS,
        (),
        "",
        "etcd's endpoints, `http://host:port`; without them the state is in memory",
        "none",
    ),
    _setting("PREFIX", TEXT, _DEFAULTS.prefix, "", "the prefix of all keys in etcd"),
    _setting(
        "GROUPS",
        LIST,
        (),
        "",
        "the groups of the service; each group has the prefix `PREFIX/NAME/` and a separate leader",
        "none: one group, under the prefix itself",
    ),
    _setting(
        "TOPIC",
        TOPICS,
        {},
        "",
        "topics and their partition counts; may be repeated; with `--groups` as `GROUP/NAME=COUNT`",
        "none",
    ),
    _setting(
        "KAFKA",
        TEXT,
        None,
        "",
        "Kafka's `host:port`, to read the partition counts of topics",
        "none",
    ),
    _setting(
        "TOPIC_REFRESH",
        _SECONDS,
        _DEFAULTS.topic_refresh_s,
        "seconds",
        "how often the leader reads the partition counts from Kafka",
    ),
    _setting(
        "CONSUMER_TTL",
        _SECONDS,
        _DEFAULTS.consumer_ttl_s,
        "seconds",
        "the lease of a consumer: a silent consumer is removed after this time",
    ),
    _setting(
        "CONSUMER_KEEPALIVE",
        _SECONDS,
        _DEFAULTS.consumer_keepalive_s,
        "seconds",
        "how often a consumer's lease is renewed",
    ),
    _setting(
        "LEADER_TTL",
        _SECONDS,
        _DEFAULTS.leader_ttl_s,
        "seconds",
        "the lease of the leader: a silent leader is replaced after this time",
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
        "how long the leader collects joins and leaves before a rebalance",
    ),
    _setting(
        "HANDOFF_TIMEOUT",
        _SECONDS,
        _DEFAULTS.handoff_timeout_s,
        "seconds",
        "the time limit of a hand-off, which then ends without a move",
    ),
    _setting(
        "RELEASE_TIMEOUT",
        _SECONDS,
        _DEFAULTS.release_timeout_s,
        "seconds",
        "the time limit of a release; then the old owner is expelled (`--strict`)",
    ),
    _setting(
        "COOLDOWN",
        _OR_ZERO,
        _DEFAULTS.cooldown_s,
        "seconds",
        "the cool-down of a consumer that could not warm a partition",
    ),
    _setting(
        "REBALANCE_DELAY",
        _OR_ZERO,
        _DEFAULTS.rebalance_delay_s,
        "seconds",
        "after all consumers were gone: how long returned consumers wait for the remaining ones",
    ),
    _setting(
        "STRICT",
        SWITCH,
        _DEFAULTS.strict,
        "",
        "the old owner stops before the new one starts; `--no-strict` allows two owners at a time",
    ),
    _setting("MAX_HANDOFFS", _ONE, _DEFAULTS.max_handoffs, "", "concurrent hand-offs of the group"),
    _setting(
        "MAX_HANDOFFS_PER_CONSUMER",
        _ONE,
        _DEFAULTS.max_handoffs_per_consumer,
        "",
        "concurrent hand-offs to one new owner",
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
        "the length of a slow consumer's command queue; a longer queue is replaced by a fresh "
        "assignment",
    ),
    _setting("MAX_CALLS", _ONE, 20_000, "", "concurrent streams and calls; more are refused"),
    _setting(
        "MAX_CONNECTION_AGE",
        _OR_ZERO,
        1800.0,
        "seconds",
        "the age at which a connection is closed, so that load balancers spread the consumers "
        "again; 0: never",
    ),
    _setting("TLS_CERT", FILE, None, "", "the service's certificate, PEM", "none: no encryption"),
    _setting("TLS_KEY", FILE, None, "", "its key, PEM", "none"),
    _setting(
        "TLS_CLIENT_CA",
        FILE,
        None,
        "",
        "the authority of consumers' certificates, PEM; a consumer's name must equal the name "
        "in its certificate, or match a certificate's name that ends with `*`",
        "none",
    ),
    _setting(
        "TOKENS",
        FILE,
        None,
        "",
        "a file of lines `NAME TOKEN` or `NAME sha256:HEX`; a consumer's name must equal its "
        "token's name, or match a token's name that ends with `*`",
        "none",
    ),
    _setting("ADMINS", LIST, (), "", "the names that may use the operators' calls", "none"),
    _setting(
        "INSECURE", SWITCH, False, "", "listen beyond loopback without encryption or authentication"
    ),
    _setting("ETCD_CA", FILE, None, "", "the authority of etcd's certificate, PEM", "none"),
    _setting("ETCD_CERT", FILE, None, "", "the service's certificate for etcd, PEM", "none"),
    _setting("ETCD_KEY", FILE, None, "", "its key, PEM", "none"),
    _setting("ETCD_USER", TEXT, "", "", "the user at etcd", "none"),
    _setting(
        "ETCD_PASSWORD",
        TEXT,
        "",
        "",
        "the user's password; give it in the environment, where `ps` does not show it",
        "none",
    ),
    _setting(
        "METRICS",
        ADDRESS,
        None,
        "",
        "the address of the metrics for Prometheus",
        "none: no metrics",
    ),
    _setting(
        "HEALTH",
        ADDRESS,
        None,
        "",
        "an address that answers only gRPC health probes, without TLS, such as the probes of "
        "Kubernetes",
        "none: the consumers' port alone answers them",
    ),
    _setting("LOG_LEVEL", LEVEL, "info", "", "the lowest level of logged lines"),
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


def flag(setting: Setting[Any]) -> str:
    """Return the flag of a setting: ``FAUST_ASSIGNER_LEADER_TTL`` -> ``--leader-ttl``."""
    return "--" + setting.name.removeprefix("FAUST_ASSIGNER_").lower().replace("_", "-")


def metavar(setting: Setting[Any]) -> str:
    """Return the name of the setting's value in the help."""
    return _SHORT.get(setting.kind, setting.kind.words)


def shown(setting: Setting[Any]) -> str:
    """Return the default as text."""
    if setting.shown:
        return setting.shown
    if isinstance(setting.default, bool):
        return "1" if setting.default else "0"
    return f"{setting.default:g}" if isinstance(setting.default, float) else str(setting.default)
