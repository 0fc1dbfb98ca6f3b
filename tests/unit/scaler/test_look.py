"""The scaler's look, taken from the evidence of a status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.scaler.look import Source, look_of
from faust_assigner.status.evidence import Heard
from faust_assigner.status.report import ANSWERED
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.worker_status import Standstill
from tests.support.status import LOG, MadeGroup, group

SETTINGS = {"table_standby_replicas": "1"}


def heard(made: MadeGroup, **of_m1: Any) -> dict[str, Heard]:
    """Return answers of all workers; ``of_m1`` adds fields to m1's status."""
    return {
        made.claims[name].url: Heard(
            answer=ANSWERED,
            status=made.status_of(
                name, **{"settings": SETTINGS, **(of_m1 if name == "m1" else {})}
            ),
        )
        for name in made.claims
    }


def test_a_group_at_rest() -> None:
    """Orders and its table share six tasks; Faust's leader topic is not a task."""
    topics = {"orders": 6, LOG: 6, "shop-__assignor-__leader": 1}
    made = group(3, topics=topics)
    found = look_of(made.evidence(heard=heard(made)))
    assert (found.members, found.tasks, found.standbys, found.busy) == (3, 6, 1, ())
    assert set(found.sources) == {("orders", n) for n in range(6)}
    assert found.backlog == 6 * 100
    assert {source.owner for source in found.sources.values()} == {"w0", "w1", "w2"}


@pytest.mark.parametrize(("committed", "lag"), [(None, 0), (0, 5), (2, 3), (5, 0), (9, 0)])
def test_a_partitions_lag_is_never_below_zero(committed: int | None, lag: int) -> None:
    """A recreated topic ends before its committed offset."""
    assert Source(owner="w0", committed=committed, end=5).lag == lag


def test_the_number_of_tasks_does_not_depend_on_the_order_of_the_ends() -> None:
    """The brokers answer in any order."""
    evidence = (made := group(2)).evidence(heard=heard(made))
    backwards = replace(evidence, ends=dict(reversed(list(evidence.ends.items()))))
    assert look_of(backwards).tasks == look_of(evidence).tasks == 6
    known = {place: end for place, end in evidence.ends.items() if place[1] not in (0, 2)}
    assert look_of(replace(evidence, ends=known)).tasks == 6, "two ends are not known"


def test_a_group_whose_topics_are_empty_is_at_rest() -> None:
    """Each partition ends at 0; the size is held only without any answer of the brokers."""
    made = group(2, end=0)
    evidence = made.evidence(heard=heard(made), committed={})
    assert look_of(evidence).busy == ()
    assert look_of(replace(evidence, ends={})).busy == ("the brokers did not return end offsets",)


def test_tasks_of_topics_with_other_counts_are_added() -> None:
    """A pair of topics has six tasks and another topic four."""
    made = group(2, topics={"orders": 6, LOG: 6, "clicks": 4})
    assert look_of(made.evidence(heard=heard(made))).tasks == 10


def test_without_tables_standbys_count_for_nothing() -> None:
    """Faust's default is one standby, even without tables."""
    made = group(2, topics={"orders": 6})
    assert look_of(made.evidence(heard=heard(made))).standbys == 0


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"restore_remaining_records": 12_345}, "w1 restores state, 12,345 records remain"),
        ({"is_leaving": True}, "w1 is stopping"),
        ({"not_ready": ("it stands",)}, "w1 is not ready: it stands"),
        (
            {
                "standing": (
                    Standstill(topic="orders", partition=n, reason="restoring", seconds=1.0)
                    for n in (1, 2)
                )
            },
            "orders 1-2 restores its tables",
        ),
    ],
    ids=["restores", "stops", "not ready", "stands still"],
)
def test_a_worker_that_is_not_at_rest_is_named(said: dict[str, Any], words: str) -> None:
    """A sentence names the worker's activity."""
    said = {
        key: value if isinstance(value, int | tuple) else tuple(value)
        for key, value in said.items()
    }
    made = group(3)
    found = look_of(made.evidence(heard=heard(made, **said)))
    assert len(found.busy) == 1
    assert words in found.busy[0]


def test_a_partition_that_stands_still_for_its_own_reason_is_no_state_on_the_move() -> None:
    """A record with a long processing time is no reason to hold the size."""
    still = (Standstill(topic="orders", partition=1, reason="record", seconds=99.0),)
    made = group(3)
    assert look_of(made.evidence(heard=heard(made, standing=still))).busy == ()


def test_a_worker_that_does_not_answer_is_named() -> None:
    """The group may be about to lose the worker."""
    made = group(3)
    [why] = look_of(made.evidence(silent=["m2"])).busy
    assert why.startswith("worker w2 does not answer (silent")


def test_a_warm_up_is_named_with_its_partitions() -> None:
    """A new member waits for state."""
    made = MadeGroup().join("m0", "m1", holds=True)
    policy = WarmupPolicy(acceptable_recovery_lag=10, acceptable_from_nothing=10)
    for _ in range(3):
        made.round(warmups=policy)
    made.join("m2", holds=True).round(warmups=policy)
    found = look_of(made.evidence(heard=heard(made)))
    assert any(why.startswith(f"worker w2 warms up {LOG} ") for why in found.busy)


