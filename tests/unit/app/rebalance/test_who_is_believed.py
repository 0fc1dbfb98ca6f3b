"""Members that disagree about ids, generations and claims: the newest claim counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from faust_assigner.app.rebalance import member_claims
from faust_assigner.app.rebalance.leader import _previous_ids
from faust_assigner.app.rebalance.member import Memory, remember
from faust_assigner.app.rebalance.member_claims import MemberClaims, claims_of, read_members
from faust_assigner.wire.answer import Answer
from faust_assigner.wire.bounded import TOPICS as MOST
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.join import STOCK, VERSION, JoinData, encode_join
from faust_assigner.wire.runs import Runs

TOPICS = ("orders",)


def joined(member_id: str, topics: tuple[str, ...] = TOPICS, **said: Any) -> MemberClaims:
    """Return the claims of a member."""
    return MemberClaims(member_id, topics, JoinData(f"http://{member_id}", **said), 4)


def held(*members: MemberClaims, **view: Any) -> dict[str, tuple[list[int], int]]:
    """Return each member's claims on orders and their generation, as planned in generation 10."""
    settled = {
        "generation": 10,
        "is_kafkas": True,
        "last": Directory(),
        "last_generation": -1,
    } | view
    found = claims_of(members, {"orders": 6}, {}, **settled)
    return {
        member.member_id: (list(member.actives.get("orders", ())), member.generation)
        for member in found.members
    }


@pytest.mark.parametrize(("ages", "id_"), [((3, 7), 20), ((7, 3), 10), ((3, 3), 20)])
def test_a_groups_id_is_the_newest_members_word(ages: tuple[int, int], id_: int) -> None:
    """Transactional ids include the group id: a stale id could be shared by two transactions."""
    members = [
        joined(f"m{i}", generation=age, group_ids={"orders": 10 * (i + 1)})
        for i, age in enumerate(ages)
    ]
    assert _previous_ids(members) == {"orders": id_}
    if ages[0] != ages[1]:
        assert _previous_ids(members[::-1]) == {"orders": id_}


def test_of_one_age_our_word_on_ids_goes_before_stocks() -> None:
    """A stock leader numbers its groups anew in each round."""
    stock = joined("a", generation=3, group_ids={"orders": 1}, version=STOCK)
    ours = joined("b", generation=3, group_ids={"orders": 2}, version=VERSION)
    assert _previous_ids([stock, ours]) == _previous_ids([ours, stock]) == {"orders": 2}
    newer = joined("a", generation=4, group_ids={"orders": 1, "bills": 3}, version=STOCK)
    assert _previous_ids([newer, ours]) == {"orders": 1, "bills": 3}, "age goes before kind"


def test_the_answers_ids_go_before_those_a_member_remembers() -> None:
    """An old id could name a different task's transactions; ids of deleted topics stay."""
    before = Memory(Answer({}, {}), 4, group_ids={"orders": 1, "gone": 2})
    after = remember(
        Answer({"orders": Runs.of([0])}, {}, group_ids={"orders": 7}),
        {"orders": [0]},
        kafkas=5,
        before=before,
    )
    assert after.group_ids == {"orders": 7, "gone": 2}
    again = remember(Answer({}, {}, group_ids={"orders": 8}), {}, kafkas=6, before=after)
    assert again.group_ids == {"orders": 8, "gone": 2}


def test_where_kafkas_generation_is_unknown_claims_are_dated_one_on() -> None:
    """Else an owner's claims would be as old as a new member's."""
    before = Memory(Answer({}, {}), 4)
    assert remember(Answer({}, {}), {}, kafkas=-1, before=before).generation == 5
    assert remember(Answer({}, {}), {}, kafkas=9, before=before).generation == 9
    assert remember(Answer({}, {}, generation=7), {}, kafkas=9, before=before).generation == 7


def directory(instance_id: str, partitions: list[int]) -> Directory:
    """Return a leader's last assignment: ``instance_id`` owned ``partitions`` of six."""
    owner = np.full(6, -1, dtype=np.int64)
    owner[partitions] = 0
    return Directory(("http://old",), {"orders": owner}, (instance_id,))


def test_a_members_own_memory_goes_before_an_old_directory() -> None:
    """The directory serves members that return without memory."""
    last = {"last": directory("static-1", [4, 5]), "last_generation": 5}
    knows = joined("m0", generation=8, actives={"orders": Runs.of([0])}, instance_id="static-1")
    assert held(knows, **last) == {"m0": ([0], 8)}
    forgot = joined("m0", instance_id="static-1")
    assert held(forgot, **last) == {"m0": ([4, 5], 5)}


