"""Faust's own plan as a function: groups, claims, and the bound of its endless algorithm."""

from __future__ import annotations

import pytest

from faust_assigner.app import stock
from faust_assigner.app.stock import StockLivelock, stock_plan
from faust_assigner.model import Member

LOG = "counts-log"


def member(name: str, *topics: str, **claims: dict[str, list[int]]) -> Member:
    """Return a member that subscribes to ``topics``, by default to a table's two topics."""
    return Member(name, topics or ("orders", LOG), **claims)  # type: ignore[arg-type]


def test_each_partition_has_one_owner_and_a_spare_replica_elsewhere() -> None:
    """Topics of a group move together; only changelogs have standbys."""
    members = [member("a"), member("b"), member("c")]
    found = stock_plan(members, {"orders": 6, LOG: 6}, replicas=1, changelogs=[LOG])
    owned = {m: set(found.actives(m)["orders"]) for m in "abc"}
    assert sorted(n for numbers in owned.values() for n in numbers) == list(range(6))
    assert [len(numbers) for numbers in owned.values()] == [2, 2, 2]
    for m in "abc":
        assert found.actives(m)[LOG] == found.actives(m)["orders"] == sorted(owned[m])
        assert found.standbys(m).keys() == {LOG}
        assert not owned[m] & set(found.standbys(m)[LOG])
        assert found.standbys(m)[LOG] == sorted(found.standbys(m)[LOG])
    assert sorted(n for m in "abc" for n in found.standbys(m)[LOG]) == list(range(6))


def test_a_topic_belongs_to_its_subscribers_and_one_without_any_to_nobody() -> None:
    """Partition counts and subscribers define the group."""
    members = [member("a", "orders", "clicks"), member("b", "orders")]
    counts = {"orders": 4, "clicks": 4, "lonely": 2}
    found = stock_plan(members, counts, replicas=0, changelogs=[])
    assert found.actives("a")["clicks"] == [0, 1, 2, 3]
    assert found.actives("b").keys() == {"orders"}
    assert len(found.actives("a")["orders"]) == len(found.actives("b")["orders"]) == 2


def test_what_a_member_claims_stays_with_it() -> None:
    """The first claimed topic of the group counts; numbers beyond the topic are ignored."""
    claims = {"a": {LOG: [], "orders": [3, 1]}, "b": {LOG: [0, 2, 9, -1]}}
    members = [member(m, actives=claims[m], standbys={}) for m in "ab"]
    found = stock_plan(members, {"orders": 4, LOG: 4}, replicas=0, changelogs=[LOG])
    assert found.actives("a")["orders"] == [1, 3]
    assert found.actives("b")[LOG] == [0, 2]


def test_spare_replicas_that_are_claimed_stay() -> None:
    """The claimed standbys already have the state."""
    owned, spare = {"a": [0, 1], "b": [2, 3], "c": []}, {"a": [2], "b": [0], "c": [1, 3]}
    members = [member(m, actives={LOG: owned[m]}, standbys={LOG: spare[m]}) for m in "abc"]
    found = stock_plan(members, {"orders": 4, LOG: 4}, replicas=1, changelogs=[LOG])
    for m in "ab":
        assert set(spare[m]) & set(found.standbys(m)[LOG]), m


@pytest.mark.parametrize("most", [1, 0])
def test_an_algorithm_that_goes_round_in_circles_is_ended(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """The number of evictions is bounded; this case needs one. The error names the sizes."""
    monkeypatch.setattr(stock, "MAX_EVICTIONS", most)
    owned = {"a": [1], "b": [2], "c": [0]}
    members = [member(m, actives={LOG: owned[m]}, standbys={}) for m in "abc"]
    if most:
        found = stock_plan(members, {LOG: 3}, replicas=1, changelogs=[LOG])
        assert sorted(n for m in "abc" for n in found.standbys(m)[LOG]) == [0, 1, 2]
        return
    with pytest.raises(StockLivelock, match="3 partitions, 1 standbys: no end after 0"):
        stock_plan(members, {LOG: 3}, replicas=1, changelogs=[LOG])
