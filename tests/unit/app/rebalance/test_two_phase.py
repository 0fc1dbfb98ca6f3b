"""A task that a living member still processes gets no new owner yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest

from faust_assigner.app.rebalance import leader
from faust_assigner.app.rebalance.doubts import MOST_HELD_UP
from faust_assigner.app.rebalance.findings import eager_members_line
from faust_assigner.app.rebalance.member_claims import MemberClaims
from faust_assigner.app.rebalance.second_round import landed
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.planner import Plan
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.answer import decode_answer
from faust_assigner.wire.join import JoinData, decode_join, encode_join
from faust_assigner.wire.runs import Runs
from tests.support.coordination.two_phase_group import ALL, TOPICS, Group
from tests.support.shop import TOPICS as SHOP
from tests.support.shop import assignor_of
from tests.support.shop import group as wire_group


def grown() -> Group:
    """Return two settled members and a third before its join."""
    group = Group()
    group.join("a")
    group.join("b")
    group.play()
    group.join("c")
    return group


def test_a_newcomer_gets_nothing_before_others_have_let_go() -> None:
    """The second round assigns all promised partitions."""
    group = grown()
    before = group.workers["a"].processed | group.workers["b"].processed
    assert before == ALL
    found = group.play()
    assert group.follows
    assert group.workers["c"].processed == frozenset()
    assert found.promised.keys() == {"c"}
    group.play()
    promised = {(topic, p) for topic, numbers in found.promised["c"].items() for p in numbers}
    assert promised == group.workers["c"].processed
    assert promised
    assert not group.follows


def test_the_second_round_keeps_to_the_first_ones_target_under_another_leader() -> None:
    """The members' metadata is enough: each leader of this group has no memory."""
    group = grown()
    found = group.play()
    promised = decode_answer(found.answers["c"].user_data)
    assert promised.among == 3
    said = decode_join(encode_join(group.workers["c"].said, TOPICS), TOPICS)
    assert said.promised == promised.promised
    group.play()
    standbys = {name: group.workers[name].said.standbys for name in "abc"}
    group.play()
    assert {name: group.workers[name].said.standbys for name in "abc"} == standbys
    assert not group.follows


def test_the_leader_dies_between_the_rounds() -> None:
    """Two members remain, and either may have a promise: a further round assigns all."""
    group = grown()
    group.play()
    del group.workers["a"]
    group.play()
    if group.follows:
        group.play()
    assert not group.follows
    assert group.owners.keys() == ALL


def test_a_member_that_leaves_may_take_part_in_the_second_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leaving member has revoked its partitions and blocks no member, so the target stays."""
    group = grown()
    group.settle()
    group.workers["a"].said = replace(group.workers["a"].said, leaves=True)
    found = group.play()
    assert group.follows
    promised = {
        m: {(t, p) for t, numbers in topics.items() for p in numbers}
        for m, topics in found.promised.items()
    }
    before = {name: group.workers[name].processed for name in "bc"}
    assert group.workers["a"].processed == frozenset()
    assert not (group.given("b") | group.given("c")) & group.before["a"], "before it has let go"
    copies, lands = group.copies, list[bool]()

    def land(anew: Plan, said: Sequence[MemberClaims]) -> Plan:
        lands.append((made := landed(anew, said)) is not anew)
        return made

    monkeypatch.setattr(leader, "landed", land)
    group.play()
    assert not group.follows
    assert lands == [True]
    for name in "bc":
        assert group.workers[name].processed == before[name] | promised.get(name, set())
        assert group.copies[name] == copies[name] - group.workers[name].processed


def test_where_all_leave_partitions_stay_where_they_are() -> None:
    """Else the last member would get all partitions, or no member would."""
    group = grown()
    group.settle()
    before = {name: worker.processed for name, worker in group.workers.items()}
    for worker in group.workers.values():
        worker.said = replace(worker.said, leaves=True)
    group.play()
    assert not group.follows
    assert {name: worker.processed for name, worker in group.workers.items()} == before


def test_who_leaves_is_given_no_global_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each remaining member has the whole table."""
    monkeypatch.setattr(
        "tests.support.coordination.two_phase_group.TABLES",
        TableFacts(frozenset({"shop-totals-changelog", "clicks"}), {"clicks": False}),
    )
    group = grown()
    group.settle()
    group.workers["a"].said = replace(group.workers["a"].said, leaves=True)
    group.play()
    assert {p for topic, p in group.given("b") if topic == "clicks"} == set(range(3))
    assert group.given("a") == frozenset()


def test_a_member_that_missed_the_answer_keeps_what_it_processes() -> None:
    """Its claim of an old generation still blocks the move."""
    group = grown()
    kept = group.workers["a"].processed
    group.play(misses={"a"})
    group.play(misses={"a"})
    assert group.workers["a"].processed == kept
    assert not kept & group.given("c")
    assert group.follows
    group.play()
    group.play()
    assert not group.follows
    assert group.owners.keys() == ALL


