"""What Faust loads from the ``faust.fixups`` entry point: the place where the app's parts are installed.

Faust creates one per app, any app of the process. It does nothing unless the app's settings, once they
are known, name our assignor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from faust.fixups.base import Fixup as FaustFixup
from mode import get_logger

from faust_assigner.app.ledger import install as ledger_writer
from faust_assigner.app.repairs import driver_assignor as always
from faust_assigner.app.repairs import install as repairs
from faust_assigner.app.repairs import router
from faust_assigner.app.restore import recovery
from faust_assigner.app.weights import provider as weights

logger = get_logger(__name__)

#: In this order; each takes the app, and one that fails leaves the others to work.
INSTALLERS: tuple[Callable[[Any], object], ...] = (
    repairs.install, recovery.install, always.install, router.install, weights.install,
    ledger_writer.install)


class Fixup(FaustFixup):  # type: ignore[misc]
    """One per app; does nothing unless the app chose our assignor."""

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        app.on_after_configured.connect(self._when_configured)

    def enabled(self) -> bool:
        """Whether this app may be ours; its settings are not final when Faust asks."""
        return True

    def _when_configured(self, app: Any, **_: Any) -> None:
        if not repairs.chose_our_assignor(app):
            return
        for install in INSTALLERS:
            try:
                install(app)
            except Exception:
                logger.exception("%s could not be installed", install.__module__)
