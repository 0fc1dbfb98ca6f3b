"""The names of an app's installed parts, and the combination of our classes with the app's."""

from __future__ import annotations

from typing import Any

from mode import get_logger

from faust_assigner.app import settings
from faust_assigner.errors import ConfigError
from faust_assigner.settings import table

logger = get_logger(__name__)

#: The attribute of an app that contains the names of its installed parts.
MARK = "_faust_assigner_parts"


def parts_of(app: Any) -> set[str]:
    """Return the names of the parts installed in ``app``; the caller may change the set."""
    parts: set[str] = vars(app).setdefault(MARK, set())
    return parts


def host_of(theirs: type) -> type:
    """Return the first class among ``theirs`` and its bases that is not of this package."""
    return next(
        base for base in theirs.__mro__ if not base.__module__.startswith("faust_assigner.")
    )


def over(ours: type, theirs: type) -> type:
    """Return a class that derives from ``ours``, then from ``theirs``, with the name of ``theirs``.

    If ``theirs`` derives from ``ours`` already, return ``theirs``. The name stays because mode puts
    a service's class name into each log line, and users search for ``[^--Consumer]``. Mode
    registers a class's tasks by module and qualified name, so the qualified name also contains the
    name of ``ours``.

    Raises ConfigError unless ``theirs`` is a subclass of the host's class from which ``ours``
    derives: calls would bypass ``theirs``.
    """
    if issubclass(theirs, ours):
        return theirs
    bases = (ours,) if issubclass(ours, theirs) else (ours, theirs)
    host = host_of(ours)
    if host is not object and not issubclass(theirs, host):
        raise ConfigError(
            f"{theirs.__module__}.{theirs.__qualname__} must be a subclass of "
            f"{host.__module__}.{host.__qualname__}, which {ours.__name__} replaces"
        )
    named = host_of(theirs)
    return type(
        named.__name__,
        bases,
        {
            "__module__": theirs.__module__,
            "__qualname__": f"{theirs.__qualname__}[{ours.__name__}]",
        },
    )


def warn_without_fixup(app: Any) -> None:
    """Log a warning if no part was installed in ``app``: the package's entry point is missing."""
    if settings.read_or_default(app, table.REPAIRS) and not parts_of(app):
        parts_of(app).add("assignor")
        logger.warning(
            "Records may be lost or repeated at a rebalance: the repairs of Faust's rebalance "
            "were not installed in this app; install "
            "faust_assigner with pip, so that Faust finds its fixup"
        )