def test_copies_are_those_it_was_given_and_those_whose_files_it_has() -> None:
    """Between two rounds a member has both; topics may share a claim and differ in counts."""
    both = Runs.of([1, 4, 5])
    one = joined(
        "m0",
        ("log", "other"),
        generation=9,
        standbys={"log": both, "other": both},
        on_disk={"log": Runs.of([0])},
    )
    found = claims_of(
        [one],
        {"log": 6, "other": 5},
        {},
        generation=10,
        is_kafkas=True,
        last=Directory(),
        last_generation=-1,
    )
    assert {t: list(numbers) for t, numbers in found.members[0].standbys.items()} == {
        "log": [0, 1, 4, 5],
        "other": [1, 4],
    }
    assert found.beyond == {"other": 1}


def test_who_claims_the_most_is_the_one_to_go_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round accepts a bounded number of claims."""
    monkeypatch.setattr(member_claims, "LEAST_BUDGET", 0)
    greedy = joined(
        "a",
        generation=9,
        **{
            claims: {"orders": Runs.of([*range(6)])}
            for claims in (
                "actives",
                "standbys",
                "on_disk",
                "former_actives",
                "awaited",
                "overdue",
                "promised",
            )
        },
    )
    modest = [joined(name, generation=9, actives={"orders": Runs.of([*range(6)])}) for name in "bc"]
    assert list(held(greedy, *modest).items()) == [
        ("a", ([], -1)),
        ("b", ([*range(6)], 9)),
        ("c", ([*range(6)], 9)),
    ]


def test_of_a_global_table_only_what_ours_writes_is_a_claim() -> None:
    """Every member has the whole table, so standby, awaited and overdue claims are ignored."""
    claims = {
        name: {"global": Runs.of([1])}
        for name in ("actives", "standbys", "on_disk", "awaited", "overdue")
    }
    said = [
        joined(name, ("global",), generation=9, version=version, **claims)
        for name, version in (("ours", VERSION), ("stock", STOCK))
    ]
    found = claims_of(
        said,
        {"global": 6},
        {"global": False},
        generation=10,
        is_kafkas=True,
        last=Directory(),
        last_generation=-1,
    )
    assert [list(one.actives) for one in found.members] == [["global"], []]
    assert not any(one.standbys or one.awaited or one.overdue for one in found.members)


def test_what_is_promised_to_a_member_counts_as_its_own() -> None:
    """This covers a second round with a different plan."""
    promised = joined(
        "m0",
        generation=9,
        actives={"orders": Runs.of([0])},
        promised={"orders": Runs.of([3]), "gone": Runs.of([0])},
        among=2,
    )
    assert held(promised) == {"m0": ([0, 3], 9)}


def test_a_member_whose_word_is_refused_can_still_be_reached() -> None:
    """The metadata is read up to the limit of topics."""
    topics = [f"t{number}" for number in range(MOST + 1)]
    metadata = {
        str(count): SimpleNamespace(
            subscription=topics[:count],
            version=4,
            user_data=encode_join(JoinData("http://w"), topics[:1]),
        )
        for count in (MOST, MOST + 1)
    }
    said = {
        one.member_id: (one.refused, len(one.topics), one.data.url)
        for one in read_members(metadata)
    }
    assert said == {
        str(MOST): (None, MOST, "http://w"),
        str(MOST + 1): (
            f"{MOST + 1} topics, the limit is {MOST}; it counts as stateless",
            MOST,
            "http://w",
        ),
    }


def test_a_claim_from_the_future_is_as_old_as_the_last_generation() -> None:
    """With Kafka's generation no claim reaches the forming round or voids the last round."""
    claimed = {"orders": Runs.of([0])}
    found = held(
        joined("liar", generation=1_000_000, actives=claimed),
        joined("now", generation=10, actives=claimed),
        joined("last", generation=9, actives=claimed),
    )
    assert {member: age for member, (_, age) in found.items()} == {"liar": 9, "now": 9, "last": 9}


@pytest.mark.parametrize(
    ("generation", "actives", "age"),
    [(-1, {}, 4), (8, {}, 8), (-1, {"orders": Runs.of([1])}, -1), (12, {}, 9)],
)
def test_what_a_former_process_owned_dates_only_a_member_without_an_assignment(
    generation: int, actives: dict[str, Runs], age: int
) -> None:
    """A member with an empty assignment has its round's date; no date reaches the forming round."""
    one = joined(
        "a",
        generation=generation,
        actives=actives,
        former_actives={"orders": Runs.of([0])},
        former_generation=4 if generation < 9 else 11,
    )
    (found,) = claims_of(
        [one],
        {"orders": 6},
        {},
        generation=10,
        is_kafkas=True,
        last=Directory(),
        last_generation=-1,
    ).members
    assert found.generation == age
    assert found.former_generation == (4 if generation < 9 else 9)
    assert list(found.former_actives["orders"]) == [0]


