"""What a consumer holds: snapshots, epochs, releases, and the end of a session; times are arguments."""

from __future__ import annotations

from faust_assigner.service.client import Grant, Release, TopicPartition
from faust_assigner.service.client.holdings import Holdings
from faust_assigner.service.digest import held

P = [TopicPartition("orders", number) for number in range(4)]


def holding(*grants: Grant, until: float = 10.0) -> Holdings:
    """A session that lives until then, and owns these."""
    holdings = Holdings()
    holdings.begin(until)
    holdings.update(grants, (), snapshot=True)
    return holdings


def test_a_snapshot_takes_away_what_is_not_in_it() -> None:
    """What was unassigned while nobody was connected is gone."""
    change = holding(Grant(P[0], 1), Grant(P[1], 1)).update([Grant(P[1], 1)], (), snapshot=True)
    assert change is not None
    assert (change.added, change.removed) == ((), (P[0],))


def test_a_snapshot_in_parts_is_one_change() -> None:
    """Nothing is taken away because it is in a later part."""
    holdings = holding(Grant(P[0], 1), Grant(P[1], 1))
    assert holdings.update([Grant(P[1], 1)], (), snapshot=True, more=True) is None
    assert set(holdings.owned) == {P[0], P[1]}
    change = holdings.update([Grant(P[0], 1), Grant(P[2], 5)], ())
    assert change is not None
    assert (change.added, change.removed) == ((Grant(P[2], 5),), ())


def test_a_cut_stream_leaves_no_half_of_a_snapshot() -> None:
    """The next stream's assignment does not inherit parts of the one before."""
    holdings = holding(Grant(P[0], 1))
    holdings.update([Grant(P[3], 1)], (), snapshot=True, more=True)
    holdings.begin(20.0)
    holdings.update([Grant(P[0], 1)], (), snapshot=True)
    assert set(holdings.owned) == {P[0]}


def test_another_epoch_is_another_ownership() -> None:
    """Somebody else owned it in between: what was known of it is stale."""
    change = holding(Grant(P[0], 1)).update([Grant(P[0], 7, 400)], (), snapshot=True)
    assert change is not None
    assert (change.added, change.removed) == ((Grant(P[0], 7, 400),), (P[0],))


def test_what_is_being_released_is_not_torn_away() -> None:
    """The service gives a partition on before it asks for its release; the release is what ends the work."""
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
    """An answer that comes late belongs to its own handoff."""
    holdings = holding(Grant(P[0], 1))
    holdings.release(Release(P[0], "b", 9))
    holdings.released(Release(P[0], "b", 8))
    assert holdings.may_work(P[0], now=5.0)


def test_nothing_may_be_worked_on_when_the_session_is_over() -> None:
    """Also before anybody has noticed: a stopped process asks, and the clock answers."""
    holdings = holding(Grant(P[0], 1), until=10.0)
    assert holdings.may_work(P[0], now=9.99)
    assert not holdings.may_work(P[0], now=10.0)
    lost = holdings.expire(10.0)
    assert lost is not None
    assert lost.partitions == (P[0],)
    assert holdings.expire(11.0) is None


def test_a_partition_in_release_that_a_snapshot_left_out_is_lost_with_the_session() -> None:
    """The consumer still flushes it: it must hear that it may write nothing more."""
    holdings = holding(Grant(P[0], 1), Grant(P[1], 1), until=10.0)
    holdings.release(Release(P[0], "b", 9, strict=True))
    holdings.update([Grant(P[1], 1)], (), snapshot=True)
    assert holdings.may_work(P[0], now=9.0)
    lost = holdings.expire(10.0)
    assert lost is not None
    assert lost.partitions == (P[0], P[1])


def test_an_answer_that_comes_late_does_not_shorten_the_session() -> None:
    """Heartbeats may overtake one another."""
    holdings = holding(Grant(P[0], 1), until=10.0)
    holdings.confirm(14.0)
    holdings.confirm(12.0)
    assert holdings.may_work(P[0], now=13.0)


def test_a_releasing_partition_of_another_owner_is_still_at_work() -> None:
    """A process that leaves cut its release off, and was not told that the partition is lost."""
    holdings = holding(Grant(P[0], 1), Grant(P[1], 1))
    release = Release(P[0], "b", 9)
    holdings.release(release)
    holdings.update((), [P[0]])
    assert holdings.at_work() == (P[0], P[1])
    holdings.released(release)
    assert holdings.at_work() == (P[1],)


def test_a_release_that_is_called_off_leaves_the_partition_at_work() -> None:
    """Its new owner died: it is given again under the same epoch, and the release in hand ends nothing."""
    holdings = holding(Grant(P[0], 1), Grant(P[1], 1))
    release = Release(P[0], "b", 9, strict=True)
    holdings.release(release)
    change = holdings.update([Grant(P[0], 1)], ())
    assert change is not None
    assert (change.added, change.removed) == ((Grant(P[0], 1),), ())
    holdings.released(release)
    assert holdings.may_work(P[0], now=5.0)


def test_a_release_goes_on_while_others_are_given() -> None:
    """An assignment that does not name it says nothing of it."""
    holdings = holding(Grant(P[0], 1))
    holdings.release(Release(P[0], "b", 9, strict=True))
    change = holdings.update([Grant(P[1], 2)], ())
    assert change is not None
    assert change.added == (Grant(P[1], 2),)


def test_a_new_registration_waits_for_no_part_of_an_old_snapshot() -> None:
    """What it is told first counts at once, a change of what it holds too."""
    holdings = holding(Grant(P[0], 1))
    holdings.update([Grant(P[3], 1)], (), snapshot=True, more=True)
    holdings.begin(20.0)
    change = holdings.update([Grant(P[1], 2)], ())
    assert change is not None
    assert (set(change.owned), change.removed) == ({P[0], P[1]}, ())


def test_what_is_held_is_told_without_what_is_being_released() -> None:
    """It changes with each grant, each release that is asked for, and with the session's end."""
    holdings = holding(Grant(P[0], 1), Grant(P[1], 2))
    assert holdings.held() == held([(*P[0], 1), (*P[1], 2)])
    holdings.release(Release(P[0], "b", 9))
    assert holdings.held() == held([(*P[1], 2)])
    holdings.update([Grant(P[2], 5)], ())
    assert holdings.held() == held([(*P[1], 2), (*P[2], 5)])
    holdings.released(Release(P[0], "b", 9))
    assert holdings.held() == held([(*P[1], 2), (*P[2], 5)])
    holdings.expire(11.0)
    assert holdings.held() == held([])


def test_what_is_held_is_not_told_while_a_snapshot_is_half_told() -> None:
    """The rest of it is on its way: the service would send it all again."""
    holdings = holding(Grant(P[0], 1))
    holdings.update([Grant(P[1], 1)], (), snapshot=True, more=True)
    assert holdings.held() is None
    holdings.update([Grant(P[2], 1)], ())
    assert holdings.held() == held([(*P[1], 1), (*P[2], 1)])


def test_what_was_owned_last_is_remembered_until_something_is_owned_again() -> None:
    """An outage ends the session; the next registration says what came before it."""
    holdings = holding(Grant(P[0], 1), Grant(P[1], 2))
    assert holdings.former() == (P[0], P[1])
    holdings.expire(11.0)
    assert holdings.former() == (P[0], P[1])
    holdings.begin(30.0)
    holdings.update([], (), snapshot=True)
    assert holdings.former() == (P[0], P[1]), "it is given nothing yet"
    holdings.update([Grant(P[2], 5)], ())
    assert holdings.former() == (P[2],)
