"""ConsumerGroupHeartbeat: joining, staying, leaving, and refusals."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import pytest

from faust_assigner.coordinator.absent import answer_absent
from faust_assigner.coordinator.consumer.subscriptions import MAX_PROGRAM_BYTES, Topics, pattern
from faust_assigner.coordinator.errors import Code, CoordinatorBug
from faust_assigner.coordinator.events import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    Event,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
    TimersDue,
)
from faust_assigner.coordinator.records import Pattern
from faust_assigner.coordinator.settings import ConsumerLimits
from tests.support.coordination.consumer_bench import Bench, catalogue


def test_the_first_member_gets_everything_with_its_first_answer() -> None:
    """The first answer has an epoch and all four partitions without a second heartbeat."""
    bench = Bench()
    answer = bench.join("m1")
    assert (answer.error, answer.member_id, answer.member_epoch) == (Code.NONE, "m1", 2)
    assert bench.given(answer) == {"a": (0, 1, 2, 3)}
    assert answer.heartbeat_interval_ms == 5_000
    assert bench.group.state_name == "Stable"


def test_a_partition_is_granted_only_after_its_owner_gave_it_up() -> None:
    """The newcomer waits until the old owner's own list shows the revocation."""
    bench = Bench()
    bench.join("m1")
    newcomer = bench.join("m2")
    assert (newcomer.member_epoch, bench.given(newcomer)) == (3, {})
    asked = bench.heartbeat("m1", 2, {"a": (0, 1, 2, 3)})
    assert (asked.member_epoch, bench.given(asked)) == (2, {"a": (0, 1)})
    assert bench.given(bench.heartbeat("m2", 3)) is None
    done = bench.heartbeat("m1", 2, {"a": (0, 1)})
    assert (done.member_epoch, bench.given(done)) == (3, None)
    assert bench.given(bench.heartbeat("m2", 3)) == {"a": (2, 3)}
    assert bench.group.state_name == "Stable"


def test_a_member_that_leaves_frees_its_partitions() -> None:
    """The answer to epoch -1 has epoch -1."""
    bench = Bench()
    bench.join("m1")
    bench.join("m2")
    assert bench.heartbeat("m1", -1).member_epoch == -1
    assert bench.given(bench.heartbeat("m2", 3)) == {"a": (0, 1, 2, 3)}


def test_a_silent_member_is_removed_after_its_session() -> None:
    """The session is 45 s by default; the remaining member then gets all partitions."""
    bench = Bench()
    bench.join("m1")
    bench.wait(20_000)
    bench.join("m2")
    bench.wait(25_000)
    assert bench.given(bench.heartbeat("m2", 3)) == {"a": (0, 1, 2, 3)}
    assert bench.heartbeat("m1", 2).error is Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (ConsumerGroupHeartbeat(1, "m1", 3), Code.GROUP_ID_NOT_FOUND),
        (JoinGroup(1, "m1", "", ()), Code.UNKNOWN_MEMBER_ID),
        (SyncGroup(1, "m1", 3), Code.UNKNOWN_MEMBER_ID),
        (Heartbeat(1, "m1", 3), Code.UNKNOWN_MEMBER_ID),
        (LeaveGroup(1, ()), Code.NONE),
        (CommitOffsets(1, "m1", 3), Code.ILLEGAL_GENERATION),
        (FetchOffsets(1, "m1", 3), Code.NONE),
        (DeleteGroup(1), Code.GROUP_ID_NOT_FOUND),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, Code) else value.name,
)
def test_a_group_nobody_knows_has_one_answer_for_each_request(event: Event, error: Code) -> None:
    """The answer is Kafka's for each protocol."""
    assert answer_absent(event).error is error


def test_a_pattern_from_a_stranger_is_bounded() -> None:
    """A pattern has at most 1 KiB of RE2, and its match takes linear time."""
    assert Bench().join("m1", subscribed_topic_regex="a" * 1_024).error is Code.NONE
    for bad in ("a" * 1_025, "\u00e4" * 513, "(?=a)", r"(a)\1", "(a", "a{2000}"):
        assert (
            Bench().join("m1", subscribed_topic_regex=bad).error is Code.INVALID_REGULAR_EXPRESSION
        ), bad


def test_a_full_group_lets_a_static_member_come_back() -> None:
    """The return does not add a member."""
    bench = Bench(ConsumerLimits(max_size=1))
    bench.join("m1", instance_id="i1")
    bench.heartbeat("m1", -2, instance_id="i1")
    assert bench.join("m2", instance_id="i1").error is Code.NONE


def test_a_full_group_refuses_a_new_static_member() -> None:
    """An instance id without a member in the group adds a member."""
    bench = Bench(ConsumerLimits(max_size=1))
    bench.join("m1", instance_id="i1")
    bench.heartbeat("m1", -2, instance_id="i1")
    assert bench.join("m2", instance_id="i2").error is Code.GROUP_MAX_SIZE_REACHED


