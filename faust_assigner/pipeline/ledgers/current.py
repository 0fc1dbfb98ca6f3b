"""The state of each group after its newest decisions, as input for the planner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from faust_assigner.ledger import WEIGHTLESS, Row
from faust_assigner.model import Member
from faust_assigner.pipeline.rows import CHANGELOG_SUFFIX, EPOCH, DecisionRow, PlacementRow, grouped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: (group id, decision id)
Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class GroupState:
    """A group's members with their actives and standbys, and its topics."""

    group_id: str
    decision_id: str
    members: tuple[Member, ...]
    partitions: Mapping[str, int]
    changelogs: tuple[str, ...]
    weightless: tuple[str, ...] = ()
    #: The time of the decision; None for a generated group.
    at: datetime | None = None


def current_here(rows: Sequence[Row], count: int = 1) -> list[GroupState]:
    """Return each group's states after its ``count`` newest decisions, newest first.

    ``rows`` are accepted ledger lines. If a decision has two lines, the line with the later time is used.
    """
    told: dict[Key, DecisionRow] = {}
    for row in rows:
        if row.table == "decision":
            key = _key(row.values)
            if key not in told or row.values["ts"] > told[key]["ts"]:
                told[key] = row.values
    newest = _newest(told.values(), count)
    placed: dict[Key, list[PlacementRow]] = {_key(decision): [] for decision in newest}
    for row in rows:
        if row.table == "assignment" and _key(row.values) in placed:
            placed[_key(row.values)].append(row.values)
    return [current_of(decision, placed[_key(decision)]) for decision in newest]


def current_on_spark(parsed: DataFrame, count: int = 1) -> list[GroupState]:
    """Run :func:`current_here` on Spark; the driver collects the rows of ``count`` decisions per group."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

    from faust_assigner.pipeline.ledgers.sources import rows_of

    said = F.struct("ts", "config", "members")
    once = (
        rows_of(parsed, "decision")
        .groupBy("group_id", "decision_id")
        .agg(F.max_by(said, "ts").alias("said"))
        .select("group_id", "decision_id", "said.*")
    )
    order = Window.partitionBy("group_id").orderBy(F.desc("ts"), F.desc("decision_id"))
    newest = once.withColumn("at", F.row_number().over(order)).where(F.col("at") <= count)
    placed = rows_of(parsed, "assignment").join(
        F.broadcast(newest.select("group_id", "decision_id")),
        ["group_id", "decision_id"],
        "left_semi",
    )
    columns = ("group_id", "decision_id", "topic", "partition", "role", "member_id")
    # A repeated row changes no state.
    mine = grouped((row.asDict() for row in placed.select(*columns).collect()), _key)
    told = newest.select(
        "group_id", "decision_id", "config", "members", F.unix_micros("ts").alias("at")
    )
    decisions = [
        row.asDict(recursive=True) | {"ts": EPOCH + timedelta(microseconds=row.at)}
        for row in told.collect()
    ]
    return [current_of(each, mine.get(_key(each), [])) for each in _newest(decisions, count)]


def _key(row: DecisionRow | PlacementRow) -> Key:
    return row["group_id"], row["decision_id"]


def _newest(decisions: Iterable[DecisionRow], count: int) -> list[DecisionRow]:
    """Return the ``count`` newest decisions of each group, by group id, then newest first."""
    groups = grouped(decisions, lambda decision: decision["group_id"])
    return [
        decision
        for group_id in sorted(groups)
        for decision in sorted(
            groups[group_id], key=lambda each: (each["ts"], each["decision_id"]), reverse=True
        )[:count]
    ]


def current_of(decision: DecisionRow, placed: Iterable[PlacementRow]) -> GroupState:
    """Return a group's state after ``decision``; its members claim the actives and standbys in ``placed``."""
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
    return GroupState(
        decision["group_id"],
        decision["decision_id"],
        tuple(members),
        dict(sorted(partitions.items())),
        tuple(sorted(changelogs)),
        tuple(sorted(decision["config"].get(WEIGHTLESS, "").split())),
        decision["ts"],
    )
