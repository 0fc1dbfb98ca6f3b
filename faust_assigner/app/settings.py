"""The assignor's own settings: from the environment, or as keywords of ``faust.App``.

``FAUST_ASSIGNER_RACK``                 where this worker stands; standbys go to other racks
``FAUST_ASSIGNER_CAPACITY``             how much load it takes beside the others, 1.0 unless given
``FAUST_ASSIGNER_GROUP_RECORD_BYTES``   what the brokers take as one group's record, 1,000,000
``FAUST_ASSIGNER_SNAPSHOTS``            folder or URL of changelog snapshots to restore tables from
``FAUST_ASSIGNER_URLS``                 workers' URLs that requests for keys may be forwarded to
``FAUST_ASSIGNER_BATCHED_REPLAY``       0 leaves the replay of changelogs to Faust's own loop

As keywords they are written in small letters: ``faust.App(..., faust_assigner_rack="eu-1a")``. Like
Faust's own settings, the environment goes first and ``env_prefix`` applies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from ipaddress import ip_network
from typing import Any, TypeVar

from mode import get_logger

from faust_assigner.errors import ConfigError, MetadataRefused
from faust_assigner.wire.bounded import read_label
from faust_assigner.wire.join import LARGEST_CAPACITY

logger = get_logger(__name__)

T = TypeVar("T")

#: Kafka's default limit for one record is 1,048,588 bytes; the group's own fields need some of it.
GROUP_RECORD_BYTES = 1_000_000


def rack_id(app: Any) -> str | None:
    """The rack, or None. Raises ConfigError."""
    value = _setting(app, "FAUST_ASSIGNER_RACK")
    if value in (None, ""):
        return None
    try:
        return read_label(value, "FAUST_ASSIGNER_RACK")
    except MetadataRefused as exc:
        raise ConfigError(str(exc)) from None


def capacity(app: Any) -> float:
    """The capacity. Raises ConfigError."""
    value = _setting(app, "FAUST_ASSIGNER_CAPACITY")
    if value in (None, ""):
        return 1.0
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 1 / LARGEST_CAPACITY <= number <= LARGEST_CAPACITY:
        raise ConfigError(f"FAUST_ASSIGNER_CAPACITY must be a number above 0, got {value!r}")
    return number


def group_record_bytes(app: Any) -> int:
    """The limit above which the directory of owners is left out. Raises ConfigError."""
    value = _setting(app, "FAUST_ASSIGNER_GROUP_RECORD_BYTES")
    if value in (None, ""):
        return GROUP_RECORD_BYTES
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise ConfigError(f"FAUST_ASSIGNER_GROUP_RECORD_BYTES must be 0 or more, got {value!r}")
    return number


def snapshots_url(app: Any) -> str | None:
    """Where snapshots of the app's changelogs are, or None."""
    value = _setting(app, "FAUST_ASSIGNER_SNAPSHOTS")
    return str(value) if value else None


def allowed_urls(app: Any) -> tuple[str, ...]:
    """Patterns of hosts and networks, in small letters; empty when none are given. Raises ConfigError."""
    value = _setting(app, "FAUST_ASSIGNER_URLS") or ()
    names = value.split(",") if isinstance(value, str) else list(value)
    patterns = tuple(str(name).strip().lower() for name in names if str(name).strip())
    for pattern in patterns:
        try:
            _ = ip_network(pattern, strict=False) if "/" in pattern else None
        except ValueError:
            raise ConfigError("FAUST_ASSIGNER_URLS must name hosts, host:port or networks like 10.0.0.0/8, "
                              f"got {pattern!r}") from None
    return patterns


def batched_replay(app: Any) -> bool:
    """Whether long replays are read in batches; yes unless the setting is 0, no, off or false."""
    value = _setting(app, "FAUST_ASSIGNER_BATCHED_REPLAY")
    return str(value).strip().lower() not in ("0", "no", "off", "false")


def instance_id(app: Any) -> str | None:
    """Faust's ``consumer_group_instance_id``: the member's name over restarts. Raises ConfigError."""
    value = app.conf.consumer_group_instance_id
    try:
        return read_label(value, "consumer_group_instance_id") if value else None
    except MetadataRefused as exc:
        raise ConfigError(str(exc)) from None


def or_default(read: Callable[[Any], T], app: Any, default: T) -> T:
    """``read(app)``, or ``default`` where the setting is wrong, which is said."""
    try:
        return read(app)
    except ConfigError as exc:
        logger.error("%s; going on with %r", exc, default)
        return default


def _setting(app: Any, name: str) -> Any:
    conf = app.conf
    for value in (conf.getenv(name), conf.env.get(name), getattr(conf, name.lower(), None)):
        if value is not None:
            return value
    # Faust's settings drop keywords they do not know; the app keeps them.
    keywords: dict[str, Any] = app._default_options[1]
    return keywords.get(name.lower(), keywords.get(name))
