"""Whole steps of consumer groups: a classic member's next join, timers after a start, failed saves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.catalogue import Catalogue, Topic
from faust_assigner.coordinator.classic import ClassicGroup, GroupLimits
from faust_assigner.coordinator.consumer import ConsumerGroup
from faust_assigner.coordinator.consumer.heartbeat import AWAY
from faust_assigner.coordinator.consumer.refusals import refuse_heartbeat
from faust_assigner.coordinator.consumer.subscriptions import Topics
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CatalogueChanged,
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    Protocol,
    Saved,
    SyncGroup,
)
from faust_assigner.coordinator.phases import JoinPhase
from faust_assigner.coordinator.records import (
    ClassicSide,
    CurrentAssignment,
    GroupEpoch,
    GroupRecord,
    Key,
    Kind,
    MemberMetadata,
    MemberState,
    Pattern,
    Record,
    TargetAssignment,
    TargetEpoch,
    Value,
)
from faust_assigner.coordinator.settings import ConsumerLimits
from tests.support.coordination.consumer_bench import Bench, catalogue, topic_id

A = topic_id("a")
NOW = 1_000
SUBSCRIPTION = bytes.fromhex("0000 00000001 0001 61 ffffffff")
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED


def member(*, is_classic: bool, timeout_ms: int) -> MemberMetadata:
    """Return a member that reads topic "a"; a classic one has a session of 7 s."""
    side = ClassicSide(7_000, (Protocol("range", SUBSCRIPTION),)) if is_classic else None
    return MemberMetadata(
        rebalance_timeout_ms=timeout_ms, topic_names=frozenset({"a"}), classic=side
    )


def consumer_group(limits: ConsumerLimits) -> ConsumerGroup:
    """Return a consumer group before its first member."""
    return ConsumerGroup("g", limits, catalogue(a=4), NOW, restore_classic=ClassicGroup.restore)


def restored(
    members: Mapping[str, tuple[MemberMetadata, CurrentAssignment, tuple[int, ...]]],
) -> ConsumerGroup:
    """Return the group of these members at epoch 5, each with its target's partitions of "a"."""

    def record(kind: Kind, value: Value, member_id: str = "") -> Record:
        return Record(Key(kind, "g", member_id), value)

    records = [
        record(Kind.EPOCH, GroupEpoch(5, catalogue(a=4).fingerprint({"a"}))),
        record(Kind.TARGET_EPOCH, TargetEpoch(5)),
    ]
    for name, (metadata, current, target) in members.items():
        records += [
            record(Kind.MEMBER, metadata, name),
            record(Kind.TARGET, TargetAssignment({A: target} if target else {}), name),
            record(Kind.CURRENT, current, name),
        ]
    limits = ConsumerLimits(session_timeout_ms=45_000)
    return consumer_group(limits).restore(records)


@pytest.mark.parametrize(
    ("epoch", "state", "assigned", "target", "error"),
    [
        (5, STABLE, {0: 5}, (0,), Code.NONE),
        (4, STABLE, {0: 4}, (0,), Code.REBALANCE_IN_PROGRESS),
        (5, UNREVOKED, {0: 5}, (0,), Code.REBALANCE_IN_PROGRESS),
        (5, UNRELEASED, {0: 5}, (0, 3), Code.NONE),
        (5, UNRELEASED, {0: 5}, (0, 2, 3), Code.NONE),
        (5, UNRELEASED, {0: 5}, (0, 2), Code.REBALANCE_IN_PROGRESS),
    ],
)
def test_a_classic_member_joins_again_as_soon_as_its_partitions_can_change(
    epoch: int, state: MemberState, assigned: dict[int, int], target: tuple[int, ...], error: Code
) -> None:
    """Partition 3 is held by the second member, partition 2 is free; the join has a deadline."""
    revoking = {A: {1: 4}} if state is UNREVOKED else {}
    group = restored(
        {
            "m": (
                member(is_classic=True, timeout_ms=20_000),
                CurrentAssignment(epoch, epoch - 1, state, {A: assigned}, revoking),
                target,
            ),
            "n": (
                member(is_classic=False, timeout_ms=30_000),
                CurrentAssignment(5, 5, STABLE, {A: {3: 5}}, {}),
                (),
            ),
        }
    )
    (answer,) = group.step(Heartbeat(9, "m", epoch), NOW + 100)
    assert answer == fx.HeartbeatReply(9, error)
    deadlines = group.timers._deadlines
    assert deadlines["1 session", "m"] == NOW + 7_100
    joins = {key: at for key, at in deadlines.items() if key[0] == "3 join"}
    assert joins == ({} if error is Code.NONE else {("3 join", "m"): NOW + 20_100})
    group.step(Heartbeat(10, "m", epoch), NOW + 500)
    assert {key: at for key, at in deadlines.items() if key[0] == "3 join"} == joins


