"""What is counted about groups, and what is written of those that are fenced."""

from __future__ import annotations

from faust_assigner.broker.groups.fences import Refusal
from faust_assigner.broker.groups.meter import Meter
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import Heartbeat
from tests.support.coordination.classic_bench import Bench


def seen(*states: str) -> Meter:
    """A group in these states, a second after each other, each for another reason."""
    meter = Meter()
    for number, state in enumerate(states):
        meter.state_seen("g", state, number * 1_000, f"reason {number}")
    return meter


def test_a_rebalance_is_counted_once_under_what_began_it() -> None:
    """It goes through several states before the group is Stable again."""
    meter = seen(
        "Stable", "PreparingRebalance", "CompletingRebalance", "PreparingRebalance", "Stable"
    )
    assert dict(meter.rebalances) == {"reason 1": 1}
    assert (sum(meter.rebalance_s.counts), meter.rebalance_s.total) == (1, 3.0)


def test_a_group_that_lost_all_members_took_no_time_to_rebalance() -> None:
    """Its rebalance has no end that anybody waited for, and the next one begins anew."""
    meter = seen("PreparingRebalance", "Empty", "PreparingRebalance", "Stable")
    assert meter.rebalances.total() == 2
    assert (sum(meter.rebalance_s.counts), meter.rebalance_s.total) == (1, 1.0)


def test_a_group_that_is_gone_is_not_measured_on() -> None:
    """A new one of its name has not rebalanced since the old one began to."""
    meter = seen("PreparingRebalance")
    meter.forget("g")
    meter.state_seen("g", "Stable", 90_000, "")
    assert sum(meter.rebalance_s.counts) == 0


def refused(bench: Bench, member_id: str, instance_id: str | None) -> str:
    """The sentence about a heartbeat of generation 7."""
    event = Heartbeat(0, member_id, 7, instance_id)
    return str(Refusal("g", bench.group, event, Code.ILLEGAL_GENERATION))


def test_a_fenced_member_is_told_apart_from_the_one_that_has_its_instance_id() -> None:
    """It is in the group itself, at another generation; or another member has replaced it."""
    bench = Bench()
    token = bench.join(instance_id="i")
    bench.pass_time(0)
    mine = bench.joined(token).member_id
    assert "it is at epoch" in refused(bench, mine, "i")
    assert f"instance i is {mine}" in refused(bench, "old", "i")
    assert "it is no member" in refused(bench, "old", None)