def test_an_event_before_the_outcome_of_a_save_is_our_own_bug() -> None:
    """The broker writes the save immediately."""
    bench = Bench()
    bench.group.step(ConsumerGroupHeartbeat(1, "m1", 0, None, None, 1, ("a",), owned={}), 0)
    with pytest.raises(CoordinatorBug, match="before the outcome"):
        bench.group.step(TimersDue(), 0)


def test_what_an_expression_matched_is_forgotten_with_it() -> None:
    """A member may send a new expression in each heartbeat: only current expressions are kept."""
    bench = Bench()
    bench.join("m1", subscribed_topic_regex="a0.*")
    for number in range(1, 50):
        bench.heartbeat("m1", number, subscribed_topic_regex=f"a{number}.*")
    assert len(bench.group.topics._matches) <= 2


def test_the_rights_of_an_expression_are_forgotten_with_it() -> None:
    """A result without a hidden topic or with one leaves no data after its last member."""
    found = Topics(replace(catalogue(a=1, b=1), hidden_from=lambda *_: frozenset("b")))
    empty = {name: copy(value) for name, value in vars(found).items()}
    wanted = [Pattern(".*", "User:x"), Pattern("a", "User:x"), Pattern(".*", "User:y")]
    assert found.existing_topics(set(), wanted) == {"a"}
    assert found.existing_topics(set(), ()) == frozenset()
    assert vars(found) == empty


def test_programs_of_expressions_are_bounded_in_bytes() -> None:
    """The limit holds for any number of large expressions."""
    assert pattern.cache_info().maxsize * MAX_PROGRAM_BYTES <= 64 << 20  # type: ignore[operator]


def test_a_member_that_left_leaves_no_timer_behind() -> None:
    """The next deadline is the session of the remaining member, twenty seconds later."""
    bench = Bench()
    bench.join("m1")
    bench.wait(20_000)
    bench.join("m2")
    bench.heartbeat("m1", -1)
    assert bench.group.next_deadline_ms == bench.now + bench.limits.session_timeout_ms


def test_who_is_asked_for_more_partitions_has_the_whole_timeout_again() -> None:
    """A member with an unchanged list of revocations has only the rest of its timeout."""
    bench = Bench(ConsumerLimits(assignment_interval_ms=0, session_timeout_ms=10**9), a=4, b=4)
    bench.join("m1", "a", "b")
    bench.join("m2", "a", "b")
    epoch = bench.heartbeat("m1", 2).member_epoch
    bench.wait(40_000)
    bench.heartbeat("m1", epoch)
    bench.wait(10_000)
    bench.heartbeat("m1", epoch, subscribed_topic_names=("b",), rebalance_timeout_ms=60_000)
    bench.wait(50_000)
    assert bench.heartbeat("m1", epoch).error is Code.NONE, "50 of 60 s since more was asked for"
    bench.wait(10_000)
    assert bench.heartbeat("m1", epoch).error is Code.UNKNOWN_MEMBER_ID


def test_who_gives_up_nothing_is_removed_at_its_timeout_however_often_it_speaks() -> None:
    """Heartbeats renew the session but not the time for the revocation."""
    bench = Bench()
    bench.join("m1")
    bench.join("m2")
    epoch = bench.heartbeat("m1", 2).member_epoch
    for _ in range(5):
        bench.wait(10_000)
        assert bench.heartbeat("m1", epoch).error is Code.NONE
    bench.wait(10_000)
    assert bench.heartbeat("m1", epoch).error is Code.UNKNOWN_MEMBER_ID


def test_a_static_member_that_goes_for_a_while_owes_no_partition_meanwhile() -> None:
    """The member had partitions to revoke; while it is away only its session counts."""
    bench = Bench(ConsumerLimits(assignment_interval_ms=0, session_timeout_ms=10**9))
    bench.join("m1", instance_id="i")
    bench.join("m2")
    bench.heartbeat("m1", 2)
    assert bench.heartbeat("m1", -2, instance_id="i").error is Code.NONE
    bench.wait(120_000)
    assert bench.join("m3", instance_id="i").error is Code.NONE
    assert bench.heartbeat("m1", 2, instance_id="i").error is Code.FENCED_INSTANCE_ID


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        (None, -1, Code.NONE),
        ("", -1, Code.UNKNOWN_MEMBER_ID),
        ("m9", -1, Code.UNKNOWN_MEMBER_ID),
        ("m1", -1, Code.STALE_MEMBER_EPOCH),
        (None, 0, Code.UNKNOWN_MEMBER_ID),
        ("m1", 2, Code.NONE),
        ("m1", 3, Code.STALE_MEMBER_EPOCH),
    ],
)
def test_a_fetch_of_offsets_that_names_a_member_or_an_epoch_needs_both(
    member_id: str | None, epoch: int, error: Code
) -> None:
    """Only a fetch without a member and without an epoch is not checked."""
    bench = Bench()
    assert bench.join("m1").member_epoch == 2
    assert bench.ask(FetchOffsets(0, member_id, epoch)).error is error