def test_a_start_sets_the_timers_of_each_kind_of_member() -> None:
    """Only a present member of the new protocol has a deadline for its revocation."""
    revoking = {A: {0: 4}}
    states: dict[str, tuple[bool, int, MemberState, Mapping[bytes, Mapping[int, int]]]] = {
        "classic": (True, 4, UNREVOKED, {A: {1: 4}}),
        "stable": (False, 5, STABLE, {}),
        "revokes": (False, 4, UNREVOKED, revoking),
        "away": (False, AWAY, UNREVOKED, {A: {2: 4}}),
    }
    group = restored(
        {
            name: (
                member(is_classic=is_classic, timeout_ms=30_000 + n),
                CurrentAssignment(epoch, 3, state, {}, held),
                (),
            )
            for n, (name, (is_classic, epoch, state, held)) in enumerate(states.items())
        }
    )
    assert group.timers._deadlines == {
        ("1 session", "classic"): NOW + 7_000,
        ("1 session", "stable"): NOW + 45_000,
        ("1 session", "revokes"): NOW + 45_000,
        ("2 rebalance", "revokes"): NOW + 30_002,
        ("1 session", "away"): NOW + 45_000,
        ("7 retry", ""): NOW,
    }


def test_a_failed_save_keeps_the_time_of_the_last_computed_target() -> None:
    """The member that comes 100 ms later waits for the interval since the first target."""
    bench = Bench(ConsumerLimits(assignment_interval_ms=3_000))
    bench.join("m1")
    start = bench.now
    bench.now = start + 400
    bench.disk_fails = True
    assert bench.join("m2").error is Code.NOT_COORDINATOR
    bench.disk_fails = False
    bench.now = start + 500
    before = len(bench.effects)
    assert bench.join("m3").error is Code.NONE
    said = [one.what for one in bench.effects[before:] if isinstance(one, fx.Happened)]
    assert "target_computed" not in said
    assert bench.group.timers._deadlines["6 target", ""] == start + 3_000  # type: ignore[attr-defined]


def test_a_classic_member_of_an_empty_group_gets_a_new_machine_with_the_wall_clocks_time() -> None:
    """The machine is replaced before any other effect; the record has the time since 1970."""
    group = consumer_group(ConsumerLimits())
    event = JoinGroup(3, "", "new", (Protocol("range", SUBSCRIPTION),))
    (save,) = group.step(event, NOW + 7, 5_000_000)
    assert isinstance(save, fx.SaveRecords)
    record = GroupRecord("g", 1, None, None, None, 5_000_000, ())
    assert save.records == (Record(Key(Kind.CLASSIC, "g"), record),)
    first, *others = group.step(Saved(save.save_id), NOW + 8, 5_000_001)
    assert isinstance(first, fx.ReplaceMachine)
    assert others[-1] == fx.JoinReply(3, Code.MEMBER_ID_REQUIRED, "new")
    successor: Any = first.group
    assert (successor.now_ms, successor.wall_ms) == (NOW + 8, 5_000_001)
    assert successor.state_since_ms == 5_000_000


