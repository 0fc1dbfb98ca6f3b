"""Inputs with sub-optimal plans by other sticky assignors; the oracle confirms our plans.

Notation of the cases: tX:n is topic X with n partitions, m{...} is a member with its topics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from faust_assigner import Member, Plan, plan
from tests.property.oracle import brute_force, score


def optimal(members: Sequence[Member], partitions: Mapping[str, int]) -> Plan:
    """Return the planner's answer, checked by brute force over every assignment of counts."""
    answer = plan(members, partitions)
    size = len(answer.member_ids)
    had = [[int((row == m).sum()) for m in range(size)] for row in answer.previous_owner]
    counts = [[int((row == m).sum()) for m in range(size)] for row in answer.owner]
    best = brute_force(
        [g.partitions for g in answer.groups],
        [g.members.tolist() for g in answer.groups],
        had,
        [1] * size,
    )
    assert score(counts, had, [1] * size) == best
    return answer


def loads(answer: Plan) -> list[int]:
    """Return each member's number of partitions."""
    return [sum(map(len, answer.actives(i).values())) for i in answer.member_ids]


def test_fresh_overlapping_subscriptions_are_perfectly_even() -> None:
    """Java and aiokafka balance t0:1 t1:2; m0{t1} m1{t0,t1} m2{t0} to 2,1,0 instead of 1,1,1."""
    answer = optimal(
        [Member("m0", ["t1"]), Member("m1", ["t0", "t1"]), Member("m2", ["t0"])], {"t0": 1, "t1": 2}
    )
    assert loads(answer) == [1, 1, 1]


def test_all_three_claims_that_can_stay_do_stay() -> None:
    """Java and aiokafka, retention: t0:3 t1:1; claims t0 -> [m0,m0,m1], t1 -> m0; they kept 2 of 3."""
    members = [
        Member("m0", ["t0", "t1"], actives={"t0": [0, 1], "t1": [0]}),
        Member("m1", ["t0"], actives={"t0": [2]}),
        Member("m2", ["t1"]),
        Member("m3", ["t1"]),
    ]
    answer = optimal(members, {"t0": 3, "t1": 1})
    assert answer.moves == 1
    assert answer.actives("m0") == {"t0": [0, 1]}
    assert answer.actives("m1") == {"t0": [2]}


def test_a_chain_of_transfers_does_not_lose_the_one_claim_that_can_stay() -> None:
    """franz-go, retention: t0:1 t1:2; m0{t0} m1{t1} m2{t0,t1}; claims t0 -> m2, t1 -> [m1,-]."""
    members = [
        Member("m0", ["t0"]),
        Member("m1", ["t1"], actives={"t1": [0]}),
        Member("m2", ["t0", "t1"], actives={"t0": [0]}),
    ]
    answer = optimal(members, {"t0": 1, "t1": 2})
    assert loads(answer) == [1, 1, 1]
    assert answer.actives("m1") == {"t1": [0]}
    assert answer.moves == 1  # t0 must go to m0, or m0 would idle; t1-0 stays


def test_an_idle_member_gets_one_and_the_other_keeps_two() -> None:
    """Stock Faust without standbys: {0,1},{} over 3 partitions kept 1 of 2."""
    answer = optimal([Member("a", ["t"], actives={"t": [0, 1]}), Member("b", ["t"])], {"t": 3})
    assert answer.actives("a") == {"t": [0, 1]}
    assert answer.actives("b") == {"t": [2]}


def test_extras_of_different_groups_go_to_different_members() -> None:
    """Stock Faust balances each group alone: 8 members, groups of 9..13, got 5..10 tasks; 6..7 is even."""
    partitions = {f"t{n}": n for n in range(9, 14)}
    answer = plan([Member(f"m{i}", list(partitions)) for i in range(8)], partitions)
    assert (min(loads(answer)), max(loads(answer))) == (6, 7)


def test_a_newcomer_gets_its_share_with_the_fewest_moves() -> None:
    """Stock Faust, 100 on 10 members, r=1, a join: 0 moves and an idle newcomer; here 9 moves."""
    members = [
        Member(f"m{i:02d}", ["t"], actives={"t": range(10 * i, 10 * i + 10)}) for i in range(10)
    ]
    answer = plan([*members, Member("new", ["t"])], {"t": 100}, replicas=1, changelogs=["t"])
    assert answer.moves == 9
    assert len(answer.actives("new")["t"]) == 9


def test_nothing_moves_when_nothing_changed() -> None:
    """Stock Faust, 100 on 40, r=0, has 19 moves in a rebalance without any change."""
    members = [Member(f"m{i:02d}", ["t"]) for i in range(40)]
    first = plan(members, {"t": 100})
    again = plan([Member(i, ["t"], actives=first.actives(i)) for i in first.member_ids], {"t": 100})
    assert again.moves == 0
    three_more = [Member(i, ["t"], actives=first.actives(i)) for i in first.member_ids]
    three_more += [Member(f"n{i}", ["t"]) for i in range(3)]
    assert plan(three_more, {"t": 100}).moves == 6  # stock: 20


def test_the_livelock_of_stock_faust_answers_at_once() -> None:
    """Stock's copartitioned assignor may never end: 14 partitions, 7 members and two replicas."""
    names = [f"m{i}" for i in range(7)]
    answer = plan([Member(n, ["t"]) for n in names], {"t": 14}, replicas=2, changelogs=["t"])
    for gone in names:
        left = [
            Member(n, ["t"], actives=answer.actives(n), standbys=answer.standbys(n))
            for n in names
            if n != gone
        ]
        after = plan(left, {"t": 14}, replicas=2, changelogs=["t"])
        assert sum(len(after.actives(m.member_id)["t"]) for m in left) == 14


def test_the_older_generation_never_wins() -> None:
    """Java with v0/v1 subscriptions let an older claim win; by KIP-341 the newer claim wins."""
    zombie = Member("a", ["t"], actives={"t": [0, 1]}, generation=3)
    owners = [
        Member("b", ["t"], actives={"t": [0]}, generation=4),
        Member("c", ["t"], actives={"t": [1]}, generation=4),
    ]
    answer = plan([zombie, *owners], {"t": 2})
    assert answer.actives("a") == {}
    assert answer.actives("b") == {"t": [0]}
    assert answer.actives("c") == {"t": [1]}


def test_two_claims_of_one_generation_void_each_other() -> None:
    """By KIP-792 both claims are void, so neither counts as a move."""
    both = [Member(n, ["t"], actives={"t": [0]}, generation=4) for n in "ab"]
    answer = plan(both, {"t": 1})
    assert answer.moves == 0
    assert answer.previous_owner[0].tolist() == [-1]
