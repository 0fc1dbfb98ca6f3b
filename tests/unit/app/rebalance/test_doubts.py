"""False and overdue claims: the leader refuses them, they cause no rounds, and the log names their member.

The tables of a group whose members run different code, as combined by the leader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from faust_assigner.app.host import group_member
from faust_assigner.app.rebalance.doubts import (
    MOST_HELD_UP,
    Record,
    agreed,
    checked,
    count_delayed_rounds,
    refuse_overdue_claims,
)
from faust_assigner.app.rebalance.member_claims import MemberClaims
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.wire.join import STOCK, JoinData
from faust_assigner.wire.runs import Runs
from tests.support.coordination.two_phase_group import ALL, TABLES, TOPICS, Group
from tests.support.shop import TOPICS as SHOP
from tests.support.shop import assignor_of
from tests.support.shop import group as wire_group

EVERYTHING = {topic: range(number) for topic, number in TOPICS.items()}

#: The claims of a liar in the round after generation ``now``.
LIES: dict[str, Callable[[int], dict[str, Any]]] = {
    "far ahead": lambda now: {"generation": 2_000_000_000 + now, "holds": True},
    "the round being formed": lambda now: {"generation": now + 1, "holds": True},
    "the last round": lambda now: {"generation": now, "holds": True},
    "far ahead, idle": lambda now: {"generation": 2_000_000_000 + now, "holds": False},
    "far ahead, promised all": lambda now: {
        "generation": 2_000_000_000 + now,
        "holds": True,
        "promised": EVERYTHING,
        "among": 3,
        "on_disk": EVERYTHING,
        "standbys": {log: range(TOPICS[log]) for log in TABLES.changelogs},
    },
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("records", [pytest.param(0, marks=pytest.mark.slow), 1_000_000])
def test_a_liar_that_joins_again_and_again_causes_no_second_rounds(lie: str, records: int) -> None:
    """In forty joins second rounds end with the liar's share; the others' partitions stay."""
    group = Group(same_leader=True, records=records)
    group.join("a")
    group.join("b")
    group.settle()
    group.join("liar")
    liar, second, kept = group.workers["liar"], [], set(ALL)
    liar.is_eager = False
    for number in range(40):
        liar.said = JoinData(
            "http://liar",
            EVERYTHING,
            cooperative=True,
            changelogs=TABLES.changelogs,
            **LIES[lie](group.generation),
        )
        found = group.play(misses={"liar"})
        group.catch_up()
        second.append(found.follows)
        assert list(found.refused) == ["liar"]
        if number > 5:
            kept &= group.workers["a"].processed | group.workers["b"].processed
    assert sum(second) <= 2, second
    assert not any(second[5:])
    assert kept == ALL - group.given("liar")


def test_under_a_new_leader_each_time_a_claim_from_the_future_blocks_and_takes_nothing() -> None:
    """A leader without a record takes the liar for a new member and refuses no other member."""
    group = Group()
    group.join("a")
    group.join("b")
    group.settle()
    group.join("liar")
    liar = group.workers["liar"]
    liar.is_eager = False
    for _ in range(20):
        liar.said = JoinData("http://liar", EVERYTHING, **LIES["far ahead"](group.generation))
        found = group.play(misses={"liar"})
        assert list(found.refused) == ["liar"]
        assert "it counts as a new member" in found.refused["liar"]
        assert found.held_up == {}
        assert {len(owners) for owners in group.owners.values()} == {1}


def word(member_id: str, generation: int, *partitions: int, **said: Any) -> MemberClaims:
    """Return a member's claim on orders."""
    data = JoinData(
        f"http://{member_id}", {"orders": Runs.of(partitions)}, generation=generation, **said
    )
    return MemberClaims(member_id, ("orders",), data, 4)


RECORD = Record(9, {"a": JoinData(actives={"orders": [0, 1, 2]}, generation=9)})


