"""A consumer's holdings: snapshots, epochs, releases, and the session's end; times are arguments."""

from __future__ import annotations

from faust_assigner.service.client import Grant, Release, TopicPartition
from faust_assigner.service.client.holdings import Holdings
from faust_assigner.service.digest import digest_of

P = [TopicPartition("orders", number) for number in range(4)]


def holding(*grants: Grant, until: float = 10.0) -> Holdings:
    """The holdings of a session until this time, with these grants."""
    holdings = Holdings()
    holdings.begin(until)
    holdings.update(grants, (), snapshot=True)
    return holdings


def test_a_snapshot_takes_away_what_is_not_in_it() -> None:
    """Partitions that were unassigned while the consumer was disconnected are removed."""
    change = holding(Grant(P[0], 1), Grant(P[1], 1)).update([Grant(P[1], 1)], (), snapshot=True)
    assert change is not None
    assert (change.added, change.removed) == ((), (P[0],))


def test_a_snapshot_in_parts_is_one_change() -> None:
    """A partition in a later part is not removed."""
    holdings = holding(Grant(P[0], 1), Grant(P[1], 1))
    assert holdings.update([Grant(P[1], 1)], (), snapshot=True, more=True) is None
    assert set(holdings.owned) == {P[0], P[1]}
    change = holdings.update([Grant(P[0], 1), Grant(P[2], 5)], ())
    assert change is not None
    assert (change.added, change.removed) == ((Grant(P[2], 5),), ())


def test_a_cut_stream_leaves_no_half_of_a_snapshot() -> None:
    """The next stream's assignment contains no parts of the previous stream's."""
    holdings = holding(Grant(P[0], 1))
    holdings.update([Grant(P[3], 1)], (), snapshot=True, more=True)
    holdings.begin(20.0)
    holdings.update([Grant(P[0], 1)], (), snapshot=True)
    assert set(holdings.owned) == {P[0]}


def test_another_epoch_is_another_ownership() -> None:
    """A different consumer owned the partition in between, so its state is stale."""
    change = holding(Grant(P[0], 1)).update([Grant(P[0], 7, 400)], (), snapshot=True)
    assert change is not None
    assert (change.added, change.removed) == ((Grant(P[0], 7, 400),), (P[0],))


def test_what_is_being_released_is_not_torn_away() -> None:
    """The service reassigns a partition before it asks for the release; only the release ends the work."""
    holdings = holding(Grant(P[0], 1))
    release = Release(P[0], "b", 9)
    holdings.release(release)
    change = holdings.update((), [P[0]])
    assert change is not None
    assert change.removed == ()
    assert holdings.may_work(P[0], now=5.0)
    holdings.released(release)
    assert not holdings.may_work(P[0], now=5.0)


def test_a_release_of_an_older_handoff_ends_nothing() -> None:
    """A late answer belongs only to its own hand-off."""
    holdings = holding(Grant(P[0], 1))
    holdings.release(Release(P[0], "b", 9))
    holdings.released(Release(P[0], "b", 8))
    assert holdings.may_work(P[0], now=5.0)


def test_nothing_may_be_worked_on_when_the_session_is_over() -> None:
    """The clock decides, even before the expiry is noticed, as in a stopped process."""
    holdings = holding(Grant(P[0], 1), until=10.0)
    assert holdings.may_work(P[0], now=9.99)
    assert not holdings.may_work(P[0], now=10.0)
    lost = holdings.expire(10.0)
    assert lost is not None
    assert lost.partitions == (P[0],)
    assert holdings.expire(11.0) is None


def test_a_partition_in_release_that_a_snapshot_left_out_is_lost_with_the_session() -> None:
    """The consumer is still flushing, so it must receive the loss."""
    holdings = holding(Grant(P[0], 1), Grant(P[1], 1), until=10.0)
    holdings.release(Release(P[0], "b", 9, strict=True))
    holdings.update([Grant(P[1], 1)], (), snapshot=True)
    assert holdings.may_work(P[0], now=9.0)
    lost = holdings.expire(10.0)
    assert lost is not None
    assert lost.partitions == (P[0], P[1])


def test_an_answer_that_comes_late_does_not_shorten_the_session() -> None:
    """Answers to heartbeats may arrive in a different order."""
    holdings = holding(Grant(P[0], 1), until=10.0)
    holdings.confirm(14.0)
    holdings.confirm(12.0)
    assert holdings.may_work(P[0], now=13.0)


