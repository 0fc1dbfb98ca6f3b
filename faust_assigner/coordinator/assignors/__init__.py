"""The server-side assignors by name, with a common signature: ``assign(group_spec, topics) -> target``."""

from __future__ import annotations

from typing import Final

from faust_assigner.coordinator.assignors.copartition import assign_together
from faust_assigner.coordinator.assignors.ranges import assign_ranges
from faust_assigner.coordinator.assignors.spec import Assign, GroupSpec, MemberSpec, Target
from faust_assigner.coordinator.assignors.uniform import assign_uniformly

__all__ = [
    "ASSIGNORS",
    "BUILT_IN",
    "Assign",
    "GroupSpec",
    "MemberSpec",
    "Target",
    "compute",
    "register",
]

ASSIGNORS: Final[dict[str, Assign]] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
    "copartition": assign_together,
}
#: The assignors of this package. Only these are fast enough for the broker's event loop.
BUILT_IN: Final = frozenset(ASSIGNORS)


def register(name: str, assign: Assign) -> None:
    """Add an assignor of another package. Raises ValueError if the name has a different function."""
    if ASSIGNORS.setdefault(name, assign) != assign:
        raise ValueError(
            f"assignor {name} is already registered in this process with a different function"
        )


def compute(spec: GroupSpec) -> Target:
    """Compute the target by the spec's assignor; raises KeyError for an unknown assignor."""
    return ASSIGNORS[spec.assignor](spec, spec.topics)
