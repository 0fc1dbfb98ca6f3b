"""What Faust loads from the ``faust.fixups`` entry point: the place where the app's parts are installed."""

from __future__ import annotations

from faust.fixups.base import Fixup as FaustFixup


class Fixup(FaustFixup):
    """One per app; does nothing unless the app chose our assignor."""

    def enabled(self) -> bool:
        """Whether this app may be ours; its settings are not final when Faust asks."""
        return True
