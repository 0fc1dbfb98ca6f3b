"""The rows of the table ``sim_result``."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple


class SimRow(NamedTuple):
    """One arm in one scenario: a row of the table ``sim_result``.

    ``moved``, ``cold_moves``: tasks. ``imbalance``: load of the heaviest member / mean load, averaged
    over rebalances. ``worst_load``: the maximum of this ratio. ``unavailable_s``: seconds without
    processing, summed over partitions. ``worst_gap_s``: the longest time in seconds without processing of
    one partition. ``restored``: records replayed. ``state``: the class of an average partition's state
    (none, small, medium, large). ``members``, ``racks``: the numbers at the start.
    """

    group_id: str
    dt: dt.date
    scenario_id: str
    seed: int
    members: int
    partitions: int
    standbys: int
    policy: str
    moved: int
    imbalance: float
    unavailable_s: float
    cold_moves: int
    worst_load: float
    worst_gap_s: float
    restored: float
    rebalances: int
    idle_members: int
    racks: int
    state: str


#: Spark's DDL of :class:`SimRow`, in its order.
SIM_DDL = (
    "group_id string, dt date, scenario_id string, seed long, members int, partitions int, standbys int, "
    "policy string, moved int, imbalance double, unavailable_s double, cold_moves int, worst_load double, "
    "worst_gap_s double, restored double, rebalances int, idle_members int, racks int, state string"
)
