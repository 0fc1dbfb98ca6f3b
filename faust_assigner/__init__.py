"""The partition assignor for Faust.

>>> from faust_assigner import Member, plan
>>> members = [Member("a", ["orders"]), Member("b", ["orders"])]
>>> plan(members, {"orders": 4}).actives("a")
{'orders': [0, 1]}

Importing this package imports neither Faust nor Spark; ``PartitionAssignor`` is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faust_assigner.model import Member
from faust_assigner.planner import Plan, plan

if TYPE_CHECKING:
    from faust_assigner.app.assignor import PartitionAssignor

__version__ = "0.1.0"
__all__ = ["Member", "PartitionAssignor", "Plan", "__version__", "plan"]


def __getattr__(name: str) -> Any:
    if name == "PartitionAssignor":
        from faust_assigner.app.assignor import PartitionAssignor

        return PartitionAssignor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
