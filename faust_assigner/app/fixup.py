"""The fixup that Faust loads from the ``faust.fixups`` entry point: it installs an app's parts.

Faust creates a fixup for each app of the process. The fixup has an effect only if the app's final
settings name this package's assignor. Then the fixup installs all parts, or the app does not start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from faust.fixups.base import Fixup as FaustFixup
from mode import get_logger

from faust_assigner.app import settings
from faust_assigner.app.host.check import demand
from faust_assigner.errors import HostMismatch
from faust_assigner.settings.table import REPAIRS

if TYPE_CHECKING:
    from faust.types.app import AppT

logger = get_logger(__name__)
PACKAGE = logging.getLogger(__name__.partition(".")[0])

#: The name of the assignor as a part, see ``host/private_apis.py``.
ASSIGNOR = "assignor"

#: The parts that ``compose.py`` installs, and the page. ``compose.py`` is imported after the host's
#: check.
PARTS: tuple[str, ...] = (
    "repairs",
    "driver_assignor",
    "weights",
    "ledger",
    "follow_up",
    "reads",
    "router",
    "metrics",
    "page",
)
#: The optional parts of an app; the fixup logs each part that it does not install.
OPTIONAL = frozenset({"metrics", "page"})


class Fixup(FaustFixup):  # type: ignore[misc]
    """The fixup of one app; it has an effect only if the app chose this package's assignor."""

    def __init__(self, app: AppT) -> None:
        super().__init__(app)
        app.on_after_configured.connect(self._when_configured, weak=True)

    def enabled(self) -> bool:
        """Return True, because the app's settings are not final when Faust calls this method."""
        return True

    def _when_configured(self, app: Any, **_: object) -> None:
        if not chose_our_assignor(app):
            return
        try:
            settings.check_names(app)
            settings.check_heartbeat(app)
            with kept_until_start(app):
                parts = parts_that_fit(app)
                import_module("faust_assigner.app.compose").install(app, parts)
                if "page" in parts:
                    import_module("faust_assigner.page.mount").install(app)
        except BaseException:
            # An app with only some of the repairs must not start. Without conf the app fails again
            # if the caller
            # ignores this error.
            app.conf = None
            raise


def chose_our_assignor(app: AppT) -> bool:
    """Return whether the app's assignor is this package's assignor or derives from it."""
    chosen = app.conf.PartitionAssignor
    return any(
        base.__module__.startswith("faust_assigner.") for base in getattr(chosen, "__mro__", ())
    )


def parts_that_fit(app: AppT) -> tuple[str, ...]:
    """Return the parts to install; a part fits if the host has all names that the part needs.

    If the repairs are on, the result is all of ``PARTS`` without the optional parts that do not
    fit. Raises HostMismatch then if a part that is not optional does not fit. If the repairs are
    off, the result is the other parts that fit.
    """
    if settings.read_or_default(app, REPAIRS):
        demand({ASSIGNOR, *PARTS} - OPTIONAL)
        return tuple(part for part in PARTS if part not in OPTIONAL or _fits_host(part))
    return tuple(part for part in PARTS if part != "repairs" and _fits_host(part))


def _fits_host(part: str) -> bool:
    try:
        demand({part}, versions={})
    except HostMismatch as error:
        logger.error("The app starts without the part %s: %s", part, error)
        return False
    return True


class _Keeps(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def kept_until_start(app: AppT) -> Iterator[None]:
    """Keep the package's log records of the block if no log handler exists yet.

    ``app`` logs the kept records when it creates its consumer, because logging is configured then.
    """
    if PACKAGE.hasHandlers():
        yield
        return
    keeps, level = _Keeps(), PACKAGE.level
    PACKAGE.addHandler(keeps)
    PACKAGE.setLevel(level or logging.INFO)
    try:
        yield
    finally:
        PACKAGE.removeHandler(keeps)
        PACKAGE.setLevel(level)
    if keeps.records:
        app._new_consumer = partial(_log_and_create, keeps.records, app._new_consumer)


def _log_and_create(records: list[logging.LogRecord], create: Callable[[], object]) -> Any:
    while records:
        record = records.pop(0)
        logger = logging.getLogger(record.name)
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)
    return create()
