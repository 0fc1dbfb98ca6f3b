"""The state of each group after its newest decision, as input for the planner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faust_assigner.ledger import WEIGHTLESS, Row
from faust_assigner.model import Member

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHANGELOG_SUFFIX = "-changelog"


@dataclass(frozen=True)
class Current:
    """A group's members with their actives and standbys, and its topics."""

    group_id: str
    decision_id: str
    members: tuple[Member, ...]
    partitions: Mapping[str, int]
    changelogs: tuple[str, ...]
    weightless: tuple[str, ...] = ()


def current_here(rows: Sequence[Row]) -> list[Current]:
    """Each group's state after its newest decision, from accepted ledger lines."""
    newest: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row.table == "decision":
            values = row.values
            known = newest.get(values["group_id"])
            if known is None or _age(values) > _age(known):
                newest[values["group_id"]] = values
    placed: dict[str, list[Mapping[str, Any]]] = {group_id: [] for group_id in newest}
    for row in rows:
        if row.table == "assignment" and _of(row.values, newest):
            placed[row.values["group_id"]].append(row.values)
    return [current_of(newest[group_id], placed[group_id]) for group_id in sorted(newest)]


def current_on_spark(parsed: DataFrame) -> list[Current]:
    """:func:`current_here` on Spark; the driver collects one decision's rows per group."""
    from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

    from faust_assigner.pipeline.ledgers.on_spark import rows

    key = F.struct(F.col("ts"), F.col("decision_id"))
    decisions = rows(parsed, "decision")
    newest = (
        decisions.groupBy("group_id")
        .agg(
            F.max_by(F.struct("decision_id", "config", "members"), key).alias("said"),
        )
        .select("group_id", "said.*")
    )
    placed = rows(parsed, "assignment").join(
        F.broadcast(newest.select("group_id", "decision_id")),
        ["group_id", "decision_id"],
        "left_semi",
    )
    mine: dict[str, list[Mapping[str, Any]]] = {}
    for row in (
        placed.select("group_id", "topic", "partition", "role", "member_id").distinct().collect()
    ):
        mine.setdefault(row.group_id, []).append(row.asDict())
    return [
        current_of(
            {
                "group_id": row.group_id,
                "decision_id": row.decision_id,
                "config": row.config,
                "members": [member.asDict() for member in row.members],
            },
            mine.get(row.group_id, []),
        )
        for row in sorted(newest.collect(), key=lambda row: row.group_id)
    ]


def _age(decision: Mapping[str, Any]) -> tuple[Any, str]:
    return decision["ts"], decision["decision_id"]


def _of(assignment: Mapping[str, Any], newest: Mapping[str, Mapping[str, Any]]) -> bool:
    decision = newest.get(assignment["group_id"])
    return decision is not None and decision["decision_id"] == assignment["decision_id"]


def current_of(decision: Mapping[str, Any], placed: Iterable[Mapping[str, Any]]) -> Current:
    """A group's state after ``decision``; its members claim their actives and standbys in ``placed``."""
    claims: dict[str, dict[str, dict[str, set[int]]]] = {}
    partitions: dict[str, int] = {}
    changelogs = set()
    for row in placed:
        role = "actives" if row["role"] == "active" else "standbys"
        mine = claims.setdefault(row["member_id"], {"actives": {}, "standbys": {}})
        mine[role].setdefault(row["topic"], set()).add(row["partition"])
        partitions[row["topic"]] = max(partitions.get(row["topic"], 0), row["partition"] + 1)
        if role == "standbys" or row["topic"].endswith(CHANGELOG_SUFFIX):
            changelogs.add(row["topic"])
    members = []
    for member in sorted(decision["members"], key=lambda member: str(member["member_id"])):
        mine = claims.get(member["member_id"], {"actives": {}, "standbys": {}})
        members.append(
            Member(
                member["member_id"],
                sorted(partitions),
                actives=mine["actives"],
                standbys=mine["standbys"],
                generation=1,
                rack_id=member["rack"],
                instance_id=member.get("instance_id"),
                capacity=member["capacity"],
            )
        )
    return Current(
        decision["group_id"],
        decision["decision_id"],
        tuple(members),
        dict(sorted(partitions.items())),
        tuple(sorted(changelogs)),
        tuple(sorted(decision["config"].get(WEIGHTLESS, "").split())),
    )
