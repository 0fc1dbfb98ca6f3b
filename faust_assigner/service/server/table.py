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
LIST: Final = Kind("names with commas between", _list)
URLS: Final = Kind("URLs http(s)://HOST:PORT with commas between", _urls)
TOPICS: Final = Kind("NAME=COUNT, each name once, with commas between", _topics)
FILE: Final = Kind("a file that is there", _file)
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
    _setting("PREFIX", TEXT, _DEFAULTS.prefix, "", "of all keys in etcd"),
    _setting(
        "GROUPS",
        LIST,
        (),
        "",
        "the groups of the service, each with the prefix `PREFIX/NAME/` and a leader of its own",
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
        "KAFKA", TEXT, None, "", "Kafka's `host:port`, asked for the counts of topics", "none"
    ),
    _setting(
        "TOPIC_REFRESH",
        _SECONDS,
        _DEFAULTS.topic_refresh_s,
        "seconds",
        "how often the leader asks Kafka for the counts of topics",
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
        "REBALANCE_DELAY",
        _OR_ZERO,
        _DEFAULTS.rebalance_delay_s,
        "seconds",
        "how long, after all consumers were gone, those that are back wait for the others",
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
    _setting(
        "MAX_CONNECTION_AGE",
        _OR_ZERO,
        1800.0,
        "seconds",
        "after it a connection is closed, so that load balancers spread consumers anew; 0: never",
    ),
    _setting("TLS_CERT", FILE, None, "", "the service's certificate, PEM", "none: no encryption"),
    _setting("TLS_KEY", FILE, None, "", "its key, PEM", "none"),
    _setting(
        "TLS_CLIENT_CA",
        FILE,
        None,
        "",
        "who signs consumers' certificates, PEM; a consumer's name is then its certificate's, or begins with "
        "the certificate's name up to a `*` at its end",
        "none",
    ),
    _setting(
        "TOKENS",
        FILE,
        None,
        "",
        "a file of lines `NAME TOKEN` or `NAME sha256:HEX`; a consumer's name is then its token's, or begins "
        "with it up to a `*` at its end",
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
        "HEALTH",
        ADDRESS,
        None,
        "",
        "where gRPC health probes are answered without TLS, as those of Kubernetes; nothing else is",
        "none: only where consumers connect",
    ),
    _setting("LOG_LEVEL", LEVEL, "info", "", "the least urgent lines that are logged"),
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
