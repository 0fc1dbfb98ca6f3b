"""Target computations: the time and place of each, and results that fail or arrive late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.assignors import ASSIGNORS, compute
from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.consumer import targets
from faust_assigner.coordinator.consumer.core import RETRY_MS
from faust_assigner.coordinator.consumer.subscriptions import Topics
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import CatalogueChanged, TargetComputed
from faust_assigner.coordinator.records import Key, Kind, MemberMetadata, Pattern, TargetAssignment
from faust_assigner.coordinator.settings import ConsumerLimits
from tests.support.coordination.consumer_bench import Bench, catalogue, topic_id


def far_away(interval_ms: int = 0) -> Bench:
    """Return a group whose targets are computed elsewhere and arrive on the test's demand."""
    bench = Bench(ConsumerLimits(assignment_interval_ms=interval_ms, inline_size=0))
    bench.answers_targets = False
    return bench


def answer(bench: Bench, k: int) -> list[fx.Effect]:
    """Deliver the k-th requested computation."""
    asked = bench.asked[k]
    return bench.step(TargetComputed(asked.request_id, compute(asked.spec)))


def test_a_heartbeat_does_not_wait_for_a_computation_elsewhere() -> None:
    """The joining member first gets an epoch without partitions, then the partitions."""
    bench = far_away()
    first = bench.join("m1")
    assert (first.member_epoch, bench.given(first)) == (1, {})
    answer(bench, 0)
    second = bench.heartbeat("m1", 1)
    assert (second.member_epoch, bench.given(second)) == (2, {"a": (0, 1, 2, 3)})


def test_an_assignor_of_another_package_never_runs_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow function would stop all clients of the broker, even for one member and one topic."""
    called: list[str] = []
    monkeypatch.setitem(ASSIGNORS, "mine", lambda spec, topics: called.append("mine"))
    bench = Bench(ConsumerLimits(assignment_interval_ms=0, assignors=("mine", "uniform")))
    bench.answers_targets = False
    first = bench.join("m1")
    assert ([asked.spec.assignor for asked in bench.asked], bench.given(first)) == (["mine"], {})
    assert called == []


def test_one_computation_at_a_time_and_the_next_one_sees_everybody() -> None:
    """A thousand joins during a computation cause one more computation."""
    bench = far_away()
    bench.join("m0")
    for k in range(1, 1_000):
        bench.join(f"m{k}")
    assert len(bench.asked) == 1
    answer(bench, 0)
    assert [len(asked.spec.members) for asked in bench.asked] == [1, 1_000]


def test_a_thousand_joins_in_a_second_are_two_computations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first computation is immediate, the second follows after the interval."""
    bench = Bench(ConsumerLimits())
    computed = []
    monkeypatch.setattr(
        targets, "compute", lambda spec: computed.append(len(spec.members)) or compute(spec)
    )
    for k in range(1_000):
        bench.join(f"m{k}")
    assert computed == [1]
    bench.wait(1_000)
    assert computed == [1, 1_000]


def test_a_few_members_that_read_much_are_computed_elsewhere() -> None:
    """The work is members times topics: 30 members with 100 topics are 3,000."""
    bench = Bench(ConsumerLimits(assignment_interval_ms=0), **{f"t{n}": 1 for n in range(100)})
    for k in range(30):
        bench.heartbeat(f"m{k}", 0, {}, subscribed_topic_regex="t.*", rebalance_timeout_ms=1_000)
    assert [len(asked.spec.members) for asked in bench.asked] == list(range(20, 31))


def test_expressions_that_mean_the_same_are_kept_as_one() -> None:
    """Otherwise a thousand clients' patterns would cost a million names in each heartbeat."""
    meaning = Topics(catalogue(**{f"t{n}": 1 for n in range(50)}))
    regexes = [f"t.*{'x?' * k}" for k in range(1, 20)]
    patterns = [Pattern(regex) for regex in regexes]
    read = [meaning.read_by(MemberMetadata(topic_regex=regex)) for regex in regexes]
    assert len({id(ids) for ids in read}) == 1
    assert len(read[0]) == 50
    assert meaning.all_names(["other"], patterns) == {"other", *(f"t{n}" for n in range(50))}
    assert len(meaning.existing_topics(set(), patterns[:1])) == 50
    assert meaning.read_by(MemberMetadata(topic_regex=regexes[0])) is read[0]
    assert meaning.existing_topics({"t1", "other"}, []) == {"t1"}
    assert meaning.all_names(["other"], []) == {"other"}


