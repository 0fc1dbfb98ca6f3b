"""The hours of a day, and the day's longest standstills, computed from the facts of the day.

A partition's standstill is the duration of its recovery: until the state is restored, records wait.
A group's members and moves in an hour come from the decisions of this hour.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from faust_assigner.pipeline.rows import MoveRow, RecoveryRow, grouped

#: The number of a day's longest standstills, per group, in the table ``standstills``.
STANDSTILLS_KEPT = 20
_CAUSES = ("tasks_gone", "tasks_balance", "tasks_new", "tasks_cold")
_MOST = 2**63 - 1
Outcomes = Sequence[Mapping[str, Any]]


def timeline(
    outcomes: Outcomes, recovered: Iterable[RecoveryRow], samples: pa.Table
) -> Iterator[dict[str, object]]:
    """Yield one row per group and hour with a decision, a recovery or a sample.

    ``members``: after the hour's last decision; ``standstill_s``: the longest standstill in seconds;
    ``lag_max``: the highest lag of a partition; ``lag_sum``: the sum of all partitions' highest lags.
    """
    rows: dict[tuple[str, datetime], dict[str, Any]] = defaultdict(_empty)
    for each in sorted(outcomes, key=lambda row: (row["ts"], row["decision_id"])):
        row = rows[each["group_id"], _hour(each["ts"])]
        row["rebalances"] += 1
        row["members"] = each["members"]
        for name in _CAUSES:
            row[name] += each[name]
    for each in recovered:
        row = rows[each["group_id"], _hour(each["started"])]
        row["recoveries"] += 1
        row["standstill_s"] = max(seconds(each), row["standstill_s"] or 0.0)
    for group, hour, lags in _lags(samples):
        row = rows[group, hour]
        row["lag_max"], row["lag_sum"] = max(lags), min(sum(lags), _MOST)
    for (group, hour), row in rows.items():
        yield {"group_id": group, "hour": hour, **row}


def _empty() -> dict[str, Any]:
    counts = dict.fromkeys(("rebalances", *_CAUSES, "recoveries"), 0)
    return {**counts, **dict.fromkeys(("members", "standstill_s", "lag_max", "lag_sum"))}


def _hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def seconds(recovery: RecoveryRow) -> float:
    """Return the duration of a recovery in seconds."""
    return (recovery["ended"] - recovery["started"]).total_seconds()


def _lags(samples: pa.Table) -> Iterator[tuple[str, datetime, list[int]]]:
    """Yield (group, hour, each partition's highest lag); partitions without a commit have no lag."""
    known = samples.filter(pc.greater_equal(samples["committed_offset"], 0))
    nothing = pa.scalar(0, pa.int64())
    ends = pc.max_element_wise(known["end_offset"], nothing)
    # The committed offset may be newer than the end offset of the same sample: then the lag is 0.
    lag = pc.max_element_wise(pc.subtract(ends, known["committed_offset"]), nothing)
    hours = pc.floor_temporal(known["ts"], unit="hour")
    place = ["group_id", "hour", "topic", "partition"]
    told = pa.table(
        [known["group_id"], hours, known["topic"], known["partition"], lag], names=[*place, "lag"]
    )
    highest = told.group_by(place, use_threads=False).aggregate([("lag", "max")])
    found: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    columns = (highest[name].to_pylist() for name in ("group_id", "hour", "lag_max"))
    for group, hour, value in zip(*columns, strict=True):
        found[group, hour].append(value)
    for (group, hour), lags in found.items():
        yield group, hour, lags


def standstills(
    recovered: Iterable[RecoveryRow],
    outcomes: Outcomes,
    moves: Iterable[MoveRow],
    names: Mapping[tuple[str, str], str],
) -> Iterator[dict[str, object]]:
    """Yield the longest recoveries of each group, each with its decision's trigger and its move's cause.

    ``names``: (group, member id) -> instance id, for the column ``member``. Trigger and cause are None if the
    decision is of another day. The cause is also None if the partition did not move.
    """
    triggers = {(row["group_id"], row["decision_id"]): row["trigger"] for row in outcomes}
    causes = {_place(row): row["cause"] for row in moves}
    for mine in grouped(recovered, itemgetter("group_id")).values():
        ordered = sorted(
            mine, key=lambda row: (-seconds(row), row["started"], _place(row), row["member_id"])
        )
        for row in ordered[:STANDSTILLS_KEPT]:
            trigger = triggers.get((row["group_id"], row["decision_id"]))
            name = names.get((row["group_id"], row["member_id"]), row["member_id"])
            told = {"seconds": seconds(row), "trigger": trigger, "cause": causes.get(_place(row))}
            yield {**row, **told, "member": name}


def _place(row: RecoveryRow | MoveRow) -> tuple[str, str, str, int]:
    return row["group_id"], row["decision_id"], row["topic"], row["partition"]
