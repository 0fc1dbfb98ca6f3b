"""The leader's answers: unowned partitions, second rounds, sizes, and a failing cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from faust_assigner.app.rebalance.answers import record_bytes
from faust_assigner.app.rebalance.placement import Placement, directory_of
from faust_assigner.wire.answer import decode_answer
from tests.support.shop import LOG, assignor_of, group


def test_an_ordinary_round_is_followed_by_no_other() -> None:
    """A value of ``among`` would make each member join again at once."""
    found = group(2)
    found.rebalance()
    for raw in found.synced.values():
        answer = decode_answer(ConsumerProtocolMemberAssignment.decode(raw).user_data)
        assert (answer.among, answer.promised) == (0, {})


def test_without_an_answer_of_the_cluster_each_member_has_an_answer_without_partitions() -> None:
    """The next round asks again; an exception in the leader would stop its worker for good."""
    found = group(2)
    metadata = {
        m: ConsumerProtocolMemberMetadata.decode(raw) for m, raw in found.join_bytes().items()
    }
    cluster = Mock(partitions_for_topic=Mock(side_effect=ZeroDivisionError))
    answers = assignor_of(found).assign(cluster, metadata)
    assert answers.keys() == {"m0", "m1"}
    assert {m: answer.assignment for m, answer in answers.items()} == {"m0": [], "m1": []}


def directory(*owners: int, standbys: Any = None, with_standbys: bool = False) -> Any:
    """Return the directory of members a, b and c; ``owners`` has a member number, or -1."""
    names = ("a", "b", "c")
    nothing: dict[str, Any] = {name: {} for name in names}
    placement = Placement(
        names,
        nothing,
        nothing | (standbys or {}),
        {LOG: np.array(owners, dtype=np.int64)},
        {LOG: 0},
    )
    urls = {name: f"http://{name}" for name in names}
    return directory_of(placement, urls, {}, frozenset({LOG}), (), with_standbys=with_standbys)


@pytest.mark.parametrize("owners", [(1, -1, 0), (-1, -1, -1), (2, 2, -1)])
def test_a_partition_that_nobody_owns_has_no_url(owners: tuple[int, ...]) -> None:
    """The index -1 does not select the last member."""
    found = directory(*owners)
    for partition, owner in enumerate(owners):
        if owner < 0:
            with pytest.raises(KeyError):
                found.url_of(LOG, partition)
        else:
            assert found.url_of(LOG, partition) == f"http://{'abc'[owner]}"


def test_copies_are_named_by_partition_in_the_order_of_their_members() -> None:
    """A partition may have two copies, a single copy or none."""
    standbys = {"a": {LOG: [1]}, "b": {LOG: [0, 2]}, "c": {LOG: [0, 1]}}
    found = directory(0, 1, 2, 2, standbys=standbys, with_standbys=True)
    urls = [tuple(u for u in found.standby_urls(LOG, p) if u) for p in range(4)]
    assert urls == [("http://b", "http://c"), ("http://a", "http://c"), ("http://b",), ()]
    assert directory(0, 1, 2, 2, standbys=standbys).standby_urls(LOG, 0) == ()


@pytest.mark.parametrize("size", [5, 0])
def test_a_members_share_of_the_groups_record_has_all_that_kafka_stores(size: int) -> None:
    """The id counts twice, with both payloads, subscribed topics and assigned partitions."""
    one: Any = SimpleNamespace(member_id="abc", topics=("ab", "cde"), size=size)
    answer = ConsumerProtocolMemberAssignment(4, [("ab", [1, 2, 3]), ("cde", [])], b"1234567")
    subscribed, given = (2 + 2) + (2 + 3), (10 + 2 + 4 * 3) + (10 + 3)
    assert record_bytes(one, answer) == 150 + 2 * 3 + size + 7 + subscribed + given
