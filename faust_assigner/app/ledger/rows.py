"""A decision as rows of the ledger: inputs, the rule of each choice, rejected members, cost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.app.rebalance.outcome import moved_tasks
from faust_assigner.ledger import WEIGHTLESS, decision_id
from faust_assigner.model import NOBODY, Member
from faust_assigner.planner import Plan
from faust_assigner.views.placed import RULES
from faust_assigner.wire.plan_input import PlanInput, as_runs, encode_plan_input

TableRow: TypeAlias = tuple[str, Mapping[str, Any]]

POLICY = "faust-assigner"
#: The maximum number of rejected members that a row names.
REJECTED_SHOWN = 4


def digest(plan: Plan) -> str:
    """Return a digest of a plan's members, groups, accepted claims and number of standbys.

    Weights, positions of copies and the settings of warm-ups are left out; the column ``asked`` has them.
    """
    layout, previous = plan.layout, plan.previous
    sha = hashlib.sha256()
    topics = [
        (group.group_id, group.topics, group.changelogs, group.partitions, group.weightless)
        for group in layout.groups
    ]
    sha.update(repr((layout.member_ids, topics, plan.replicas)).encode("utf-8", "replace"))
    for array in (
        layout.capacity,
        layout.rack,
        previous.owner,
        previous.former,
        previous.copy_task,
        previous.copy_member,
    ):
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def decision_rows(
    inputs: DecisionInputs,
    plan: Plan,
    *,
    at: float,
    config: Mapping[str, str],
    session_timeout_s: float | None = None,
) -> Iterator[TableRow]:
    """Yield the decision's row, then one row for each placement; a group may have a million.

    Beyond the tables' columns a decision has ``inputs_digest``, ``moves``, ``cold``, ``refused``,
    ``cause`` and ``asked`` (the planner's inputs). If this leader did not lead the previous round,
    it also has ``before``, the owners until then. A placement has ``rule``, ``rejected`` and
    ``restore`` (none, tail or full: how much of the changelog the member must read).
    """
    name = decision_id(inputs.group_id, inputs.generation, plan.member_ids)
    yield "decision", _decision(inputs, plan, name, at, config, session_timeout_s)
    holders = _copy_holders(plan)
    for g in range(len(plan.groups)):
        yield from _active_rows(plan, g, inputs.group_id, name, holders)
        yield from _standby_rows(plan, g, inputs.group_id, name, holders)


def _decision(
    inputs: DecisionInputs,
    plan: Plan,
    name: str,
    at: float,
    config: Mapping[str, str],
    session_timeout_s: float | None,
) -> dict[str, object]:
    """Return the columns of the decision ``name``."""
    return {
        "group_id": inputs.group_id,
        "decision_id": name,
        "ts": at,
        "generation": inputs.generation,
        "trigger": inputs.trigger,
        "policy": POLICY,
        "config": {
            **config,
            "replicas": str(inputs.replicas),
            **_weights_columns(inputs),
            **_weightless_columns(inputs),
        },
        "members": [_member_columns(m) for m in inputs.members],
        "solve_ms": float(inputs.solve_ms),
        "inputs_digest": digest(plan),
        "moves": moved_tasks(plan),
        "cold": int(np.count_nonzero(plan.flat_cold)),
        "refused": dict(sorted(inputs.refused.items())),
        "cause": {
            "urls": dict(sorted(inputs.urls.items())),
            "leaving": sorted(inputs.leaving),
            "follows": inputs.follows,
            "completes": inputs.completes,
        },
        "asked": encode_plan_input(_plan_input(inputs)),
        **_previous_round_columns(inputs),
        **({} if session_timeout_s is None else {"session_timeout_s": float(session_timeout_s)}),
    }


def _plan_input(inputs: DecisionInputs) -> PlanInput:
    return PlanInput(
        members=inputs.members,
        partitions=inputs.partitions,
        replicas=inputs.replicas,
        changelogs=inputs.changelogs,
        weightless=inputs.weightless,
        previous_ids=inputs.previous_ids,
        warmups=inputs.warmups,
        weights=inputs.weights,
    )


def _previous_round_columns(inputs: DecisionInputs) -> dict[str, object]:
    """Return the columns of the previous round, because the previous leader's ledger may be lost."""
    last = inputs.last
    if not last.urls or not last.owners:
        return {}
    topics: dict[tuple[str, ...], list[str]] = {}
    for topic, owner in sorted(last.owners.items()):
        held = tuple(as_runs(np.flatnonzero(owner == rank)) for rank in range(len(last.urls)))
        topics.setdefault(held, []).append(topic)
    return {
        "before": {
            "generation": inputs.last_generation,
            "urls": list(last.urls),
            "instances": list(last.instances),
            "owners": [
                {"topics": names, "partitions": list(held)} for held, names in topics.items()
            ],
        }
    }


def _member_columns(member: Member) -> dict[str, Any]:
    """Return a member of the decision, with its instance id if it has one."""
    said = {
        "member_id": member.member_id,
        "rack": member.rack_id,
        "capacity": float(member.capacity),
        "epoch": int(member.generation),
    }
    return said if member.instance_id is None else {**said, "instance_id": member.instance_id}


def _weights_columns(inputs: DecisionInputs) -> dict[str, str]:
    """Return the version of the weights in use; empty if every partition weighed 1.0."""
    version = getattr(inputs.weights, "version", None)
    return {} if version is None else {"weights_version": str(version)}


def _weightless_columns(inputs: DecisionInputs) -> dict[str, str]:
    """Return the weightless topics, which a replay of the ledger leaves out."""
    return {WEIGHTLESS: " ".join(sorted(inputs.weightless))} if inputs.weightless else {}


def _copy_holders(plan: Plan) -> dict[int, list[int]]:
    """Return task -> members that hold a copy of its state without owning the task."""
    holders: dict[int, list[int]] = {}
    tasks, members = plan.previous.copy_task.tolist(), plan.previous.copy_member.tolist()
    for task, member in zip(tasks, members, strict=True):
        holders.setdefault(task, []).append(member)
    return holders


def _active_rows(
    plan: Plan, g: int, group_id: str, name: str, holders: Mapping[int, list[int]]
) -> Iterator[TableRow]:
    group, ids, start = plan.groups[g], plan.member_ids, int(plan.layout.start[g])
    columns = (
        plan.owner[g],
        plan.previous_owner[g],
        plan.target[g],
        plan.rule[g],
        plan.cold[g],
        plan.standby_hit[g],
        plan.moved[g],
    )
    for number, (owner, previous, target, rule, cold, hit, moved) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        if owner == NOBODY:
            continue
        passed = dict.fromkeys([previous, target, *holders.get(start + number, ())])
        rejected = [ids[m] for m in passed if m not in (owner, NOBODY)][:REJECTED_SHOWN]
        for topic in group.topics:
            stateful = topic in group.changelogs
            yield (
                "assignment",
                {
                    "group_id": group_id,
                    "decision_id": name,
                    "topic": topic,
                    "partition": number,
                    "role": "active",
                    "member_id": ids[owner],
                    "prev_member_id": None if previous == NOBODY else ids[previous],
                    "moved": bool(moved),
                    "standby_hit": bool(hit),
                    "cold": bool(cold),
                    "rule": RULES[rule],
                    "rejected": rejected,
                    "restore": _restore(kept=previous == owner, warm=bool(hit))
                    if stateful
                    else "none",
                },
            )


def _standby_rows(
    plan: Plan, g: int, group_id: str, name: str, holders: Mapping[int, list[int]]
) -> Iterator[TableRow]:
    group, ids, start = plan.groups[g], plan.member_ids, int(plan.layout.start[g])
    awaited = plan.flat_awaited[start : start + group.partitions].tolist()
    copies = np.column_stack((plan.standby[g], plan.warmup[g]))
    for number, (members, next_owner) in enumerate(zip(copies.tolist(), awaited, strict=True)):
        held = {*holders.get(start + number, ()), int(plan.previous_owner[g][number])}
        for member in members:
            if member == NOBODY:
                continue
            for topic in group.changelogs:
                yield (
                    "assignment",
                    {
                        "group_id": group_id,
                        "decision_id": name,
                        "topic": topic,
                        "partition": number,
                        "role": "warmup" if member == next_owner else "standby",
                        "member_id": ids[member],
                        "prev_member_id": None,
                        "moved": member not in held,
                        "standby_hit": member in held,
                        "cold": member not in held,
                        "restore": _restore(kept=False, warm=member in held),
                    },
                )


def _restore(*, kept: bool, warm: bool) -> str:
    if kept:
        return "none"
    return "tail" if warm else "full"
