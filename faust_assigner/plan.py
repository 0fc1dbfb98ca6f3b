"""The planner, in order: groups -> actives -> standbys -> this round's plan."""
from __future__ import annotations
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from faust_assigner.model import Member


class Plan:
    """Who owns what (being written)."""


def plan(members: Iterable[Member], partitions: Mapping[str, int], *, replicas: int = 0,
         changelogs: Collection[str] = (), weights: Any = None) -> Plan:
    """Being written."""
    raise NotImplementedError
