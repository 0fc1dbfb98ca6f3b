"""The options and arguments of the ``simulate`` command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from faust_assigner.pipeline.ledgers.refusals import Tolerance
from faust_assigner.pipeline.simulate.policies import DEFAULT_POLICIES, DEFAULT_REPLICAS
from faust_assigner.pipeline.simulate.scenarios import Shape
from faust_assigner.simulation.fleet import Costs


@dataclass(frozen=True)
class Request:
    """The command's options and arguments."""

    scenarios: int
    seed: int
    out: str
    policies: Sequence[str] = DEFAULT_POLICIES
    replicas: Sequence[int] = DEFAULT_REPLICAS
    shape: Shape = field(default_factory=Shape)
    costs: Costs = field(default_factory=Costs)
    #: Overrides the session timeout; with None the ledger's is used, or else the timeout in ``costs``.
    session_timeout_s: float | None = None
    ledgers: Sequence[str] = ()
    group_id: str | None = None
    jobs: int = 1
    max_refused: Tolerance = field(default_factory=Tolerance)
    #: Kafka's client properties, for ledgers that are topics.
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Lines of the ledger from after this time come from clocks that are ahead, and are left out.
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
