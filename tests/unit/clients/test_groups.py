"""The owned partitions of a group's member, read from the bytes of its assignment."""

from __future__ import annotations

import zlib
from types import SimpleNamespace

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from faust_assigner.clients.group_views import GroupMemberView, PartitionView, classic_member
from faust_assigner.wire.answer import AnswerWriter
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.join import COOPERATIVE, EAGER

WRITER = AnswerWriter(Directory(), {"orders": 0, "log": 0}, generation=3, is_uniform=True)
GIVEN = [("orders", [0]), ("log", [0, 1, 2])]


def seen(user_data: bytes, protocol: str = EAGER) -> GroupMemberView:
    """Return a member with the partitions GIVEN."""
    share = ConsumerProtocolMemberAssignment(0, GIVEN, user_data).encode()
    member = SimpleNamespace(
        member_id="m", client_id="c", client_host="/h", member_assignment=share
    )
    return classic_member(member, "consumer", protocol)


def names(owned: frozenset[tuple[str, int]]) -> list[str]:
    """Return short sorted names."""
    return [f"{topic}-{number}" for topic, number in sorted(owned)]


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])
@pytest.mark.parametrize("is_stock", [False, True])
def test_a_faust_worker_owns_its_actives_alone(protocol: str, is_stock: bool) -> None:
    """Standbys are listed separately under either kind of leader."""
    write = WRITER.for_stock if is_stock else WRITER.for_ours
    view = seen(write({"orders": [0], "log": [0]}, {"log": [1, 2]}, "http://a"), protocol)
    assert (names(view.owned), names(view.standbys)) == (["log-0", "orders-0"], ["log-1", "log-2"])


def test_a_worker_owns_of_a_global_table_what_it_was_given() -> None:
    """Every worker reads the whole changelog, as active or as standby."""
    everything = {"log": [0, 1, 2]}
    answer = WRITER.for_ours(
        {"orders": [0], **everything}, everything, "http://a", writes={"log": [1]}
    )
    view = seen(answer)
    assert (names(view.owned), names(view.standbys)) == (["log-1", "orders-0"], ["log-0", "log-2"])


def test_a_stock_leaders_active_partition_is_owned_even_if_it_is_a_standby_too() -> None:
    """A stock leader names no writers, so its list of active partitions decides alone."""
    view = seen(WRITER.for_stock({"orders": [0], "log": [0, 1]}, {"log": [1, 2]}, "http://a"))
    assert (names(view.owned), names(view.standbys)) == (["log-0", "log-1", "orders-0"], ["log-2"])


@pytest.mark.parametrize(
    ("user_data", "protocol"),
    [
        (b"", EAGER),
        (b"junk", EAGER),
        (zlib.compress(b"{}"), EAGER),
        (WRITER.for_ours({}, {"log": [0, 1, 2]}, "http://a"), "range"),
    ],
)
def test_a_member_of_another_kind_owns_all_it_was_assigned(user_data: bytes, protocol: str) -> None:
    """The protocol is not Faust's, or the bytes are no answer of a Faust leader."""
    view = seen(user_data, protocol)
    assert (len(view.owned), view.standbys, view.shares) == (4, frozenset(), None)


def test_the_lag_behind_a_log_that_ends_before_the_commit_is_zero() -> None:
    """A recreated topic may be shorter than its committed offset."""
    view = PartitionView(topic="orders", partition=0, committed=5, end=3, owner=None)
    assert view.lag == 0


def test_a_first_round_and_an_answer_with_actives_alone_are_a_faust_workers() -> None:
    """Generation 0 comes from this package's leader; a worker without standbys owns its actives."""
    writer = AnswerWriter(Directory(), {"orders": 0, "log": 0}, generation=0, is_uniform=True)
    everything = {"log": [0, 1, 2]}
    first = writer.for_ours({"orders": [0], **everything}, everything, "http://a", writes={})
    assert names(seen(first).owned) == ["orders-0"]
    alone = seen(WRITER.for_ours({"orders": [0]}, {}, "http://a"))
    assert (names(alone.owned), names(alone.standbys)) == (
        ["orders-0"],
        ["log-0", "log-1", "log-2"],
    )


def test_a_member_of_a_consumer_group_is_seen_with_every_field() -> None:
    """The size stands for an assignment that does not decode."""
    member = SimpleNamespace(
        member_id="m", group_instance_id="i", client_id="c", client_host="/h",
        member_assignment=b"\xff" * 7,
    )  # fmt: skip
    assert classic_member(member, "consumer", EAGER) == GroupMemberView(
        member_id="m", instance_id="i", client_id="c", host="/h", epoch=None, owned=frozenset(),
        shares=7,
    )  # fmt: skip
    member.member_assignment = None
    view = classic_member(member, "consumer", EAGER)
    assert (view.owned, view.shares, view.is_classic) == (frozenset(), None, True)


@pytest.mark.parametrize(
    "share",
    [
        b"\0\0" + b"\xff" * 8,  # no list of topics
        b"\0\0" + b"\0\0\0\1" + b"\xff\xff" + b"\0\0\0\0" + b"\xff" * 4,  # a topic without a name
        b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff" * 8,  # a topic without partitions
        b"\0\0" + b"\0\0\0\1" + b"\0\1\xff" + b"\0\0\0\0" + b"\xff" * 4,  # no UTF-8
        b"\0",
    ],
)
def test_any_bytes_of_an_assignment_are_seen_at_least_by_their_size(share: bytes) -> None:
    """The bytes come from any client; a group with them must still be described."""
    member = SimpleNamespace(
        member_id="m", group_instance_id=None, client_id="c", client_host="/h",
        member_assignment=share,
    )  # fmt: skip
    view = classic_member(member, "consumer", EAGER)
    assert (view.member_id, len(view.owned), len(view.standbys)) == ("m", 0, 0)
    assert view.shares in (None, len(share))


@pytest.mark.parametrize(("committed", "end", "lag"), [(None, 3, None), (0, 3, 3), (3, 3, 0)])
def test_the_lag_is_the_number_of_records_after_the_commit(
    committed: int | None, end: int, lag: int | None
) -> None:
    """The lag is unknown without a commit; offset 0 is a commit."""
    view = PartitionView(topic="orders", partition=0, committed=committed, end=end, owner=None)
    assert view.lag == lag


def test_an_answer_with_standbys_alone_owns_nothing_and_an_empty_one_says_nothing() -> None:
    """A worker may have only copies; an answer without partitions is of a different kind."""
    copies = seen(WRITER.for_ours({}, {"log": [0, 1, 2]}, "http://a"))
    assert (copies.owned, len(copies.standbys)) == (frozenset(), 4)
    empty = seen(WRITER.for_ours({}, {}, "http://a"))
    assert (len(empty.owned), empty.standbys) == (4, frozenset())