def test_claims_on_partitions_that_are_gone_are_counted_over_all_members() -> None:
    """The warning names the topic once, with the number of claims."""
    found = claims_of(
        [
            joined("a", generation=9, actives={"orders": Runs.of([5, 6, 7])}),
            joined("b", generation=9, actives={"orders": Runs.of([0, 9])}),
            joined("c", generation=9, actives={"orders": Runs.of([1]), "gone": Runs.of([0])}),
        ],
        {"orders": 6},
        {},
        generation=10,
        is_kafkas=True,
        last=Directory(),
        last_generation=-1,
    )
    assert found.beyond == {"orders": 3}
    assert [list(member.actives["orders"]) for member in found.members] == [[5], [0], [1]]


def test_members_that_say_equal_bytes_of_other_topics_are_read_apart() -> None:
    """Metadata numbers topics by subscription, so only equal subscriptions share a result."""
    said = {"a": ("alpha", "log"), "b": ("beta", "log"), "c": ("alpha", "log")}
    metadata = {
        member: SimpleNamespace(
            subscription=list(topics),
            version=4,
            user_data=encode_join(
                JoinData(
                    f"http://{member}", group_ids={topics[0]: 3}, changelogs=frozenset({topics[0]})
                ),
                topics,
            ),
        )
        for member, topics in said.items()
    }
    found = {one.member_id: one.data for one in read_members(metadata)}
    assert {m: dict(data.group_ids) for m, data in found.items()} == {
        "a": {"alpha": 3},
        "b": {"beta": 3},
        "c": {"alpha": 3},
    }
    assert {m: set(data.changelogs) for m, data in found.items()} == {
        "a": {"alpha"},
        "b": {"beta"},
        "c": {"alpha"},
    }


def test_equal_bytes_of_two_fields_are_read_apart() -> None:
    """Id 2 of t1 has the same bytes as the changelogs t3 and t4."""
    topics = [f"t{i}" for i in range(6)]
    logs = JoinData("http://a", changelogs=frozenset({"t3", "t4"}))
    ids = JoinData("http://b", group_ids={"t1": 2})
    metadata = {
        member: SimpleNamespace(subscription=topics, version=4, user_data=encode_join(data, topics))
        for member, data in (("a", logs), ("b", ids), ("c", logs))
    }
    found = {
        one.member_id: (one.refused, set(one.data.changelogs), dict(one.data.group_ids))
        for one in read_members(metadata)
    }
    assert found == {
        "a": (None, {"t3", "t4"}, {}),
        "b": (None, set(), {"t1": 2}),
        "c": (None, {"t3", "t4"}, {}),
    }


def test_a_memory_of_the_first_generation_is_one() -> None:
    """The directory has the same generation at most."""
    last = {"last": directory("static-1", [4, 5]), "last_generation": 0}
    knows = joined("m0", generation=0, actives={"orders": Runs.of([0])}, instance_id="static-1")
    assert held(knows, **last) == {"m0": ([0], 0)}
    dynamic = joined("m0")
    assert held(dynamic, **last) == {"m0": ([], -1)}


@pytest.mark.parametrize(
    ("version", "read"), [(3, 3), (-2, -2), (0, 0), (None, 0), ("3", 0), (True, 0), (2.5, 0)]
)
def test_a_protocol_version_is_a_number_or_the_first(version: Any, read: int) -> None:
    """Topics are texts of a legal length, without duplicates and in order."""
    names = ["b", "a", "", "b", 7, None, "x" * 100_000]
    said = SimpleNamespace(version=version, subscription=names, user_data=b"{}")
    (found,) = read_members({"m": said})
    assert (found.protocol_version, found.topics) == (read, ("a", "b"))


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("sent", [b"{}", b"no metadata", None])
def test_the_size_of_metadata_is_the_number_of_bytes_sent(
    sent: bytes | None, refused: bool
) -> None:
    """Refused metadata takes its place in the group's record, too."""
    topics = [f"t{number}" for number in range(MOST + 1 if refused else 1)]
    (found,) = read_members({"m": SimpleNamespace(version=4, subscription=topics, user_data=sent)})
    assert found.size == len(sent or b"")
