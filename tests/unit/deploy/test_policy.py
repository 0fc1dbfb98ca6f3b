"""The warm-up policy from a leader's settings, with a different number for each limit."""

from __future__ import annotations

import pytest

from faust_assigner.app.rebalance.warming import SHORT
from faust_assigner.deploy.read import policy_of
from faust_assigner.settings import table
from faust_assigner.warmup import WarmupPolicy

SETTINGS = {
    table.WARMUPS.name: "1",
    table.FOLLOW_UP_S.name: "11",
    table.ACCEPTABLE_RECOVERY_LAG.name: "13",
    table.ACCEPTABLE_FROM_NOTHING.name: "17",
    table.MAX_WARMUPS.name: "19",
    table.MAX_GROUP_WARMUPS.name: "23",
}


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_each_limit_of_the_policy_comes_from_its_own_setting(is_cooperative: bool) -> None:
    """Without its own setting, the limit of a new copy depends on the protocol."""
    wanted = {"acceptable_recovery_lag": 13, "max_per_member": 19, "max_per_group": 23}
    found = policy_of(SETTINGS, is_cooperative)
    assert found == WarmupPolicy(**wanted, acceptable_from_nothing=17)
    fewer = {name: text for name, text in SETTINGS.items() if text != "17"}
    limit = SHORT if is_cooperative else 13
    assert policy_of(fewer, is_cooperative) == WarmupPolicy(**wanted, acceptable_from_nothing=limit)
    for name in (table.WARMUPS.name, table.FOLLOW_UP_S.name):
        assert policy_of({**SETTINGS, name: "0"}, is_cooperative) is None
