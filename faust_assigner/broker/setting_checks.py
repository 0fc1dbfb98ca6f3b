"""Check settings that depend on each other: listeners and their files, limits and their order."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final

from faust_assigner.broker.security.authorizer import super_users
from faust_assigner.broker.security.listeners import (
    advertised,
    listeners_of,
    mechanisms,
    parse_listeners,
)
from faust_assigner.broker.setting_kinds import kafka_name
from faust_assigner.errors import ConfigError

if TYPE_CHECKING:
    from faust_assigner.broker.settings import Settings

#: (setting, comparison that is an error, words for the message, setting to compare with)
WRONG_ORDERS: Final = (
    ("queued_max_request_bytes", operator.lt, "is below", "socket_request_max_bytes"),
    ("group_min_session_timeout_ms", operator.gt, "is above", "group_max_session_timeout_ms"),
    (
        "group_consumer_heartbeat_interval_ms",
        operator.ge,
        "is not below",
        "group_consumer_session_timeout_ms",
    ),
    ("message_max_bytes", operator.gt, "does not fit into", "socket_request_max_bytes"),
)
#: Settings of consumer groups that must be between a least and a greatest value.
BOUNDED: Final = ("session_timeout_ms", "heartbeat_interval_ms")


def check_together(settings: Settings) -> None:
    """Check the settings that depend on each other. Raises ConfigError with the names of the settings."""
    _check_listeners(settings)
    super_users(settings.super_users)
    for name in BOUNDED:
        _check_in_range(settings, name)
    for one, is_wrong, words, other in WRONG_ORDERS:
        if is_wrong(getattr(settings, one), getattr(settings, other)):
            raise ConfigError(f"{_shown(settings, one)} {words} {_shown(settings, other)}")


def _check_listeners(settings: Settings) -> None:
    listeners = listeners_of(settings.listeners, "", 0)
    for one in listeners:
        advertised(settings.advertised_listeners, one.protocol)
        if one.has_tls and not settings.ssl_keystore_location:
            raise ConfigError(f"{one} needs ssl.keystore.location")
        if one.has_sasl and not mechanisms(
            settings.sasl_enabled_mechanisms, one, plain_without_tls=settings.sasl_plain_without_tls
        ):
            raise ConfigError(
                f"{one} offers no mechanism: PLAIN without TLS needs sasl.plain.without.tls=true"
            )
    served = {one.protocol for one in listeners}
    for one in parse_listeners("advertised.listeners", settings.advertised_listeners):
        if one.protocol not in served:
            raise ConfigError(
                f"advertised.listeners has {one}, but listeners has no {one.protocol}"
            )
    if settings.ssl_client_auth != "none" and not settings.ssl_truststore_location:
        raise ConfigError(
            f"ssl.client.auth={settings.ssl_client_auth} needs ssl.truststore.location"
        )


def _check_in_range(settings: Settings, field: str) -> None:
    name, least, most = (f"group_consumer_{part}{field}" for part in ("", "min_", "max_"))
    if not getattr(settings, least) <= getattr(settings, name) <= getattr(settings, most):
        shown = (_shown(settings, one) for one in (name, least, most))
        raise ConfigError("{} is not between {} and {}".format(*shown))


def _shown(settings: Settings, field: str) -> str:
    return f"{kafka_name(field)} ({getattr(settings, field)})"