@pytest.mark.parametrize(
    "truthful",
    [
        word("a", 9, 0, 1, 2, holds=True),
        word("a", 9, 1),
        word("a", 9),
        word("a", 8, 4, 5, holds=True),  # it missed the answer and processes its old partitions
        word("x", 8, 4, 5, holds=True),
        word("x", -1, 4),
        word("x", -1),
    ],
)
def test_truthful_claims_are_taken_as_they_are(truthful: MemberClaims) -> None:
    """A claim may lag behind the record, be older, or come from a new member."""
    assert checked([truthful], 10, 9, RECORD) == (truthful,)


@pytest.mark.parametrize(
    ("false", "why"),
    [
        (word("a", 10, 0), "it claims generation 10 while 10 is being formed; its assignment"),
        (word("x", 11, 0), "it claims generation 11 while 10 is being formed; it counts as a new"),
        (
            word("a", 9, 0, 3),
            "it claims partitions of orders that were not assigned to it; its assign",
        ),
        (
            word("x", 9, 3, holds=True),
            "it claims partitions of orders that were not assigned to it; it c",
        ),
    ],
)
def test_false_claims_are_replaced_by_the_leaders_record(false: MemberClaims, why: str) -> None:
    """A member without a record gets no claims."""
    (found,) = checked([false], 10, 9, RECORD)
    given = RECORD.given.get(false.member_id, JoinData())
    assert str(found.refused).startswith(why)
    assert (found.data.actives, found.data.generation) == (given.actives, given.generation)
    assert found.data.holds is False


def test_of_a_refused_member_nothing_is_left_but_what_the_leader_gave_it() -> None:
    """Files, copies, promises, group ids and positions are refused with the rest."""
    log, given = {"log": [1]}, {"log": [0]}
    data = JoinData(
        "http://a",
        standbys=log,
        promised=log,
        awaited=log,
        on_disk=log,
        former_actives=log,
        overdue=log,
        positions={"log": {1: 5}},
        group_ids={"log": 7},
        former_generation=9,
        among=9,
        generation=10,
        holds=True,
        rack_id="r1",
    )
    truth = JoinData(
        actives=given, standbys=given, promised=given, awaited=given, among=2, generation=9
    )
    (found,) = checked([MemberClaims("a", ("log",), data, 4)], 10, 9, Record(9, {"a": truth}))
    assert found.data == replace(truth, url="http://a", holds=True, rack_id="r1")


def test_a_member_that_comes_back_under_another_name_contests_nothing() -> None:
    """The group removed the member, so its claims are older than those of the last round."""
    (found,) = checked([word("returned", 9, 0, 1, 4)], 10, 9, RECORD)
    assert found.refused is None
    assert found.data.generation == 8
    assert list(found.data.actives["orders"]) == [0, 1, 4]


@pytest.mark.parametrize(("generation", "own"), [(-1, 9), (3, 9), (10, 10)])
def test_where_the_count_began_anew_or_is_unknown_nothing_is_refused(
    generation: int, own: int
) -> None:
    """The leader's own last generation is at least the number of the forming round."""
    said = (word("a", 500, 0, holds=True), word("b", 12, 1))
    assert checked(said, generation, own, RECORD) == said


def test_a_record_of_another_round_is_not_used() -> None:
    """A different leader has answered since; a new member's claims keep their date."""
    new = (word("n", -1, 5), word("o", -1, 2, holds=True))
    said = (word("a", 9, 0, 3), word("x", 9, 4, holds=True), *new)
    assert checked(said, 11, 10, RECORD) == said


def test_two_billion_claimed_partitions_cost_nothing() -> None:
    """The claims are compared as runs."""
    false = word("a", 9)
    many = replace(false, data=replace(false.data, actives={"orders": Runs([0], [2_000_000_000])}))
    (found,) = checked([many], 10, 9, RECORD)
    assert found.refused is not None