def test_a_releasing_partition_of_another_owner_is_still_at_work() -> None:
    """Earlier, a leaving process cut its release off without a loss of the partition."""
    holdings = holding(Grant(P[0], 1), Grant(P[1], 1))
    release = Release(P[0], "b", 9)
    holdings.release(release)
    holdings.update((), [P[0]])
    assert holdings.at_work() == (P[0], P[1])
    holdings.released(release)
    assert holdings.at_work() == (P[1],)


def test_a_release_that_is_called_off_leaves_the_partition_at_work() -> None:
    """After the new owner's death the old owner gets the partition back under the same epoch."""
    holdings = holding(Grant(P[0], 1), Grant(P[1], 1))
    release = Release(P[0], "b", 9, strict=True)
    holdings.release(release)
    change = holdings.update([Grant(P[0], 1)], ())
    assert change is not None
    assert (change.added, change.removed) == ((Grant(P[0], 1),), ())
    holdings.released(release)
    assert holdings.may_work(P[0], now=5.0)


def test_a_release_goes_on_while_others_are_given() -> None:
    """An assignment without the partition does not affect its release."""
    holdings = holding(Grant(P[0], 1))
    holdings.release(Release(P[0], "b", 9, strict=True))
    change = holdings.update([Grant(P[1], 2)], ())
    assert change is not None
    assert change.added == (Grant(P[1], 2),)


def test_a_new_registration_waits_for_no_part_of_an_old_snapshot() -> None:
    """The first assignment of the new session takes effect at once, even as a change."""
    holdings = holding(Grant(P[0], 1))
    holdings.update([Grant(P[3], 1)], (), snapshot=True, more=True)
    holdings.begin(20.0)
    change = holdings.update([Grant(P[1], 2)], ())
    assert change is not None
    assert (set(change.owned), change.removed) == ({P[0], P[1]}, ())


def test_what_is_held_is_told_without_what_is_being_released() -> None:
    """The digest changes with each grant, each requested release, and the session's end."""
    holdings = holding(Grant(P[0], 1), Grant(P[1], 2))
    assert holdings.held() == digest_of([(*P[0], 1), (*P[1], 2)])
    holdings.release(Release(P[0], "b", 9))
    assert holdings.held() == digest_of([(*P[1], 2)])
    holdings.update([Grant(P[2], 5)], ())
    assert holdings.held() == digest_of([(*P[1], 2), (*P[2], 5)])
    holdings.released(Release(P[0], "b", 9))
    assert holdings.held() == digest_of([(*P[1], 2), (*P[2], 5)])
    holdings.expire(11.0)
    assert holdings.held() == digest_of([])


def test_what_is_held_is_not_told_while_a_snapshot_is_half_told() -> None:
    """The remaining parts are in flight, and the service would repeat the whole assignment."""
    holdings = holding(Grant(P[0], 1))
    holdings.update([Grant(P[1], 1)], (), snapshot=True, more=True)
    assert holdings.held() is None
    holdings.update([Grant(P[2], 1)], ())
    assert holdings.held() == digest_of([(*P[1], 1), (*P[2], 1)])


def test_what_was_owned_last_is_remembered_until_something_is_owned_again() -> None:
    """After an outage, the next registration reports the partitions owned before."""
    holdings = holding(Grant(P[0], 1), Grant(P[1], 2))
    assert holdings.former() == (P[0], P[1])
    holdings.expire(11.0)
    assert holdings.former() == (P[0], P[1])
    holdings.begin(30.0)
    holdings.update([], (), snapshot=True)
    assert holdings.former() == (P[0], P[1]), "it is given nothing yet"
    holdings.update([Grant(P[2], 5)], ())
    assert holdings.former() == (P[2],)


def test_there_is_no_digest_while_a_snapshot_is_incomplete() -> None:
    """The digest from before the snapshot would report partitions that the snapshot may take away."""
    holdings = holding(Grant(P[0], 1), Grant(P[1], 3))
    assert holdings.held() == digest_of([("orders", 0, 1), ("orders", 1, 3)])
    holdings.update([Grant(P[2], 5)], (), snapshot=True, more=True)
    assert holdings.held() is None
    holdings.update([Grant(P[0], 7)], ())
    assert holdings.held() == digest_of([("orders", 2, 5), ("orders", 0, 7)])
