"""The leader's loop at exact times: plans, transactions, pauses and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.errors import PlanInputError
from faust_assigner.service import values as codec
from faust_assigner.service.errors import QuotaExceeded, StoreUnavailable
from faust_assigner.service.handoff import Phase, TopicPartition
from faust_assigner.service.leading import rebalancer
from faust_assigner.service.leading.bundles import Bundle
from faust_assigner.service.leading.election import Deposed
from faust_assigner.service.leading.targets import Targets
from faust_assigner.service.records import Consumer
from faust_assigner.service.store.base import Delete, Put
from faust_assigner.service.view import View
from tests.support.assigning.consumers import virtually
from tests.unit.service.leader_stage import (
    SETTINGS,
    T0,
    T1,
    T2,
    T3,
    A,
    B,
    Play,
    Stage,
    played,
    warming,
)
from tests.unit.service.stories import ALL


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Return a function that runs a scenario beside the leader's loop and returns its stage."""
    return played(monkeypatch)


def test_a_term_begins_with_the_view_of_its_revision_and_plans_after_a_debounce(play: Play) -> None:
    """All orphans are one transaction; the leader waits for its revision and counts the plan."""

    async def story(s: Stage) -> None:
        s.owners = {T0: "a", T1: "b", T2: "a"}
        await asyncio.sleep(1.9)
        assert s.commits == []
        await asyncio.sleep(0.2)
        assert s.commits == [(2.0, 8, 3)]
        assert [s.owner_of(at) for at in (T0, T1, T2, T3)] == ["a", "b", "a", None]
        assert s.waited == [77, s.revision]

    stage = play(story)
    assert stage.metrics.of("rebalanced") == [[3, 0.0]]
    assert stage.plans[0] == 2.0


def test_a_transaction_with_a_failed_compare_is_halved(play: Play) -> None:
    """Only the refused decision is left out, and is retried after half a second."""

    async def story(s: Stage) -> None:
        s.owners = dict.fromkeys((T0, T1, T2, T3), "a")
        s.refused = {ALL.assignment(T2)}
        await asyncio.sleep(2.1)
        assert s.commits == [
            (2.0, 9, 4),
            (2.0, 5, 2),
            (2.0, 5, 2),
            (2.0, 3, 1),
            (2.0, 0, 0),
            (2.0, 3, 1),
            *((2.0, 3, 1), (2.0, 0, 0)),  # its own writes woke the leader
        ]
        assert [s.owner_of(at) for at in (T0, T1, T2, T3)] == ["a", "a", None, "a"]
        assert s.waited == [77, s.revision, 0]
        s.commits.clear()
        s.refused = set()
        await asyncio.sleep(0.3)
        assert s.commits == []
        await asyncio.sleep(0.2)
        assert (s.commits, s.owner_of(T2)) == ([(2.5, 3, 1)], "a")

    play(story)


def test_a_leader_whose_key_is_another_ones_gives_its_lease_up(play: Play) -> None:
    """Its loop ends with Deposed, after one look at its own key."""

    async def story(s: Stage) -> None:
        s.owners, s.is_deposed = {T0: "a"}, True
        with pytest.raises(Deposed):
            await s.task  # type: ignore[attr-defined]
        assert s.commits == [(2.0, 3, 1), (2.0, 0, 0)]
        assert s.given_up

    play(story)


@pytest.mark.parametrize(
    ("error", "waited", "again"),
    [(StoreUnavailable("no answer"), 0, 2.5), (QuotaExceeded("full"), 3, 7.2)],
)
def test_a_plan_that_was_not_written_is_made_again(
    play: Play, error: Exception, waited: int, again: float
) -> None:
    """The retry comes after half a second; with a full store, after the election's retry time."""

    async def story(s: Stage) -> None:
        s.owners, s.error = {T0: "a"}, error
        await asyncio.sleep(2.1 + waited)
        assert (s.waited, s.owner_of(T0)) == ([77, 0], None)
        if waited:
            s.rebalancer.on_changes([])
            await asyncio.sleep(0.1)
            assert len(s.commits) == 1
            s.topic(5)
        await asyncio.sleep(again - s.now + 0.01)
        assert s.owner_of(T0) == "a"
        assert [at for at, *_ in s.commits] == [2.0, pytest.approx(again)]

    play(story)