@pytest.mark.parametrize(
    ("assignor", "known"),
    [("uniform", ""), (None, ""), ("range", "uniform"), ("copartition", "uniform")],
)
def test_an_assignor_that_the_settings_do_not_name_is_refused(
    assignor: str | None, known: str
) -> None:
    """All three are in this process, but the broker offers only the first; "absent" is in no process."""
    limits = ConsumerLimits(assignors=("absent", "uniform"))
    event = ConsumerGroupHeartbeat(1, "m", 5, server_assignor=assignor)
    message = f"unknown assignor {assignor!r}; the server has: {known}"
    refusal = (Code.UNSUPPORTED_ASSIGNOR, message) if known else None
    assert refuse_heartbeat(event, limits, "g") == refusal


def test_the_broker_gets_the_classic_machine_before_the_effects_of_the_downgrade() -> None:
    """The last member of the new protocol leaves: its answer belongs to the new machine."""
    stood = CurrentAssignment(5, 5, STABLE, {A: {0: 5}}, {})
    group = restored(
        {
            "m": (member(is_classic=True, timeout_ms=20_000), stood, (0,)),
            "n": (
                member(is_classic=False, timeout_ms=30_000),
                replace(stood, assigned={A: {1: 5}}),
                (1,),
            ),
        }
    )
    (save,) = group.step(ConsumerGroupHeartbeat(4, "n", -1), NOW + 9, 7_000_000)
    assert isinstance(save, fx.SaveRecords)
    record = save.records[-1].value
    assert isinstance(record, GroupRecord)
    assert (record.generation, record.leader, record.settled) == (5, "m", False)
    assert (record.protocol_name, record.state_since_ms) == ("range", 7_000_000)
    assert [one.value for one in save.records[:-1]] == [None] * (len(save.records) - 1)
    first, *others = group.step(Saved(save.save_id), NOW + 9)
    assert isinstance(first, fx.ReplaceMachine)
    assert [type(one) for one in others if not isinstance(one, fx.Happened)] == [
        fx.ConsumerHeartbeatReply
    ]
    said = [one.what for one in others if isinstance(one, fx.Happened)]
    assert said[:2] == ["member_left", "downgraded"]


def test_two_clients_that_swap_their_rights_change_the_fingerprint() -> None:
    """All topics are still read by someone, but each client reads another topic."""
    topics = Catalogue.of([Topic("a", b"a" * 16, 1), Topic("b", b"b" * 16, 1)])

    def seen(**hidden: str) -> int:
        value = dataclasses.replace(
            topics, hidden_from=lambda principal, host: frozenset(hidden[principal])
        )
        patterns = [Pattern(".*", principal, "/h") for principal in ("x", "y")]
        return Topics(value).fingerprint(set(), patterns)

    first, swapped = seen(x="a", y="b"), seen(x="b", y="a")
    assert first != swapped
    assert first == seen(x="a", y="b")
    assert seen(x="", y="") == topics.fingerprint({"a", "b"}) != seen(x="ab", y="")