def test_what_has_been_given_up_is_given_at_once() -> None:
    """An eager group needs a single round."""
    group = grown()
    group.give_up("a")
    group.give_up("b")
    group.play()
    assert not group.follows
    assert group.workers["c"].processed


def test_a_claim_against_what_its_member_was_told_blocks_one_round_only() -> None:
    """Else a member that never revokes would keep its partitions, and rounds would never end."""
    group = grown()
    stubborn = group.workers["a"].said.actives
    for _ in range(2):
        group.play()
        group.workers["a"].said = replace(group.workers["a"].said, actives=stubborn)
    assert not group.follows
    assert group.workers["c"].processed


@pytest.mark.parametrize("behind", [2, 5, 1_000])
def test_a_member_that_claims_old_things_for_ever_is_disbelieved_after_a_while(behind: int) -> None:
    """Its claims always precede its last answer; without the limit rounds would never end."""
    group = grown()
    group.settle()
    liar, orphans = group.workers["c"], group.workers["a"].processed
    del group.workers["a"]
    rounds, follows = 0, True
    while follows and rounds < 2 * MOST_HELD_UP:
        liar.said = replace(
            liar.said,
            actives={t: range(n) for t, n in TOPICS.items()},
            holds=True,
            generation=max(group.generation - behind, -1),
            promised={},
            among=0,
        )
        found, rounds = group.play(misses={"c"}), rounds + 1
        follows = found.follows
    assert rounds == MOST_HELD_UP + 1
    assert "for 10 rounds, with old claims" in found.refused["c"]
    assert orphans <= group.workers["b"].processed | group.given("c")


def test_who_says_that_it_processes_what_another_got_since_waits_for_that_one() -> None:
    """The next owner's old claim does not override the current owner's claim."""
    group = grown()
    stranger, before = (
        group.workers["c"],
        group.workers["a"].processed | group.workers["b"].processed,
    )
    stranger.said = replace(
        stranger.said,
        actives={t: range(n) for t, n in TOPICS.items()},
        holds=True,
        generation=group.generation - 1,
    )
    stranger.is_eager = False
    group.play()
    assert group.follows
    assert not group.given("c") & before
    group.settle()
    assert group.workers["c"].processed
    assert {len(owners) for owners in group.owners.values()} == {1}


def test_one_that_misses_a_few_answers_is_believed_all_the_same() -> None:
    """The member continues to process; an accepted answer resets its count."""
    group = grown()
    kept = group.workers["a"].processed
    for _ in range(MOST_HELD_UP):
        found = group.play(misses={"a"})
        assert not found.refused
        assert group.workers["a"].processed == kept
        assert not kept & (group.given("b") | group.given("c"))
    assert found.held_up == {"a": MOST_HELD_UP - 1}, "the first was no older than the others'"
    group.settle()
    assert group.last is not None
    assert group.last.held_up == {}


def test_the_leader_remembers_who_holds_the_group_up(caplog: pytest.LogCaptureFixture) -> None:
    """The count lasts over rounds; the refusal is logged and counted."""
    found = wire_group()
    for app in found.apps.values():
        app.assignor.holds = True
    found.rebalance("m1")
    liar, leader = assignor_of(found, "m2"), assignor_of(found, "m1")
    old = JoinData(
        "http://w2:6066", {t: range(n) for t, n in SHOP.items()}, generation=0, holds=True
    )
    liar._join_data = lambda topics: old  # type: ignore[method-assign]
    found.remove("m0")
    for _ in range(MOST_HELD_UP):
        found.rebalance("m1")
        assert leader.last_round.follows
    found.rebalance("m1")
    assert not leader.last_round.follows
    assert leader.counters["refused_members"] == 1
    assert "with old claims" in caplog.text


def test_a_task_is_held_back_with_all_of_its_topics() -> None:
    """A claim on a single topic holds back the changelog as well."""
    group = grown()
    for name in "ab":
        said = group.workers[name].said
        group.workers[name].said = replace(said, actives={"orders": said.actives["orders"]})
    found = group.play()
    for topics in found.promised.values():
        assert topics["orders"] == topics["shop-totals-changelog"]


def test_a_standby_goes_on_following_what_it_is_promised() -> None:
    """Its copy stays open until the second round."""
    group = Group()
    for name in "abc":
        group.join(name)
    group.play()
    del group.workers["c"]
    group.play()
    group.join("c")
    copies = {name: dict(worker.said.standbys) for name, worker in group.workers.items()}
    copies["c"] = {"shop-totals-changelog": Runs.of(range(6))}
    group.workers["c"].said = replace(group.workers["c"].said, standbys=copies["c"])
    found = group.play()
    promised = found.promised["c"]["shop-totals-changelog"]
    assert promised
    assert set(promised) <= set(group.workers["c"].said.standbys["shop-totals-changelog"])


