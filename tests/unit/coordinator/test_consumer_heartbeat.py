"""ConsumerGroupHeartbeat: joining, staying, leaving, and what is refused."""

from __future__ import annotations

from faust_assigner.coordinator.errors import Code
from tests.support.consumer_bench import Bench


def test_the_first_member_gets_everything_with_its_first_answer() -> None:
    """Epoch 1, all four partitions, no second heartbeat needed."""
    bench = Bench()
    answer = bench.join("m1")
    assert (answer.error, answer.member_id, answer.member_epoch) == (Code.NONE, "m1", 1)
    assert bench.given(answer) == {"a": (0, 1, 2, 3)}
    assert answer.heartbeat_interval_ms == 5_000
    assert bench.group.state_name == "Stable"


def test_a_partition_is_granted_only_after_its_owner_gave_it_up() -> None:
    """The newcomer waits until the old owner's own list shows the revocation."""
    bench = Bench()
    bench.join("m1")
    newcomer = bench.join("m2")
    assert (newcomer.member_epoch, bench.given(newcomer)) == (2, {})
    asked = bench.heartbeat("m1", 1, {"a": (0, 1, 2, 3)})
    assert (asked.member_epoch, bench.given(asked)) == (1, {"a": (0, 1)})
    assert bench.given(bench.heartbeat("m2", 2)) is None
    done = bench.heartbeat("m1", 1, {"a": (0, 1)})
    assert (done.member_epoch, bench.given(done)) == (2, None)
    assert bench.given(bench.heartbeat("m2", 2)) == {"a": (2, 3)}
    assert bench.group.state_name == "Stable"


def test_a_member_that_leaves_frees_its_partitions() -> None:
    """Epoch -1 is answered with epoch -1."""
    bench = Bench()
    bench.join("m1")
    bench.join("m2")
    assert bench.heartbeat("m1", -1).member_epoch == -1
    assert bench.given(bench.heartbeat("m2", 2)) == {"a": (0, 1, 2, 3)}


def test_a_silent_member_is_removed_after_its_session() -> None:
    """45 s by default; the other one then gets everything."""
    bench = Bench()
    bench.join("m1")
    bench.wait(20_000)
    bench.join("m2")
    bench.wait(25_000)
    assert bench.given(bench.heartbeat("m2", 2)) == {"a": (0, 1, 2, 3)}
    assert bench.heartbeat("m1", 1).error is Code.UNKNOWN_MEMBER_ID