def test_the_leader_names_the_liar_and_counts_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round's log line has the reason and the claims that count instead."""
    now = count(5)
    forming = next(now)
    monkeypatch.setattr(group_member, "kafka_generation", lambda _: forming)
    found = wire_group()
    for app in found.apps.values():
        app.assignor.holds = True
    forming = next(now)
    found.rebalance("m1")
    liar, leader = assignor_of(found, "m2"), assignor_of(found, "m1")
    false = JoinData(
        "http://w2:6066",
        {t: range(n) for t, n in SHOP.items()},
        generation=2_000_000_000,
        holds=True,
    )
    liar._join_data = lambda topics: false  # type: ignore[method-assign]
    before = {m: assignor_of(found, m).assigned_actives() for m in ("m0", "m1")}
    for _ in range(3):
        forming = next(now)
        found.rebalance("m1")
        assert not leader.last_round.follows
    assert before == {m: assignor_of(found, m).assigned_actives() for m in ("m0", "m1")}
    assert leader.counters["refused_members"] == 3
    assert "the claims of member m2 are refused: it claims generation 2000000000" in caplog.text


def test_a_refusal_names_the_first_three_of_the_false_topics_in_order() -> None:
    """Four topics are false; a topic with a true claim is not named."""
    topics = ("log", "orders", "clicks", "bills", "audit")
    claims = {topic: Runs.of([4]) for topic in topics}
    data = JoinData("http://a", {**claims, "given": Runs.of([0])}, generation=9)
    record = Record(9, {"a": JoinData(actives={"given": [0, 1]}, generation=9)})
    (found,) = checked([MemberClaims("a", topics, data, 4)], 10, 9, record)
    assert found.refused == (
        "it claims partitions of audit, bills, clicks that were not assigned to it; its assignment "
        "of generation 9 counts instead"
    )


@pytest.mark.parametrize("generation", [7, 8, 10, 11])
def test_a_record_counts_for_the_round_right_after_its_own(generation: int) -> None:
    """Neither an older nor a newer record knows the member's last assignment."""
    record = replace(RECORD, generation=generation)
    (found,) = checked([word("a", 10, 0)], 10, 6, record)
    assert str(found.refused).endswith("; it counts as a new member")
    (found,) = checked([word("a", 10, 0)], 10, 6, RECORD)
    assert str(found.refused).endswith("; its assignment of generation 9 counts instead")


@pytest.mark.parametrize(
    ("holds", "rounds", "refused", "reason"),
    [
        (True, MOST_HELD_UP - 1, None, None),
        (True, MOST_HELD_UP, None, "has blocked partitions that are assigned to other members"),
        (True, MOST_HELD_UP, "false claims", "false claims"),
        (False, MOST_HELD_UP, None, None),
    ],
)
def test_old_claims_block_ten_rounds_and_the_first_reason_of_a_refusal_stays(
    holds: bool, rounds: int, refused: str | None, reason: str | None
) -> None:
    """After ten rounds the member counts as processing no partitions."""
    one = replace(word("a", 3, 0, holds=holds), refused=refused)
    (found,) = refuse_overdue_claims([one], {"a": rounds, "b": MOST_HELD_UP})
    assert found.data.holds == (holds and rounds < MOST_HELD_UP)
    assert (found.refused or "").startswith(reason or "")
    assert (found.refused is None) == (reason is None)


def test_rounds_are_counted_for_the_members_that_delay_this_one() -> None:
    """A round without a delay by the member resets its count."""
    assert count_delayed_rounds({"a": 3, "b": 1}, {"a", "c"}) == {"a": 4, "c": 1}
    assert count_delayed_rounds({"a": 3}, ()) == {}


