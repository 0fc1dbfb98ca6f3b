"""Every method of Faust, mode and aiokafka that ours override, replace or wrap, and its duties."""

from __future__ import annotations

from typing import Final

from faust_assigner.app.host.duties.assignor import ASSIGNOR
from faust_assigner.app.host.duties.calls import CALLS as CALLS
from faust_assigner.app.host.duties.client import CLIENT
from faust_assigner.app.host.duties.consumer import CONSUMER
from faust_assigner.app.host.duties.put import PUT as PUT
from faust_assigner.app.host.duties.row import HERE, ORIGINAL
from faust_assigner.app.host.duties.row import Duty as Duty
from faust_assigner.app.host.duties.row import Put as Put
from faust_assigner.app.host.duties.row import Taken as Taken
from faust_assigner.app.host.duties.tables import TABLES

TAKEN: Final[tuple[Taken, ...]] = (*CONSUMER, *CLIENT, *ASSIGNOR, *TABLES)


def places_of(row: Taken, duty: Duty) -> tuple[str, ...]:
    """Return our functions that fulfil the duty; the host's own method is omitted."""
    return tuple(
        row.ours if place == HERE else place for place in duty.where.split() if place != ORIGINAL
    )
