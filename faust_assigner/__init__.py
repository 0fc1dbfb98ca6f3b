"""The partition assignor for Faust.

>>> from faust_assigner import Member, plan
>>> members = [Member("a", ["orders"]), Member("b", ["orders"])]
>>> plan(members, {"orders": 4}).actives("a")
{'orders': [0, 1]}

Importing this package imports no other module of it. Each name is loaded on first use, because pytest
imports the package for its plugin in each run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faust_assigner.app.assignor import PartitionAssignor
    from faust_assigner.model import Member
    from faust_assigner.planner import Plan, plan

__version__ = "0.1.0"
__all__ = ["Member", "PartitionAssignor", "Plan", "__version__", "plan"]


_MODULES = {
    "Member": "faust_assigner.model",
    "PartitionAssignor": "faust_assigner.app.assignor",
    "Plan": "faust_assigner.planner",
    "plan": "faust_assigner.planner",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
