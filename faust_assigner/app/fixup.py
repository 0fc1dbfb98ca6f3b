"""The fixup that Faust loads from the ``faust.fixups`` entry point: it installs an app's parts.

Faust creates a fixup for every app of the process. The fixup has no effect unless the app's final
settings name our assignor. Then all parts are installed, or the app does not start.
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

#: The part name of the assignor itself, see ``host/private_apis.py``.
ASSIGNOR = "assignor"

#: The parts of ``compose.py``, which is imported after the check of the host, and the page.
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
#: The parts that an app can work without; a missing part is logged.
OPTIONAL = frozenset({"metrics", "page"})


class Fixup(FaustFixup):  # type: ignore[misc]
    """The fixup of one app; has no effect unless the app chose our assignor."""

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
            # A half-repaired app must not start: a caller that ignores this error meets it again.
            app.conf = None
            raise


def chose_our_assignor(app: AppT) -> bool:
    """Return whether the app's assignor is ours or derives from ours."""
    chosen = app.conf.PartitionAssignor
    return any(
        base.__module__.startswith("faust_assigner.") for base in getattr(chosen, "__mro__", ())
    )


def parts_that_fit(app: AppT) -> tuple[str, ...]:
    """Return the parts to install.

    With repairs, these are all of ``PARTS``, without the optional parts that do not fit the host.
    Raises HostMismatch if a different part does not fit. Without repairs, these are the parts that
    fit.
    """
    if settings.read_or_default(app, REPAIRS):
        demand({ASSIGNOR, *PARTS} - OPTIONAL)
        return tuple(part for part in PARTS if part not in OPTIONAL or _fits(part))
    return tuple(part for part in PARTS if part != "repairs" and _fits(part))


def _fits(part: str) -> bool:
    try:
        demand({part}, versions={})
    except HostMismatch as error:
        logger.error("Without %s: %s", part, error)
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
    """Keep the package's log records if no handler exists yet; ``app`` logs them later.

    The app logs the kept records when it creates its consumer.
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
        app._new_consumer = partial(_new_consumer, keeps.records, app._new_consumer)


def _new_consumer(records: list[logging.LogRecord], create: Callable[[], object]) -> Any:
    while records:
        record = records.pop(0)
        logger = logging.getLogger(record.name)
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)
    return create()