def test_a_rebalance_is_a_reason_of_its_own() -> None:
    """The coordinator returns no assignments then; the members are counted."""
    made = group(3)
    made.state = "PreparingRebalance"
    found = look_of(made.evidence(heard=heard(made)))
    assert found.members == 3
    assert found.busy[0] == "a rebalance is in progress (PreparingRebalance)"


def test_capacities_that_differ_are_said() -> None:
    """Sizes count workers as equal."""
    made = MadeGroup().join("m0", "m1")
    made.offers["m1"] = {"capacity": 2.0}
    made.round().round()
    found = look_of(made.evidence(heard=heard(made)))
    assert any("capacities differ" in note for note in found.notes)


def test_brokers_that_do_not_say_where_partitions_end_hold_the_size() -> None:
    """The load is unknown without end offsets."""
    made = group(3)
    found = look_of(made.evidence(heard=heard(made), ends={}, problems=("Lags are unknown",)))
    assert found.busy == ("the brokers did not return end offsets",)
    assert "Lags are unknown" in found.notes


def test_a_worker_that_is_not_live_is_named_with_its_first_reason() -> None:
    """The worker still counts as ready."""
    made = group(3)
    [why] = look_of(made.evidence(heard=heard(made, not_live=("it hangs", "it stalls")))).busy
    assert why == "worker w1 is not ready: it hangs"


def test_a_group_with_one_capacity_gets_no_note() -> None:
    """Any common capacity gets no note."""
    made = MadeGroup().join("m0", "m1")
    made.offers["m0"] = made.offers["m1"] = {"capacity": 2.0}
    made.round().round()
    assert look_of(made.evidence(heard=heard(made))).notes == ()


def test_the_largest_number_of_standbys_of_any_worker_counts() -> None:
    """During a deploy the workers differ; the scaler reserves room for all copies."""
    made = group(3)
    more = {"settings": {"table_standby_replicas": "2"}}
    assert look_of(made.evidence(heard=heard(made, **more))).standbys == 2
    odd = {"settings": {"table_standby_replicas": "many"}}
    assert look_of(made.evidence(heard=heard(made, **odd))).standbys == 1


def test_only_partitions_with_records_are_named_as_never_committed() -> None:
    """An empty partition has no offset to commit."""
    made = group(2, topics={"orders": 3})
    ends = {("orders", 0): 0, ("orders", 1): 7, ("orders", 2): 7}
    evidence = made.evidence(heard=heard(made), ends=ends)
    found = look_of(replace(evidence, committed={("orders", 2): 0}))
    assert found.notes == ("orders 1: no offset is committed yet, so the lag is unknown",)
    assert found.backlog == 7


def test_some_missing_end_offsets_do_not_hold_the_size() -> None:
    """Only without any end offset is the load unknown."""
    made = group(2, topics={"orders": 3})
    found = look_of(made.evidence(heard=heard(made), ends={("orders", 1): 7}))
    assert found.busy == ()
    assert set(found.sources) == {("orders", 1)}


def test_partitions_without_a_leader_hold_the_size() -> None:
    """Their backlog is unknown, and so may be the number of tasks."""
    made = group(2, topics={"orders": 3})
    evidence = made.evidence(heard=heard(made), ends={("orders", 1): 7})
    found = look_of(replace(evidence, leaderless=frozenset({("orders", 2), ("orders", 0)})))
    assert found.busy == ("partitions without a leader: orders 0,2",)


def test_the_first_of_two_rounds_holds_the_size() -> None:
    """A member's answer announces a second round, in which revoked partitions are assigned."""
    made = MadeGroup().join("m0", "m1", holds=True).round().round()
    made.join("m2", holds=True).round()
    why = "the second of two rounds of a rebalance is about to begin"
    assert why in look_of(made.evidence(heard=heard(made))).busy
    made.round()
    assert why not in look_of(made.evidence(heard=heard(made))).busy


def test_an_empty_group_is_not_busy() -> None:
    """Its state is not Stable, and no rebalance is in progress."""
    made = MadeGroup()
    made.state = "Empty"
    found = look_of(made.evidence(heard={}))
    assert (found.members, found.busy) == (0, ())


def test_a_partition_without_a_committed_offset_is_seen_in_an_empty_group() -> None:
    """No member owns it, but its records must wake a group that was scaled to zero."""
    made = MadeGroup()
    made.state = "Empty"
    evidence = replace(
        made.evidence(heard={}),
        committed={("orders", 0): 3, ("shop-__assignor-__leader", 0): 1},
        ends={("orders", 0): 3, ("orders", 1): 2, ("shop-__assignor-__leader", 0): 1},
    )
    assert look_of(evidence).sources == {
        ("orders", 0): Source(owner="", committed=3, end=3),
        ("orders", 1): Source(owner="", committed=None, end=2),
    }