def test_beside_a_stock_member_what_is_processed_stays_until_all_is_given_up() -> None:
    """A stock member cannot report promises; revoked tasks would return to holders of copies."""
    group = grown()
    del group.workers["c"]
    before = {name: worker.processed for name, worker in group.workers.items()}
    group.join("stock", is_stock=True)
    group.play()
    assert group.follows
    assert {name: group.workers[name].processed for name in "ab"} == before
    assert group.workers["stock"].processed == frozenset()
    group.play()
    assert not group.follows
    assert group.workers["stock"].processed
    assert group.owners.keys() == ALL


def test_what_stays_beside_a_stock_member_is_kept_warm_by_others_alone() -> None:
    """The planned copy of a kept task on its own owner is dropped."""
    group = Group(replicas=2)
    for name in "ab":
        group.join(name)
    group.play()
    group.join("stock", is_stock=True)
    group.play()
    log = "shop-totals-changelog"
    kept = {
        name: {p for topic, p in group.workers[name].processed if topic == log} for name in "ab"
    }
    copies = {name: set(group.workers[name].said.standbys[log]) for name in "ab"}
    assert kept["a"] | kept["b"] == set(range(TOPICS[log]))
    assert copies == {"a": kept["b"], "b": kept["a"]}


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_member_with_unreadable_metadata_does_not_cause_endless_rounds(replicas: int) -> None:
    """It cannot report promises, so it gets no processed task; after one try the rounds end."""
    group = Group(replicas=replicas)
    for name in "ab":
        group.join(name)
        group.settle()
    before = {name: worker.processed for name, worker in group.workers.items()}
    group.join("c")
    group.workers["c"].is_unreadable = True
    for follows in (True, False):
        assert group.play().follows == follows
        assert {name: group.workers[name].processed for name in "ab"} == before
    group.join("d")
    group.settle()
    assert group.workers["d"].processed
    group.workers["c"].is_unreadable = False
    group.settle()
    assert all(group.workers[name].processed for name in "abcd")
    assert group.owners.keys() == ALL
    assert all(len(owners) == 1 for owners in group.owners.values())


def test_a_word_without_promises_is_as_short_as_before() -> None:
    """Absent promises need no bytes."""
    plain = JoinData("http://a", {"orders": Runs.of([1])}, generation=3)
    more = replace(plain, holds=True, among=2, promised={"orders": Runs.of([2])})
    assert len(encode_join(plain, TOPICS)) < len(encode_join(more, TOPICS))
    assert decode_join(encode_join(more, TOPICS), TOPICS).holds
    assert not decode_join(encode_join(plain, TOPICS), TOPICS).holds


def test_the_leader_says_which_roll_comes_next() -> None:
    """The line names the non-cooperative members and the reason; a uniform group has no line."""
    group = Group()
    for name in "ab":
        group.join(name)
        group.workers[name].said = replace(group.workers[name].said, cooperative=True)
    assert eager_members_line(group.play()) is None
    group.join("c", is_stock=True)
    group.join("d")
    group.join("e")
    line = eager_members_line(group.play())
    assert line is not None
    assert (
        "the next roll is that of c (stock Faust), d (eager, its log says why), "
        "e (eager, its log says why);"
    ) in line
    assert "that of the cooperative ones (2)" in line
    for name in "ab":
        del group.workers[name]
    assert eager_members_line(group.play()) is None


@pytest.mark.parametrize("warmups", [None, WarmupPolicy()])
@pytest.mark.parametrize(
    ("members", "leaver"), [(n, name) for n in (4, 5, 6) for name in "abcdef"[:n]]
)
def test_after_a_leave_loads_come_even_by_themselves(
    members: int, leaver: str, warmups: WarmupPolicy | None
) -> None:
    """Copies take over first; then the members request the round that evens out the loads."""
    group = Group(warmups=warmups)
    for name in "abcdef"[:members]:
        group.join(name)
    group.settle()
    group.leave(leaver)
    assert group.last is not None
    assert warmups or not (group.last.follows and group.last.awaited), "the second round says it"
    group.settle()
    loads = [
        sum(topic == "orders" for topic, _ in worker.processed) for worker in group.workers.values()
    ]
    assert max(loads) - min(loads) <= 1, loads
    assert group.owners.keys() == ALL


@pytest.mark.parametrize("names", list(permutations("abcd")))
def test_a_warm_up_that_the_first_round_began_goes_on_in_the_second(names: tuple[str, ...]) -> None:
    """The last member joins while a first move is pending: its extra copy is awaited."""
    group = Group(warmups=WarmupPolicy(acceptable_from_nothing=100), records=500)
    group.join(names[0])
    group.settle()
    for name in names[1:3]:
        group.join(name)
    while group.play().follows:
        pass
    group.catch_up()
    group.join(names[3])
    group.play()
    begun = group.copies[names[3]]
    assert group.follows
    found = group.play()
    assert group.copies[names[3]] >= begun
    assert found.awaited.keys() == {names[3]}
    group.wait()
    loads = [
        sum(topic == "orders" for topic, _ in worker.processed) for worker in group.workers.values()
    ]
    assert max(loads) - min(loads) <= 1, loads