def test_several_members_are_disbelieved_each_by_its_own_count() -> None:
    """The reason has the number of rounds; the member's other claims stay."""
    said = [
        word("a", 7, 0, 1, holds=True),
        word("b", 7, 2, holds=True, standbys={"log": [3]}, promised={"orders": [4]}),
        replace(word("c", 7, 5, holds=True), refused="a lie"),
    ]
    found = refuse_overdue_claims(
        said, {"a": MOST_HELD_UP - 1, "b": MOST_HELD_UP + 2, "c": MOST_HELD_UP}
    )
    assert found[0] is said[0]
    assert found[1] == replace(
        said[1],
        data=replace(said[1].data, holds=False),
        refused=f"has blocked partitions that are assigned to other members for {MOST_HELD_UP + 2} "
        "rounds, with old claims",
    )
    assert found[2] == replace(said[2], data=replace(said[2].data, holds=False))


OWN, NEW = "shop-totals-changelog", "shop-rates-changelog"
OURS = JoinData(changelogs=frozenset({OWN, NEW}))
STOCKS = JoinData(version=STOCK)


def member(topics: tuple[str, ...], data: JoinData) -> MemberClaims:
    """Return a member that subscribes to ``topics``."""
    return MemberClaims("m", topics, data, 0)


def facts(*said: JoinData, topic: str = NEW) -> tuple[set[str], dict[str, bool]]:
    """Return the changelogs and global tables beside the leader's own, for ``topic``."""
    own = TableFacts(frozenset({OWN}))
    found = agreed(own, [member((OWN, topic), one) for one in said], "shop")
    assert OWN in found.changelogs
    return set(found.changelogs - {OWN}), dict(found.globals_)


def on(is_full: bool) -> JoinData:
    """Return a member whose code has the new table as a global table."""
    return JoinData(changelogs=frozenset({OWN, NEW}), globals_={NEW: is_full})


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ([OURS, OURS], ({NEW}, {})),
        ([OURS, STOCKS], ({NEW}, {})),
        ([STOCKS], ({NEW}, {})),
        ([OURS, JoinData(changelogs=frozenset({OWN}))], (set(), {})),
        ([on(False), on(False)], ({NEW}, {NEW: False})),
        ([on(False), on(True)], ({NEW}, {NEW: True})),
        ([on(True), STOCKS], ({NEW}, {NEW: True})),
        ([on(True), OURS], ({NEW}, {})),
    ],
)
def test_a_table_that_the_leader_does_not_know_is_what_all_its_members_report(
    said: list[JoinData], found: tuple[set[str], dict[str, bool]]
) -> None:
    """A changelog needs all members' reports; a global table needs all but the stock members'."""
    assert facts(*said) == found


@pytest.mark.parametrize("topic", ["shop-rates", "other-rates-changelog", "rates-changelog"])
def test_a_stock_members_topic_is_a_changelog_only_by_fausts_pattern(topic: str) -> None:
    """The pattern is the app's id, the table's name and the ending."""
    assert facts(STOCKS, topic=topic) == (set(), {})


def test_the_tables_of_several_apps_versions_are_combined_topic_by_topic() -> None:
    """The subscribers of each topic decide; the leader's own tables follow its code."""
    own = TableFacts(frozenset({"own", "own-global"}), {"own-global": False})
    new = JoinData(
        changelogs=frozenset({"one", "all", "own"}),
        globals_={"all": False, "own": True, "own-global": True},
    )
    more = JoinData(changelogs=frozenset({"all"}), globals_={"all": True})
    said = [
        member(("own", "own-global", "one", "all", "source"), new),
        member(("own", "all", "source"), more),
        member(("own", "one", "shop-old-changelog"), STOCKS),
    ]
    assert agreed(own, said, "shop") == TableFacts(
        frozenset({"own", "own-global", "all", "shop-old-changelog"}),
        {"own-global": False, "all": True},
    )
    assert own == TableFacts(frozenset({"own", "own-global"}), {"own-global": False})
    assert agreed(own, [], "shop") == own


def test_the_kind_of_a_table_of_the_leaders_own_code_is_what_that_says() -> None:
    """Reports of members with different code do not change the kind."""
    own = TableFacts(frozenset({OWN}))
    said = member((OWN,), JoinData(changelogs=frozenset({OWN}), globals_={OWN: True}))
    assert agreed(own, [said, said], "shop") == own
