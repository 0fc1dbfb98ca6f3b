"""The policies of a simulation: our planner, Faust's own assignor, aiokafka's assignors, or the user's.

A policy is any callable with the signature of :func:`faust_assigner.plan`. The names below are built in;
``package.module:callable`` loads any other callable. Faust's own assignor (``stock``) is also loaded by its
path, so that this package does not import Faust.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, cast

import numpy as np

from faust_assigner.errors import ConfigError
from faust_assigner.model import Member
from faust_assigner.simulation.fleet import Arm, PlanLike, Policy, Weights

if TYPE_CHECKING:
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

#: Name -> (the policy's path, whether starting workers claim the state on their disks under this policy).
BUILT_IN: Mapping[str, tuple[str, bool]] = {
    "ours": ("faust_assigner.planner:plan", True),
    "stock": ("faust_assigner.app.stock:stock_plan", False),
    "aiokafka-roundrobin": ("faust_assigner.pipeline.simulate.policies:aiokafka_roundrobin", False),
    "aiokafka-sticky": ("faust_assigner.pipeline.simulate.policies:aiokafka_sticky", False),
}

#: The default policies: our planner without switches, with ``static``, and with ``static`` and ``weights``;
#: Faust's own assignor without and with ``static``.
DEFAULT_POLICIES = ("ours", "ours+static", "ours+static+weights", "stock", "stock+static")
DEFAULT_REPLICAS = (0, 1, 2)

_SWITCHES = {"static": "static", "weights": "weighted", "eager": "eager"}
#: The policies with warm-ups, which are simulated with cooperative rebalances unless ``+eager`` is given.
COOPERATIVE = frozenset({"ours"})


@dataclass(frozen=True)
class Placement:
    """The assignment of a policy that is not our planner: partitions by member id."""

    owned: Mapping[str, Mapping[str, Sequence[int]]]
    spare: Mapping[str, Mapping[str, Sequence[int]]]

    def actives(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Return topic -> partitions that the member owns."""
        return self.owned.get(member_id, {})

    def standbys(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Return changelog topic -> partitions of which the member keeps a standby."""
        return self.spare.get(member_id, {})

    def awaited(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Return an empty mapping: without warm-ups all tasks move at once."""
        return {}


def arms(
    policies: Sequence[str] = DEFAULT_POLICIES, replicas: Sequence[int] = DEFAULT_REPLICAS
) -> tuple[Arm, ...]:
    """Return each policy with each number of standbys; ``+static``, ``+weights``, ``+eager`` are switches.

    Raises ConfigError before the simulation starts: for an unknown name or switch, and for a callable that is
    not a policy.
    """
    found = []
    for text in policies:
        name, *switches = text.split("+")
        unknown = [switch for switch in switches if switch not in _SWITCHES]
        if unknown:
            raise ConfigError(
                f"policy {text!r}: unknown switch {unknown[0]!r}, known: {', '.join(_SWITCHES)}"
            )
        policy = load(name)
        if name not in BUILT_IN:
            _try_out(name, policy)
        settings: dict[str, bool] = {_SWITCHES[switch]: True for switch in switches}
        claims_files = BUILT_IN.get(name, ("", True))[1]
        # aiokafka's assignors have no standbys, so they are simulated once only.
        counts = replicas if not name.startswith("aiokafka-") else (0,)
        settings["cooperative"] = name in COOPERATIVE and "eager" not in switches
        found += [Arm(name, count, claims_files=claims_files, **settings) for count in counts]
    if len({(arm.label, arm.replicas) for arm in found}) < len(found):
        raise ConfigError(f"a policy is named twice in {', '.join(policies)}")
    return tuple(found)


@lru_cache(maxsize=64)
def load(name: str) -> Policy:
    """Load the callable of a built-in name or of ``package.module:callable``, or raise ConfigError."""
    path = BUILT_IN[name][0] if name in BUILT_IN else name
    module, colon, attribute = path.partition(":")
    if not colon:
        raise ConfigError(
            f"unknown policy {name!r}: one of {', '.join(BUILT_IN)}, or package.module:callable"
        )
    if not module or not attribute:
        raise ConfigError(
            f"policy {name!r} names no {'callable' if module else 'module'}: "
            "package.module:callable expected"
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:
        # a user's module may raise any error when it is imported
        raise ConfigError(f"policy {name!r} cannot be loaded: {_one_line(error)}") from None
    if not callable(found):
        raise ConfigError(f"policy {name!r} is not callable: it is {type(found).__name__}")
    return cast(Policy, found)


def _try_out(name: str, policy: Policy) -> None:
    """Let the policy plan for one member; raise ConfigError if it fails or does not return a plan."""
    member = Member("first", ("source",))
    try:
        answer = policy(
            [member], {"source": 2, "state": 2}, replicas=0, changelogs=("state",), weights=None
        )
        for placed in (answer.actives("first"), answer.standbys("first")):
            for numbers in placed.values():
                np.asarray(numbers, dtype=np.int64)
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"policy {name!r} does not answer as faust_assigner.plan does: {_one_line(error)}"
        ) from None


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


class _Cluster:
    """The two methods of aiokafka's cluster metadata that its assignors call."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self.partitions = partitions

    def topics(self) -> set[str]:
        return set(self.partitions)

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self.partitions[topic]))


def aiokafka_roundrobin(
    members: Sequence[Member],
    partitions: Mapping[str, int],
    *,
    replicas: int,
    changelogs: Sequence[str],
    weights: Weights | None,
) -> PlanLike:
    """Assign the source topics with aiokafka's round-robin assignor; there are no standbys."""
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    sources = _sources(partitions, changelogs)
    metadata = {m.member_id: RoundRobinPartitionAssignor.metadata(sorted(sources)) for m in members}
    return _placed(RoundRobinPartitionAssignor.assign(_Cluster(sources), metadata))


def aiokafka_sticky(
    members: Sequence[Member],
    partitions: Mapping[str, int],
    *,
    replicas: int,
    changelogs: Sequence[str],
    weights: Weights | None,
) -> PlanLike:
    """Assign the source topics with aiokafka's sticky assignor, from each member's claims."""
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.structs import TopicPartition

    sources = _sources(partitions, changelogs)
    metadata = {}
    for member in members:
        owned = [
            TopicPartition(topic, int(number))
            for topic in sorted(sources)
            for number in member.actives.get(topic, ())
        ]
        metadata[member.member_id] = StickyPartitionAssignor._metadata(
            sorted(sources), owned, member.generation
        )
    return _placed(StickyPartitionAssignor.assign(_Cluster(sources), metadata))


def _sources(partitions: Mapping[str, int], changelogs: Sequence[str]) -> dict[str, int]:
    return {topic: count for topic, count in partitions.items() if topic not in changelogs}


def _placed(assignments: Mapping[str, ConsumerProtocolMemberAssignment]) -> Placement:
    return Placement(
        {
            member_id: {topic: list(numbers) for topic, numbers in answer.assignment}
            for member_id, answer in assignments.items()
        },
        {},
    )
