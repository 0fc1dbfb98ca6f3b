"""What things cost in this group: the simulator's costs, taken from a ledger's own recoveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from faust_assigner.simulation.fleet import Costs

#: Fewer replayed records than this tell the latency of a recovery, not its speed.
LEAST_RECORDS = 1_000
LEAST_TAKEOVERS = 3


class RecoveryFact(NamedTuple):
    """What one worker had to bring up after one decision, all its partitions together."""

    group_id: str
    decision_id: str
    member_id: str
    #: From the first start to the last end: a worker resumes when all of them are there.
    seconds: float
    records: int
    #: Whether a partition came without state of its own (replayed).
    cold: bool


def calibrated(
    costs: Costs,
    recoveries: Sequence[RecoveryFact],
    decisions: Sequence[Mapping[str, Any]],
) -> tuple[Costs, tuple[str, ...]]:
    """``costs`` with what the ledger measured in their place, and the names of those; the rest stays.

    Replay: all cold recoveries together, records a second. Takeover: the median warm one that had no more
    to read than counts as caught up. Session: the longest that the newest decisions say.
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
