"""What Faust loads from the ``faust.fixups`` entry point: the place where the app's parts are installed.

Faust creates one per app, any app of the process. It does nothing unless the app's settings, once they
are known, name our assignor. Then all parts are installed, or the app does not start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from faust.fixups.base import Fixup as FaustFixup
from mode import get_logger

from faust_assigner.app import settings
from faust_assigner.app.host.check import demand
from faust_assigner.errors import HostMismatch
from faust_assigner.settings.table import REPAIRS

logger = get_logger(__name__)
PACKAGE = logging.getLogger(__name__.partition(".")[0])

#: What is needed by the assignor itself, see ``host/private_apis.py``.
ASSIGNOR = "assignor"

#: The parts of ``compose.py``, which is imported once the host is known to fit, and the page.
PARTS: tuple[str, ...] = (
    "repairs",
    "restore",
    "driver_assignor",
    "router",
    "weights",
    "ledger",
    "follow_up",
    "cooperative",
    "reads",
    "metrics",
    "page",
)
#: Without them an app works as it does on any host; what is missing then is said.
OPTIONAL = frozenset({"cooperative", "metrics", "page"})


class Fixup(FaustFixup):  # type: ignore[misc]
    """One per app; does nothing unless the app chose our assignor."""

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        app.on_after_configured.connect(self._when_configured, weak=True)

    def enabled(self) -> bool:
        """Whether this app may be ours; its settings are not final when Faust asks."""
        return True

    def _when_configured(self, app: Any, **_: Any) -> None:
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
            # Whoever goes on in spite of this meets it again: half repaired is worse than not started.
            app.conf = None
            raise


def chose_our_assignor(app: Any) -> bool:
    """Whether the app's assignor is ours or derives from it."""
    chosen = app.conf.PartitionAssignor
    return any(
        base.__module__.startswith("faust_assigner.") for base in getattr(chosen, "__mro__", ())
    )


def parts_that_fit(app: Any) -> tuple[str, ...]:
    """All of ``PARTS``; where the app does without repairs, those whose host is as they expect.

    Raises HostMismatch where an app with repairs runs on a host that some part was not written for.
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
def kept_until_start(app: Any) -> Iterator[None]:
    """Keep what the package says meanwhile where nobody listens yet; ``app`` tells it with its consumer."""
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


def _new_consumer(records: list[logging.LogRecord], create: Callable[[], Any]) -> Any:
    while records:
        record = records.pop(0)
        logger = logging.getLogger(record.name)
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)
    return create()
