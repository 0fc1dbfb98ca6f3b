"""A group service in tests: with the usual arguments for all that a test does not give."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeVar

from faust_assigner.broker.groups import GroupService
from faust_assigner.broker.groups.computing import compute_now
from faust_assigner.broker.rate_limited_log import RateLimitedLog
from faust_assigner.broker.storage.store import Store
from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.classic import GroupLimits
from faust_assigner.coordinator.settings import ConsumerLimits

S = TypeVar("S", bound=GroupService)


def group_service(store: Store, **given: Any) -> GroupService:
    """Return the groups of a store; by default the time stands still and no group waits for members."""
    return group_service_of(GroupService, store, **given)


def group_service_of(kind: type[S], store: Store, **given: Any) -> S:
    """Return the groups of a store as an object of a class."""
    clock = given.pop("clock", lambda: 1_000)
    usual: dict[str, Any] = {
        "timer": clock,
        "max_record_bytes": 10**6,
        "set_timer": lambda group_id, when_ms: None,
        "counters": Counter(),
        "consumer_limits": lambda group_id: ConsumerLimits(),
        "catalogue": Catalogue,
        "compute_target": compute_now,
        "peer_log": RateLimitedLog(),
    }
    group_limits = given.pop("group_limits", GroupLimits(initial_rebalance_delay_ms=0))
    return kind(store, group_limits, clock, **(usual | given))
