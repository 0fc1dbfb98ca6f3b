"""The planner's input of a decision, as JSON for the ledger, so that the plan can be repeated."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from faust_assigner.model import Member
from faust_assigner.planner import Plan, plan
from faust_assigner.warmup import WarmupPolicy


@dataclass(frozen=True, kw_only=True)
class PlanInput:
    """The planner's arguments. ``weights`` is None if every partition weighed 1.0."""

    members: tuple[Member, ...]
    partitions: Mapping[str, int]
    replicas: int = 0
    changelogs: frozenset[str] = frozenset()
    weightless: frozenset[str] = frozenset()
    previous_ids: Mapping[str, int] = field(default_factory=dict)
    warmups: WarmupPolicy | None = None
    weights: Mapping[tuple[str, int], float] | None = None

    def plan(self) -> Plan:
        """Run the planner. Raises :class:`~faust_assigner.errors.PlanInputError` like the planner."""
        return plan(
            self.members,
            self.partitions,
            replicas=self.replicas,
            changelogs=self.changelogs,
            weightless=self.weightless,
            weights=self.weights,
            previous_ids=self.previous_ids,
            warmups=self.warmups,
        )

    def member(self, member_id: str) -> Member | None:
        """Return the member with this id."""
        return next((one for one in self.members if one.member_id == member_id), None)

    def with_members(self, members: Iterable[Member]) -> PlanInput:
        """Return a copy of the arguments with different members."""
        return replace(self, members=tuple(members))


#: The fields of :class:`Member` that are claims.
_CLAIMS = ("actives", "standbys", "former_actives", "awaited", "overdue")
#: The plain fields of :class:`Member`, with their types.
_PLAIN = {
    "generation": int,
    "former_generation": int,
    "instance_id": str,
    "rack_id": str,
    "capacity": float,
}
#: The maximum number of partitions in a text such as "0-2,4" (see :func:`as_runs`).
MOST_PARTITIONS = 1_000_000


def encode_plan_input(asked: PlanInput) -> dict[str, object]:
    """Encode the arguments for :func:`decode_plan_input`. Cost: O(claimed partitions)."""
    usual = sorted(asked.members[0].topics) if asked.members else []
    found: dict[str, object] = {
        "topics": usual,
        "members": [_encode_member(member, usual) for member in asked.members],
        "partitions": dict(sorted(asked.partitions.items())),
        "replicas": asked.replicas,
        "changelogs": sorted(asked.changelogs),
        "weightless": sorted(asked.weightless),
        "previous_ids": dict(sorted(asked.previous_ids.items())),
        "warmups": None if asked.warmups is None else asdict(asked.warmups),
    }
    if asked.weights is not None:
        found["weights"] = [[t, p, float(w)] for (t, p), w in sorted(asked.weights.items())]
    return found


def _encode_member(member: Member, usual: Collection[str]) -> dict[str, object]:
    found: dict[str, object] = {"member_id": member.member_id}
    if sorted(member.topics) != usual:
        found["topics"] = sorted(member.topics)
    for name in _CLAIMS:
        claims = {
            t: runs for t, numbers in getattr(member, name).items() if (runs := as_runs(numbers))
        }
        if claims:
            found[name] = dict(sorted(claims.items()))
    for name in _PLAIN:
        value = getattr(member, name)
        if value is not None:
            found[name] = value
    if member.positions is not None:
        found["positions"] = {
            t: _encode_offsets(said) for t, said in sorted(member.positions.items())
        }
    return found


def _encode_offsets(said: Any) -> list[object]:
    """Return [partitions as runs, offsets]."""
    pairs = sorted(said.items()) if isinstance(said, Mapping) else zip(*said, strict=True)
    known = [(int(p), int(offset)) for p, offset in pairs]
    return [as_runs(p for p, _ in known), [offset for _, offset in known]]


def as_runs(numbers: Iterable[int]) -> str:
    """Format partition numbers as runs of contiguous numbers.

    >>> as_runs([4, 0, 1, 2]), as_runs([])
    ('0-2,4', '')
    """
    found: list[list[int]] = []
    for number in sorted({int(one) for one in numbers}):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def of_runs(text: str) -> list[int]:
    """Parse the result of :func:`as_runs`. Raises ValueError for any other text.

    >>> of_runs("0-2,4"), of_runs("")
    ([0, 1, 2, 4], [])
    """
    found: list[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        run = range(int(first), int(last or first) + 1)
        if run[-1:] and len(found) + run[-1] - run[0] >= MOST_PARTITIONS:
            raise ValueError(f"{part} are more than {MOST_PARTITIONS:,} partitions")
        found += run
    return found


def decode_plan_input(value: Any) -> PlanInput | None:
    """Decode the ledger's value; return None if it is missing or of a different version or product."""
    try:
        usual: Sequence[str] = value["topics"]
        return PlanInput(
            members=tuple(_decode_member(one, usual) for one in value["members"]),
            partitions={str(t): _count(n) for t, n in value["partitions"].items()},
            replicas=int(value["replicas"]),
            changelogs=frozenset(value["changelogs"]),
            weightless=frozenset(value["weightless"]),
            previous_ids=dict(value["previous_ids"]),
            warmups=None if value["warmups"] is None else WarmupPolicy(**value["warmups"]),
            weights={(t, int(p)): float(w) for t, p, w in value["weights"]}
            if "weights" in value
            else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _count(value: Any) -> int:
    if not 0 <= (count := int(value)) <= MOST_PARTITIONS:
        raise ValueError(f"a topic has at most {MOST_PARTITIONS:,} partitions, got {count}")
    return count


def _decode_member(value: Any, usual: Sequence[str]) -> Member:
    claims: dict[str, Any] = {
        name: {t: of_runs(runs) for t, runs in value.get(name, {}).items()} for name in _CLAIMS
    }
    plain: dict[str, Any] = {n: convert(value[n]) for n, convert in _PLAIN.items() if n in value}
    positions = value.get("positions")
    if positions is not None:
        positions = {
            t: (np.array(of_runs(runs), dtype=np.int64), np.array(offsets, dtype=np.int64))
            for t, (runs, offsets) in positions.items()
        }
    return Member(
        value["member_id"], list(value.get("topics", usual)), **claims, **plain, positions=positions
    )