def test_the_cool_downs_of_a_transaction_share_one_lease(play: Play) -> None:
    """The lease lasts for the configured cooldown; other keys have no lease."""

    async def story(s: Stage) -> None:
        for at in (T0, T1):
            s.handoff(warming(at, failed="no"))
        await asyncio.sleep(0.1)
        kept = [s.view.cooldowns[at, "b"] for at in (T0, T1)]
        assert [(entry.value, entry.kv.lease) for entry in kept] == [(5_007.0, 901)] * 2
        assert (s.leases, s.view.handoffs) == ([7.0], {})

    stage = play(story)
    assert stage.metrics.of("handoff_ended") == [["failed", 0.0]] * 2


def test_the_mark_of_an_expelled_process_has_a_lease_of_a_day(play: Play) -> None:
    """A cooldown in the same transaction has its own lease; the fence has the process's lease."""

    async def story(s: Stage) -> None:
        ready = warming(strict=True, phase=Phase.READY, unreleased="stuck")
        s.handoff(ready)
        s.handoff(warming(T1, failed="no"))
        await asyncio.sleep(0.1)
        marks = {key: kv.lease for key, kv in s.view.raw.items() if kv.lease}
        assert s.leases == [86_400.0, 7.0]
        assert marks == {
            ALL.consumer("b"): 51,
            ALL.expelled("a", "a1"): 901,
            ALL.cooldown(T1, "b"): 902,
            ALL.fence("a", "a1"): 50,
        }

    play(story)


def test_a_hand_off_ends_at_the_moment_at_which_its_time_is_over(play: Play) -> None:
    """The deadline falls between two periodic passes, and the age is reported."""

    async def story(s: Stage) -> None:
        await asyncio.sleep(10.0)
        s.owners = {T0: "b"}
        s.handoff(warming())
        await asyncio.sleep(299.9)
        assert T0 in s.view.handoffs
        assert s.rebalancer.age_s(T0) == pytest.approx(299.9)
        await asyncio.sleep(0.11)
        assert T0 not in s.view.handoffs

    stage = play(story)
    [[outcome, took_s]] = stage.metrics.of("handoff_ended")
    assert (outcome, took_s) == ("late", pytest.approx(300.0))


def test_the_ages_of_hand_offs_are_reported_by_phase(play: Play) -> None:
    """Each pass reports all open hand-offs."""

    async def story(s: Stage) -> None:
        s.handoff(warming(T0))
        await asyncio.sleep(1.0)
        s.handoff(warming(T1))
        s.handoff(warming(T2, phase=Phase.READY, strict=True))
        await asyncio.sleep(0.5)
        s.rebalancer.on_changes([])
        await asyncio.sleep(0)
        assert s.metrics.of("handoffs")[-1] == [{"Warming": [1.5, 0.5], "Ready": [0.5]}]

    play(story)


