"""The classes below the recovery by partition: types only, never at run time."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from faust_assigner.app.recovery.loop import RecoveryLoop
from faust_assigner.app.recovery.restoring import RestoringRecovery


class Recovery(RestoringRecovery, RecoveryLoop):  # type: ignore[misc]
    """The type of the recovery with our repairs and our restore."""

    completed: Any
    actives_for_table: MutableMapping[Any, set[Any]]
    standbys_for_table: MutableMapping[Any, set[Any]]

    def add_active(self, table: Any, tp: Any) -> None:
        """Note an active changelog partition, and the offset in its database."""

    def add_standby(self, table: Any, tp: Any) -> None:
        """Note a changelog partition to follow, and the offset in its database."""
