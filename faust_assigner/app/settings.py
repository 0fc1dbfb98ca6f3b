"""Functions that read this package's settings of one app (:mod:`faust_assigner.settings.table`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from mode import get_logger
from mode.utils.collections import force_mapping
from mode.utils.imports import import_from_cwd, smart_import

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
    """Return a setting from a keyword of ``app``, its environment, or the setting's default.

    Raises ConfigError for an invalid value.
    """
    conf, name = app.conf, setting.name
    # The variable with Faust's env_prefix, which conf.getenv adds, has priority over the bare name.
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
    """Return all keywords of the app and of its configuration source.

    ``app.conf`` is not enough: Faust drops the keywords that it does not know.
    """
    given: Mapping[str, object] = getattr(app, "_default_options", ("", {}))[1]
    source = getattr(app, "_config_source", None)
    if not source:
        return given
    if isinstance(source, str):
        try:
            source = smart_import(source, imp=import_from_cwd)
        except (AttributeError, ImportError):  # as in Faust, which logs nothing
            return given
    return {**given, **force_mapping(source)}


def check_names(app: AppT) -> None:
    """Raise ConfigError if a keyword or variable with this package's prefix is not a setting."""
    check_keywords({*keywords(app), *vars(app.conf)})
    check_environment(app.conf.env, env_prefix=app.conf.env_prefix)


def check_heartbeat(app: AppT) -> None:
    """Raise ConfigError if the session timeout is not longer than the heartbeat interval."""
    interval_s, session_s = app.conf.broker_heartbeat_interval, app.conf.broker_session_timeout
    if interval_s >= session_s:
        raise ConfigError(
            f"broker_heartbeat_interval ({interval_s:g} s) must be below broker_session_timeout "
            f"({session_s:g} s), best a third of it or less: the group removes a member that sends "
            "no heartbeat within its session timeout"
        )


def read_or_default(app: AppT, setting: Setting[T]) -> T:
    """Return a setting as :func:`read` does; if it is invalid, log an error and use the default."""
    return or_default(lambda app: read(app, setting), app, setting.default, setting.shown)


def instance_id(app: AppT) -> str | None:
    """Return Faust's setting ``consumer_group_instance_id``; None for a dynamic member.

    Raises ConfigError for an invalid value.
    """
    value = app.conf.consumer_group_instance_id
    try:
        return read_label(value, "consumer_group_instance_id") if value else None
    except MetadataRefused as exc:
        raise ConfigError(str(exc)) from None


def or_default(read_it: Callable[[Any], T], app: AppT, default: T, shown: str = "") -> T:
    """Return ``read_it(app)``; if it raises ConfigError, log the error and return ``default``.

    ``shown`` is the text of the default in the log line.
    """
    try:
        return read_it(app)
    except ConfigError as exc:
        logger.error("%s; using the default %s", exc, shown or repr(default))
        return default
