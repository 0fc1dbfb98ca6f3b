"""The simulator's costs for a group, measured from the recoveries in its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from faust_assigner.pipeline.rows import DecisionRow
from faust_assigner.simulation.fleet import Costs

#: With fewer replayed records, latency and not the replay's speed determines the time of a recovery.
LEAST_RECORDS = 1_000
LEAST_TAKEOVERS = 3


class RecoveryFact(NamedTuple):
    """The recovery of all partitions of one worker after one decision."""

    group_id: str
    decision_id: str
    member_id: str
    #: Time from the first start to the last end: a worker resumes after all its partitions recovered.
    seconds: float
    records: int
    #: Whether a partition had no local state and was replayed.
    cold: bool


def calibrated(
    costs: Costs, recoveries: Sequence[RecoveryFact], decisions: Sequence[DecisionRow]
) -> tuple[Costs, tuple[str, ...]]:
    """Replace ``costs`` by values from the ledger; return the new costs and the names of the replaced costs.

    * ``replay_records_per_s``: records per second over all cold recoveries together;
    * ``warm_takeover_s``: the median time of warm recoveries of at most ``acceptable_recovery_lag`` records;
    * ``session_timeout_s``: the longest session timeout in the groups' newest decisions.
    """
    found: dict[str, float] = {}
    cold = [each for each in recoveries if each.cold and each.seconds > 0]
    records = sum(each.records for each in cold)
    if records >= LEAST_RECORDS:
        found["replay_records_per_s"] = records / sum(each.seconds for each in cold)
    warm = [
        each.seconds
        for each in recoveries
        if not each.cold and each.records <= costs.acceptable_recovery_lag
    ]
    if len(warm) >= LEAST_TAKEOVERS:
        found["warm_takeover_s"] = float(np.median(warm))
    newest = {decision["group_id"]: decision.get("session_timeout_s") for decision in decisions}
    sessions = [seconds for seconds in newest.values() if seconds]
    if sessions:
        found["session_timeout_s"] = max(sessions)
    return replace(costs, **found), tuple(sorted(found))