def test_a_computation_may_take_longer_than_the_time_to_the_next_request() -> None:
    """Otherwise each result would be outdated, and the group would never get partitions."""
    bench = far_away()
    bench.join("m1")
    for _ in range(10):
        bench.wait(targets.ASK_AGAIN_MS // 4)
        bench.heartbeat("m1", 1)
    assert [asked.spec for asked in bench.asked] == [bench.asked[0].spec] * 3
    answer(bench, 0)
    reply = bench.heartbeat("m1", 1)
    assert (reply.member_epoch, bench.given(reply)) == (2, {"a": (0, 1, 2, 3)})
    assert [answer(bench, k) for k in (1, 2)] == [[], []]


def test_a_result_is_outdated_by_a_group_without_members() -> None:
    """The member left during the computation, whose time was over, and another member has joined."""
    bench = far_away()
    bench.join("m1")
    for _ in range(5):
        bench.wait(targets.ASK_AGAIN_MS // 4)
        bench.heartbeat("m1", 1)
    bench.heartbeat("m1", -1)
    bench.join("m2")
    assert [answer(bench, k) for k in (0, 1)] == [[], []]
    answer(bench, 2)
    assert bench.given(bench.heartbeat("m2", 3)) == {"a": (0, 1, 2, 3)}


def test_a_member_that_left_meanwhile_gets_no_target() -> None:
    """The computation had three members; the next computation is requested immediately."""
    bench = far_away()
    bench.join("m1")
    answer(bench, 0)
    bench.join("m2")
    bench.join("m3")
    bench.heartbeat("m3", -1)
    answer(bench, 1)
    assert {m.member_id for m in bench.group.describe().members} == {"m1", "m2"}
    answer(bench, 2)
    assert bench.group.describe().target_epoch == bench.group.describe().epoch


def test_a_static_member_that_came_back_meanwhile_gets_its_old_ids_share() -> None:
    """The target was computed for m1 and is used for m9, which now has the instance id."""
    bench = far_away()
    bench.join("m1", instance_id="i1")
    bench.heartbeat("m1", -2, instance_id="i1")
    bench.join("m9", instance_id="i1")
    answer(bench, 0)
    assert bench.given(bench.heartbeat("m9", 1, instance_id="i1")) == {"a": (0, 1, 2, 3)}


def test_a_member_that_takes_a_static_place_before_the_places_first_target_is_computed_again() -> (
    None
):
    """The pending target has a share for the place and for the member: one of both is lost."""
    bench = far_away()
    bench.join("m1")
    answer(bench, 0)
    bench.join("s", instance_id="i")
    bench.heartbeat("s", -2, instance_id="i")
    bench.join("m1", instance_id="i")
    answer(bench, 1)
    assert len(bench.asked) == 3
    answer(bench, 2)
    (member,) = bench.group.describe().members
    assert (member.member_id, member.target) == ("m1", {topic_id("a"): (0, 1, 2, 3)})


def test_a_member_keeps_its_share_if_another_member_has_its_former_instance_id() -> None:
    """The target was computed for m1, which is still a member."""
    bench = far_away()
    bench.join("m1", instance_id="i1")
    bench.join("m1", instance_id="i2")
    bench.join("m2", instance_id="i1")
    answer(bench, 0)
    targets_of = {m.member_id: m.target for m in bench.group.describe().members}
    assert targets_of == {"m1": {topic_id("a"): (0, 1, 2, 3)}, "m2": {}}


def test_an_assignor_that_fails_leaves_the_target_as_it_is_and_is_asked_again() -> None:
    """No heartbeat fails because of the assignor's error."""
    bench = far_away(interval_ms=1_000)
    bench.join("m1")
    bench.step(TargetComputed(bench.asked[0].request_id, None, "it broke"))
    assert bench.heartbeat("m1", 1).error is Code.NONE
    bench.wait(1_000)
    assert len(bench.asked) == 2


def test_an_assignor_that_fails_has_a_second_also_where_targets_need_not_wait() -> None:
    """With an interval of 0 the same step would request computations for ever."""
    bench = far_away(interval_ms=0)
    bench.join("m1")
    bench.step(TargetComputed(bench.asked[0].request_id, None, "it broke"))
    bench.wait(900)
    assert len(bench.asked) == 1
    bench.wait(100)
    assert len(bench.asked) == 2


def test_an_assignor_that_raises_within_the_step_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group reports the error, keeps its target, and tries again after the interval."""
    bench = Bench(ConsumerLimits(assignment_interval_ms=1_000))
    bench.join("m1")
    bench.wait(1_000)

    def broken(spec: object) -> None:
        raise ArithmeticError("it broke")

    with monkeypatch.context() as patch:
        patch.setattr(targets, "compute", broken)
        assert bench.join("m2").error is Code.NONE
    assert fx.Happened("assignor_failed", "", "it broke") in bench.effects
    bench.wait(1_000)
    assert bench.group.describe().target_epoch == bench.group.describe().epoch


def test_a_target_that_gives_a_partition_twice_is_refused() -> None:
    """An assignor's bug must not make a group rebalance for ever."""
    bench = far_away(interval_ms=1_000)
    bench.join("m1")
    bench.join("m2")
    twice = {m: {topic_id("a"): (0,)} for m in ("m1", "m2")}
    bench.step(TargetComputed(bench.asked[0].request_id, twice))
    assert any(isinstance(e, fx.Happened) and e.what == "assignor_failed" for e in bench.effects)
    assert [m.target for m in bench.group.describe().members] == [{}, {}]


def test_a_computation_that_is_never_heard_of_is_asked_for_again() -> None:
    """The group requests the computation again after a minute."""
    bench = far_away()
    bench.join("m1", rebalance_timeout_ms=300_000)
    for _ in range(2):
        bench.wait(30_000)
        bench.heartbeat("m1", 1)
    assert [asked.request_id for asked in bench.asked] == [1, 2]
    answer(bench, 1)
    assert bench.given(bench.heartbeat("m1", 1)) == {"a": (0, 1, 2, 3)}
    assert bench.step(TargetComputed(1, {})) == [], "the first answer is too late"
    assert bench.group.describe().members[0].target == {topic_id("a"): (0, 1, 2, 3)}


def test_topics_that_changed_while_nobody_ran_are_seen_after_a_restart() -> None:
    """The first tick after the restart notices the change."""
    bench = Bench()
    bench.join("m1")
    bench.catalogue = catalogue(a=6)
    bench.restart()
    bench.wait(0)
    assert bench.given(bench.heartbeat("m1", 2)) == {"a": (0, 1, 2, 3, 4, 5)}


def test_topics_are_looked_at_again_after_a_write_that_failed() -> None:
    """The group checks the topics again a second later."""
    bench = Bench()
    bench.join("m1")
    bench.catalogue = catalogue(a=6)
    bench.disk_fails = True
    bench.step(CatalogueChanged(bench.catalogue))
    bench.disk_fails = False
    assert bench.group.describe().epoch == 2
    bench.wait(1_000)
    assert bench.group.describe().epoch == 3


def test_racks_are_told_to_the_assignor() -> None:
    """Members and partition replicas have racks; a moved replica causes a new epoch."""
    bench = far_away()
    bench.join("m1", rack_id="r1")
    assert bench.asked[0].spec.members["m1"].rack_id == "r1"
    answer(bench, 0)
    epoch = bench.group.describe().epoch
    for rounds, racks in enumerate((("r1", "r2"), ("r2", "r2")), 1):
        (topic,) = bench.catalogue.by_name.values()
        where = tuple(frozenset({rack}) for rack in racks)
        bench.step(CatalogueChanged(Catalogue.of([replace(topic, partitions=2, racks=where)])))
        assert bench.group.describe().epoch == epoch + rounds
        assert bench.asked[-1].spec.topics[topic.topic_id].racks == where
        answer(bench, -1)


def test_a_change_of_one_member_costs_one_member() -> None:
    """In a group of a thousand members a heartbeat with progress writes a single record."""
    bench = Bench(ConsumerLimits(inline_size=5_000), a=2_000)
    for k in range(1_000):
        bench.join(f"m{k:03}")
    bench.wait(1_000)
    bench.heartbeat("m001", 2)
    assert len(bench.saves[-1]) == 1
    bench.heartbeat("m000", 2, {"a": (0, 1)})
    assert len(bench.saves[-1]) == 1


@pytest.mark.parametrize(("interval_ms", "pause_ms"), [(0, RETRY_MS), (9_000, 9_000)])
def test_a_failed_assignor_is_called_again_after_the_longer_of_two_pauses(
    interval_ms: int, pause_ms: int
) -> None:
    """The pauses are the interval of targets and the pause of retries."""
    bench = far_away(interval_ms)
    bench.join("m1")
    bench.step(TargetComputed(bench.asked[0].request_id, None, "no luck"))
    assert bench.group.next_deadline_ms == bench.now + pause_ms
    bench.wait(pause_ms - 1)
    assert len(bench.asked) == 1
    bench.join("m2")
    assert len(bench.asked) == 1
    bench.wait(1)
    assert [sorted(asked.spec.members) for asked in bench.asked] == [["m1"], ["m1", "m2"]]


def test_a_static_member_without_partitions_has_an_empty_target_under_its_new_id_too() -> None:
    """The empty target is stored under the new id, and the old id has no record."""
    bench = Bench(ConsumerLimits(assignment_interval_ms=0), a=1)
    bench.join("m1")
    bench.join("s1", instance_id="i")
    kept = bench.heartbeat("s1", -2, instance_id="i")
    assert kept.error is Code.NONE
    bench.join("s2", instance_id="i")
    kinds = {
        member_id: sorted(key.kind.value for key in bench.disk if key.member_id == member_id)
        for member_id in ("s1", "s2")
    }
    every = sorted(kind.value for kind in (Kind.MEMBER, Kind.TARGET, Kind.CURRENT))
    assert kinds == {"s1": [], "s2": every}
    target = bench.disk[Key(Kind.TARGET, "g", "s2")]
    assert isinstance(target, TargetAssignment)
    assert target.partitions == {}