def test_only_new_stuck_consumers_are_logged_and_all_are_counted(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader logs and counts only at passes that may plan."""

    async def story(s: Stage) -> None:
        for number, name in enumerate(("b", "a")):
            cooling = Put(ALL.cooldown(T0, name), codec.dump_until(1.0), 9)
            s.write(cooling)
            s.topic(5 + number)
            await asyncio.sleep(2.5)

    stage = play(story, settings=replace(SETTINGS, cooldown_s=60.0))
    assert stage.metrics.of("stuck") == [[1], [2]]
    warned = [r.getMessage().split()[0] for r in caplog.records if "got no partition" in r.message]
    assert warned == ["b", "a"]


def test_a_plan_for_a_full_store_is_written_by_the_next_periodic_pass(play: Play) -> None:
    """No change of the group's state is necessary."""

    async def story(s: Stage) -> None:
        s.owners, s.error = {T0: "a"}, QuotaExceeded("full")
        await asyncio.sleep(41.9)
        assert (len(s.commits), s.owner_of(T0)) == (1, None)
        await asyncio.sleep(0.2)
        assert (len(s.commits), s.owner_of(T0)) == (2, "a")

    play(story)


def test_a_plan_that_only_tidies_counts_as_no_rebalance(play: Play) -> None:
    """The replicas of a consumer that is gone are deleted."""

    async def story(s: Stage) -> None:
        s.write(Put(ALL.replicas("gone"), codec.dump_partitions((T0,))))
        await asyncio.sleep(2.1)
        assert (s.view.replicas, len(s.commits)) == ({}, 1)
        assert s.metrics.of("rebalanced") == []

    play(story)


def test_the_leader_waits_for_a_written_transaction_though_the_last_one_is_refused(
    play: Play,
) -> None:
    """The compares of 63 bundles fill the first transaction."""

    async def story(s: Stage) -> None:
        last = TopicPartition("t", 63)
        s.topic(64)
        s.owners = {TopicPartition("t", number): "b" for number in range(64)}
        s.refused = {ALL.assignment(last)}
        await asyncio.sleep(2.1)
        assert [writes for _, _, writes in s.commits[:3]] == [63, 1, 0]
        assert (s.waited[:2], s.owner_of(last)) == ([77, s.revision], None)

    play(story)


def test_a_large_plan_is_several_transactions_and_the_last_revision_is_waited_for(
    play: Play,
) -> None:
    """63 decisions fit into a transaction, as the compare of their consumer counts once."""

    async def story(s: Stage) -> None:
        s.topic(300)
        s.owners = {TopicPartition("t", number): "a" for number in range(300)}
        await asyncio.sleep(2.1)
        assert [writes for _, _, writes in s.commits] == [63, 63, 63, 63, 48]
        assert s.waited == [77, s.revision]
        assert len(s.view.assignments) == 300

    play(story)


def test_no_plan_is_no_change(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner error is logged, and hand-offs continue."""

    def fails(*_: object, **__: object) -> Targets:
        raise PlanInputError("no")

    async def story(s: Stage) -> None:
        monkeypatch.setattr(rebalancer, "choose", fails)
        s.handoff(warming(T0, failed="no"))
        await asyncio.sleep(5.0)
        assert s.view.handoffs == {}
        assert await s.rebalancer.targets([A]) is None

    play(story)


def names(consumers: Iterable[Consumer]) -> list[str]:
    """The consumers' names."""
    return [consumer.name for consumer in consumers]


def test_a_dry_run_plans_for_the_given_consumers_with_the_settings_and_the_standing(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dry run uses the last plan's standing and the configured replicas."""
    asked: list[tuple[list[str], int, set[str]]] = []

    def choose(
        view: View, consumers: Sequence[Consumer], *, replicas: int, standing: Any
    ) -> Targets:
        asked.append((names(consumers), replicas, set(standing.stuck)))
        return Targets({T0: "x"}, {})

    async def story(s: Stage) -> None:
        s.write(Put(ALL.cooldown(T0, "b"), codec.dump_until(1.0), 9))
        monkeypatch.setattr(rebalancer, "choose", choose)
        await asyncio.sleep(2.1)
        found = await s.rebalancer.targets([B])
        assert found == Targets({T0: "x"}, {})

    play(story)
    assert asked == [(["a", "b"], 2, {"b"}), (["b"], 2, {"b"})]


def test_every_end_in_a_joined_bundle_has_its_age() -> None:
    """The ends may reach the record before the store's answer comes."""

    async def story() -> None:
        s = Stage()
        s.topic(4)
        s.consumers(A, B)
        for at in (T0, T1):
            s.handoff(warming(at))
            s.offset += 3.0
        ended = (("handed", T0), ("orphan", T1))
        first = Bundle((), (Delete(ALL.handoff(T0)), Delete(ALL.handoff(T1))), (), ended)
        await s.rebalancer._write(s.term, [first, Bundle((), (Delete(ALL.handoff(T2)),))])
        assert s.metrics.of("handoff_ended") == [["handed", 6.0], ["orphan", 3.0]]
        assert s.view.handoffs == {}

    virtually(story)
