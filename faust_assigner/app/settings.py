"""The package's settings of one app: see :mod:`faust_assigner.settings.table`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from mode import get_logger

from faust_assigner.errors import ConfigError, MetadataRefused
from faust_assigner.settings import schema
from faust_assigner.settings.known import check_environment, check_keywords
from faust_assigner.settings.schema import Setting
from faust_assigner.wire.bounded import read_label

if TYPE_CHECKING:
    from faust.types.app import AppT

logger = get_logger(__name__)

T = TypeVar("T")


def read(app: AppT, setting: Setting[T]) -> T:
    """Return a setting from ``app``'s keyword, environment or the default. Raises ConfigError."""
    conf, name = app.conf, setting.name
    # The name with Faust's env_prefix, which conf.getenv adds, comes before the bare name.
    said = next(
        (value for value in (conf.getenv(name), conf.env.get(name)) if value is not None), ""
    )
    given = keywords(app)
    argument = next(
        (
            value
            for value in (
                getattr(conf, setting.keyword, None),
                given.get(setting.keyword),
                given.get(name),
            )
            if value is not None
        ),
        None,
    )
    return schema.read(setting, argument=argument, environment={name: said})


def keywords(app: AppT) -> Mapping[str, object]:
    """Return the keywords of the app and its configuration source; Faust drops unknown keywords."""
    given: Mapping[str, object] = getattr(app, "_default_options", ("", {}))[1]
    source = getattr(app, "_config_source", None)
    if not source:
        return given
    return {**given, **app._load_settings_from_source(source, silent=True)}


def check_names(app: AppT) -> None:
    """Raise ConfigError if a keyword or a variable with our prefix is not a setting."""
    check_keywords({*keywords(app), *vars(app.conf)})
    check_environment(app.conf.env, env_prefix=app.conf.env_prefix)


def check_heartbeat(app: AppT) -> None:
    """Raise ConfigError if the member's session ends before its next heartbeat."""
    interval_s, session_s = app.conf.broker_heartbeat_interval, app.conf.broker_session_timeout
    if interval_s >= session_s:
        raise ConfigError(
            f"broker_heartbeat_interval ({interval_s:g} s) must be below broker_session_timeout "
            f"({session_s:g} s), best a third of it or less: the group removes a member that sends "
            "no heartbeat within its session timeout"
        )


def read_or_default(app: AppT, setting: Setting[T]) -> T:
    """Return a setting as :func:`read`, or log an error and return the default if it is invalid."""
    return or_default(lambda app: read(app, setting), app, setting.default, setting.shown)


def instance_id(app: AppT) -> str | None:
    """Return Faust's ``consumer_group_instance_id``, kept across restarts. Raises ConfigError."""
    value = app.conf.consumer_group_instance_id
    try:
        return read_label(value, "consumer_group_instance_id") if value else None
    except MetadataRefused as exc:
        raise ConfigError(str(exc)) from None


def or_default(read_it: Callable[[Any], T], app: AppT, default: T, shown: str = "") -> T:
    """Return ``read_it(app)``; if the setting is invalid, log this and return ``default``.

    The log line shows the default as ``shown``.
    """
    try:
        return read_it(app)
    except ConfigError as exc:
        logger.error("%s; using the default %s", exc, shown or repr(default))
        return default
