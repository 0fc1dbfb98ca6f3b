"""A round's change of transactional ids: ended ids, new ids, and revoked kept partitions."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from faust.types import TP
from hypothesis import given, settings
from hypothesis import strategies as st

from faust_assigner.app.transactions.ids import diff_ids, id_for, partitions_to_restart, without
from tests.support.examples import examples

A5, B5, A6, B6 = TP("a", 5), TP("b", 5), TP("a", 6), TP("b", 6)


def test_an_id_that_another_topic_still_uses_neither_ends_nor_begins() -> None:
    """Only unused ids end, and only ids that were unused begin."""
    before = {A5: "app-1-5", B5: "app-1-5", A6: "app-1-6"}
    assert diff_ids(before, {A5: "app-1-5", B6: "app-2-6"}) == ({"app-1-6"}, {"app-2-6"})


def test_a_revoked_partition_takes_the_others_of_its_transaction_along() -> None:
    """The ending transaction includes the offsets of these partitions."""
    ids = {A5: "app-1-5", B5: "app-1-5", A6: "app-1-6"}
    assert without(ids, {B5}) == {A6: "app-1-6"}


@pytest.mark.parametrize(
    ("own", "stays", "before", "after", "expected"),
    [
        ({A5, B5, A6}, {A5, B5}, {"a": 1, "b": 1}, {"a": 1, "b": 1}, set()),
        ({A5, B5, A6}, {A5, B5, A6}, {"a": 1, "b": 2}, {"a": 1, "b": 1}, {B5}),
        ({A5, B5}, {A5, B5}, {"a": 1, "b": 1}, {"a": 1, "b": 2}, {A5, B5}),
        ({A5, B5, A6, B6}, {A5, A6, B6}, {"a": 1, "b": 1}, {"a": 1, "b": 1}, {A5}),
        ({A5, B6}, {A5, B6}, {"a": 6, "b": 6}, {"a": 12, "b": 6}, {A5}),
        ({A5, B5}, {A5, B5}, {"a": 1, "b": 2}, {"a": 2, "b": 1}, {A5, B5}),
    ],
    ids=[
        "a whole task goes",
        "two groups merge",
        "a group splits",
        "one topic of a task goes",
        "a group gets wider",
        "two groups swap their ids",
    ],
)
def test_a_kept_partition_is_let_go_exactly_where_its_transaction_ends(
    own: set[TP],
    stays: set[TP],
    before: Mapping[str, int],
    after: Mapping[str, int],
    expected: set[TP],
) -> None:
    """Either its own id changes, or a partition of the same transaction moves or changes."""
    assert partitions_to_restart(own, stays, before, after) == expected


IDS = st.fixed_dictionaries({topic: st.integers(0, 2) for topic in "abc"})
OWN = st.frozensets(st.builds(TP, st.sampled_from("abc"), st.integers(0, 2)))


@settings(max_examples=examples(400, 100), deadline=None)
@given(own=OWN, gone=OWN, before=IDS, after=IDS)
def test_no_transaction_ends_with_a_partition_that_flows_on(
    own: frozenset[TP], gone: frozenset[TP], before: dict[str, int], after: dict[str, int]
) -> None:
    """A kept partition keeps its id, and no revoked partition shares the id."""
    ids = {tp: id_for("app", before[tp.topic], tp.partition) for tp in own}
    revoke = (own & gone) | partitions_to_restart(own, own - gone, before, after)
    flows = own - revoke
    assert without(ids, revoke) == {tp: ids[tp] for tp in flows}
    assert all(id_for("app", after[tp.topic], tp.partition) == ids[tp] for tp in flows)
    assert not {ids[tp] for tp in flows} & {ids[tp] for tp in revoke}


def test_a_transaction_ends_where_a_topic_of_it_has_no_group_any_more() -> None:
    """The other partitions of the task end with it; other tasks of the group stay."""
    own = [TP(topic, number) for topic in ("orders", "pay", "bills") for number in (0, 1)]
    before = {"orders": 1, "pay": 1, "bills": 2}
    stays = set(own) - {TP("pay", 1)}
    assert partitions_to_restart(own, own, before, {"pay": 1, "bills": 2}) == {
        tp for tp in own if tp.topic != "bills"
    }
    assert partitions_to_restart(own, stays, before, before) == {TP("orders", 1)}
    assert partitions_to_restart(own, own, before, before) == frozenset()
    assert partitions_to_restart(own, own, {}, {}) == frozenset()
    assert partitions_to_restart(own, stays, {}, {}) == {TP("orders", 1), TP("bills", 1)}