def test_a_join_phase_knows_only_its_own_wait() -> None:
    """A new group's delay ends at each begin; its extension is at most the rebalance timeout."""
    phase = JoinPhase()
    phase.begin_new_group(1_000, 70, 30)
    assert (phase.deadline_ms, phase.initial_wait_ms, phase.newcomer_since_delay) == (
        1_030,
        40,
        False,
    )
    phase.newcomer_since_delay = True
    assert phase.extend(1_031, 30)
    assert (phase.deadline_ms, phase.initial_wait_ms, phase.newcomer_since_delay) == (
        1_061,
        10,
        False,
    )
    phase.newcomer_since_delay = True
    assert phase.extend(1_062, 30)
    assert (phase.deadline_ms, phase.initial_wait_ms) == (1_072, 0)
    phase.newcomer_since_delay = True
    assert not phase.extend(1_073, 30)
    assert phase.initial_wait_ms is None
    phase.begin_new_group(2_000, 20, 30)
    assert (phase.deadline_ms, phase.initial_wait_ms, phase.newcomer_since_delay) == (
        2_030,
        0,
        False,
    )
    phase.begin(3_000, 90)
    assert (phase.deadline_ms, phase.initial_wait_ms) == (3_090, None)


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({}, Code.REBALANCE_IN_PROGRESS),
        ({"protocol_name": "range", "protocol_type": "consumer"}, Code.REBALANCE_IN_PROGRESS),
        ({"protocol_name": "other"}, Code.REBALANCE_IN_PROGRESS),
        ({"protocol_type": "connect"}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"generation": 1}, Code.ILLEGAL_GENERATION),
        ({"member_id": "n"}, Code.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_sync_before_the_first_round_is_compared_with_no_protocol(
    named: dict[str, Any], error: Code
) -> None:
    """The group has a protocol type since its first join, and a protocol only since its first round."""
    group = ClassicGroup("g", GroupLimits(), NOW)
    event = JoinGroup(3, "", "m", (Protocol("range", SUBSCRIPTION),), needs_known_id=False)
    group.step(event, NOW)
    fields: dict[str, Any] = {"member_id": "m", "generation": 0, **named}
    (answer,) = group.step(SyncGroup(4, **fields), NOW)
    assert answer == fx.SyncReply(4, error)


@pytest.mark.parametrize(("timeout_ms", "kept_ms"), [(-1, 20_000), (0, 0), (9_000, 9_000)])
def test_a_member_that_changes_its_protocol_must_revoke_in_its_rebalance_timeout(
    timeout_ms: int, kept_ms: int
) -> None:
    """Its revocation is the same as before, but only the new protocol has a deadline for it."""
    stood = CurrentAssignment(4, 3, UNREVOKED, {A: {0: 4}}, {A: {1: 4}})
    group = restored({"m": (member(is_classic=True, timeout_ms=20_000), stood, (0,))})
    event = ConsumerGroupHeartbeat(7, "m", 4, rebalance_timeout_ms=timeout_ms, client_id="c")
    (save,) = group.step(event, NOW + 9)
    assert isinstance(save, fx.SaveRecords)
    (answer,) = group.step(Saved(save.save_id), NOW + 9)
    assert answer == fx.ConsumerHeartbeatReply(7, Code.NONE, None, "m", 4, 5_000, None)
    assert group.book.members["m"] == MemberMetadata(
        client_id="c", rebalance_timeout_ms=kept_ms, topic_names=frozenset({"a"})
    )
    assert group.book.at("m") == stood
    assert group.timers._deadlines == {
        ("1 session", "m"): NOW + 45_009,
        ("2 rebalance", "m"): NOW + 9 + kept_ms,
        ("7 retry", ""): NOW,
    }


def test_the_outcome_of_another_save_is_ignored() -> None:
    """The answer waits for the outcome of the group's own last save."""
    group = consumer_group(ConsumerLimits())
    event = ConsumerGroupHeartbeat(
        7, "m", 0, rebalance_timeout_ms=9, subscribed_topic_names=("a",), owned={}
    )
    (save,) = group.step(event, NOW)
    assert isinstance(save, fx.SaveRecords)
    for stranger in (save.save_id - 1, save.save_id + 1):
        assert group.step(Saved(stranger), NOW) == ()
    assert fx.ConsumerHeartbeatReply in map(type, group.step(Saved(save.save_id), NOW))
    assert group.step(Saved(save.save_id), NOW) == ()


@pytest.mark.parametrize(("group_id", "is_valid"), [("g", True), ("", False), (" \t", False)])
def test_a_group_id_is_more_than_blanks(group_id: str, is_valid: bool) -> None:
    """As in Kafka, a heartbeat has a message for this."""
    event = ConsumerGroupHeartbeat(1, "m", 5)
    refusal = (Code.INVALID_REQUEST, "the group id is empty")
    assert refuse_heartbeat(event, ConsumerLimits(), group_id) == (None if is_valid else refusal)


def test_an_empty_group_has_no_new_epoch_after_a_change_of_topics() -> None:
    """Its next member raises the epoch anyway."""
    group = restored({})
    assert group.step(CatalogueChanged(catalogue(a=5)), NOW) == ()
    assert (group.book.epoch, group.state_name) == (5, "Empty")
