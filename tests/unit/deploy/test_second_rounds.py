"""Facts of the played rounds that need a second topic, protocol or member to show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faust_assigner.deploy.fleet import Moved
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.join import decode_join
from tests.support.status import LOG
from tests.unit.deploy.test_rounds import fleet_of, joined

LAGS = {
    True: WarmupPolicy(acceptable_recovery_lag=7),
    False: WarmupPolicy(acceptable_recovery_lag=900),
}


@pytest.mark.parametrize(("is_cooperative", "lag"), [(True, 7), (False, 900)])
def test_the_acceptable_lag_is_that_of_the_groups_protocol(is_cooperative: bool, lag: int) -> None:
    """One eager member makes the group eager; without a policy the default counts."""
    other = replace(joined("b"), cooperative=is_cooperative)
    fleet = replace(fleet_of(a=joined("a"), b=other), policy=LAGS)
    assert (fleet.is_cooperative, fleet._acceptable()) == (is_cooperative, lag)
    without = replace(fleet, policy={True: None, False: None})
    assert without._acceptable() == WarmupPolicy().acceptable_recovery_lag


def test_a_topic_that_the_brokers_do_not_have_is_no_task() -> None:
    """A subscription may name it before it is created."""
    fleet = fleet_of(("orders", LOG, "missing"), a=joined("a"))
    after, moved, _ = fleet.round()
    task = tuple(sorted(("orders", LOG)))
    assert [(tuple(sorted(one.topics)), one.partition) for one in moved] == [(task, 0), (task, 1)]
    assert set(after.owners()) == {("orders", 0), ("orders", 1), (LOG, 0), (LOG, 1)}


def test_a_member_without_any_copy_still_sends_its_positions() -> None:
    """A member that reports positions sends the present ones in place of those of its join."""
    data = joined("a", actives={LOG: [0]}, positions={})
    fleet = fleet_of(a=data)
    worker = replace(fleet.workers["a"], positions={(LOG, 0): 640, (LOG, 1): 7})
    sent = decode_join(fleet._metadata(worker).user_data, worker.topics)
    assert sent is not None
    assert sent.positions is not None
    found = {
        topic: dict(zip(numbers, offsets, strict=True))
        for topic, (numbers, offsets) in sent.positions.items()
    }
    assert found == {LOG: {0: 640, 1: 7}}


def test_a_task_moves_as_a_whole_with_its_own_figures() -> None:
    """The records are those that its new owner lacks; a copy within the lag is warm."""
    a = joined("a", actives={"orders": [0, 1], LOG: [0, 1]})
    b = joined("b", standbys={LOG: [0, 1]})
    fleet = replace(fleet_of(("orders", LOG), a=a, b=b), policy=LAGS)
    b_worker = replace(fleet.workers["b"], positions={(LOG, 0): 990, (LOG, 1): 996})
    a_worker = replace(fleet.workers["a"], positions={(LOG, 0): 1000, (LOG, 1): 1000})
    fleet = replace(fleet, workers={"a": a_worker, "b": b_worker})
    fleet = replace(fleet, owner=fleet.owners()).without(["a"])
    _, moved, _ = fleet.round()
    rest = {"changelogs": (LOG,), "was": "a", "to": "b", "is_cold": False}
    topics = moved[0].topics
    assert sorted(topics) == sorted(("orders", LOG))
    assert moved == (
        Moved(topics=topics, partition=0, records=10, is_behind=True, **rest),
        Moved(topics=topics, partition=1, records=4, is_behind=False, **rest),
    )
