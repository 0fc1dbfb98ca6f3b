"""A step of the two-phase rule, from the members' claims and the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from faust_assigner.app.rebalance.member_claims import MemberClaims
from faust_assigner.app.rebalance.placement import Placement
from faust_assigner.app.rebalance.two_phase import RoundStep, step
from faust_assigner.model import NOBODY
from faust_assigner.wire.join import STOCK, VERSION, JoinData
from faust_assigner.wire.runs import Runs

LOG = "log"


def says(
    name: str,
    *actives: int,
    is_stock: bool = False,
    standbys: Sequence[int] = (),
    promised: Sequence[int] = (),
    **said: Any,
) -> MemberClaims:
    """Return a member that processes these partitions of both topics."""

    def both(numbers: Sequence[int]) -> dict[str, Runs]:
        return {topic: Runs.of(numbers) for topic in ("orders", LOG)} if numbers else {}

    data = JoinData(
        f"http://{name}",
        both(actives),
        {LOG: Runs.of(standbys)} if standbys else {},
        promised=both(promised),
        **{"generation": 7, "holds": bool(actives), **said},
        version=STOCK if is_stock else VERSION,
    )
    return MemberClaims(name, ("orders", LOG), data, 4)


def placed(
    owners: Mapping[int, str],
    members: str = "abc",
    standbys: Mapping[str, Sequence[int]] | None = None,
) -> Placement:
    """Return a placement with these owners by partition, "" for no owner."""
    column = np.array([members.index(owners[p]) if owners[p] else NOBODY for p in sorted(owners)])
    actives = {m: [p for p in sorted(owners) if owners[p] == m] for m in members}
    return Placement(
        tuple(members),
        {m: dict.fromkeys(("orders", LOG), mine) if mine else {} for m, mine in actives.items()},
        {m: {LOG: list((standbys or {}).get(m, ()))} for m in members},
        {"orders": column, LOG: column},
        {"orders": 0, LOG: 0},
    )


def given(found: RoundStep) -> dict[str, list[int]]:
    """Return the source partitions that each member gets now."""
    return {
        m: topics["orders"] for m, topics in found.placement.actives.items() if "orders" in topics
    }


def test_what_all_of_is_promised_is_not_in_the_answer() -> None:
    """A topic without partitions is left out; an unclaimed partition comes at once."""
    found = step(
        placed({0: "a", 1: "c", 2: "b", 3: "b"}), [says("a", 0, 1, 2), says("b"), says("c")]
    )
    assert given(found) == {"a": [0], "b": [3]}
    assert found.promised == {"c": {"orders": [1], LOG: [1]}, "b": {"orders": [2], LOG: [2]}}


def test_only_copies_that_are_there_are_followed_until_the_second_round() -> None:
    """Other promised partitions are not followed, and a source never is."""
    found = step(
        placed({0: "b", 1: "b", 2: "b", 3: "c"}, standbys={"b": [3]}),
        [says("a", 0, 1), says("b", standbys=(1, 2)), says("c")],
    )
    assert (given(found)["b"], found.promised["b"][LOG]) == ([2], [0, 1])
    assert found.placement.standbys["b"] == {LOG: [1, 3]}, "it owns the copy of 2 from now on"


def test_an_owner_that_processes_a_task_keeps_it_whoever_claims_it_from_before() -> None:
    """A member frozen for some rounds claims its partitions of that time."""
    found = step(placed({0: "a", 1: "a"}), [says("a", 0, 1), says("b", 0, generation=3), says("c")])
    assert (given(found), found.promised, found.follows) == ({"a": [0, 1]}, {}, False)


def test_what_was_promised_is_given_against_older_claims_only() -> None:
    """A member that processes the task in the promise's generation has not revoked it yet."""
    plan = placed({0: "b", 1: "b"})
    old, same = says("a", 0, generation=7), says("c", 1, generation=6)
    found = step(plan, [old, says("b", promised=(0, 1), among=3), same])
    assert given(found) == {"b": [0]}
    assert found.promised == {"b": {"orders": [1], LOG: [1]}}


def test_a_member_delays_the_group_if_its_claims_are_old_and_block_a_move() -> None:
    """Old claims on kept partitions delay no member; current claims are part of each hand-over."""
    plan = placed({0: "c", 1: "c", 2: "b", 3: "c"})
    said = [says("a", 0, generation=5), says("b", 1, 2), says("c", 3, generation=6)]
    found = step(plan, said)
    assert found.promised == {"c": {"orders": [0, 1], LOG: [0, 1]}}
    assert found.held_up_by == {"a"}


def test_a_task_that_nobody_gets_calls_for_no_second_round() -> None:
    """The only subscriber of its topic leaves."""
    found = step(placed({0: "", 1: "a"}, "ab"), [says("a", 1), says("b"), says("c", 0)])
    assert (given(found), found.promised, found.follows) == ({"a": [1]}, {}, False)


def test_beside_a_stock_member_only_who_processes_a_task_keeps_it() -> None:
    """A former owner does not keep the task; a leaving member gets none and blocks no member."""
    said = [says("a", 0, 1), says("b", 0, holds=False), says("c", is_stock=True), says("gone", 2)]
    found = step(placed({0: "c", 1: "a", 2: "c", 3: "b"}), said)
    assert given(found) == {"a": [0, 1], "b": [3], "c": []}
    assert found.follows
    assert not found.promised


@pytest.mark.parametrize("said", [(says("a", 0), says("b")), (says("a"), says("b", 1))])
def test_where_nothing_has_to_go_there_is_one_round(said: tuple[MemberClaims, ...]) -> None:
    """The plan is the answer."""
    plan = placed({0: "a", 1: "b"}, "ab")
    assert step(plan, said) == RoundStep(plan)


def test_a_step_is_answered_as_a_whole() -> None:
    """The step has all actives, standbys and promises, and the delaying members."""
    said = [
        says("a", 0, 1, 2, standbys=(5,)),
        says("b", 3, standbys=(0, 1), generation=6),
        says("c", standbys=(2, 3, 4)),
    ]
    plan = placed(
        {0: "b", 1: "a", 2: "c", 3: "c", 4: "c", 5: "b"}, standbys={"a": [5], "b": [2], "c": [0, 1]}
    )
    found = step(plan, said)

    def both(*numbers: int) -> dict[str, list[int]]:
        return {"orders": list(numbers), LOG: list(numbers)} if numbers else {}

    assert found == RoundStep(
        replace(
            plan,
            actives={"a": both(1), "b": both(5), "c": both(4)},
            standbys={"a": {LOG: [5]}, "b": {LOG: [0, 2]}, "c": {LOG: [0, 1, 2, 3]}},
        ),
        {"b": both(0), "c": both(2, 3)},
        follows=True,
        held_up_by=frozenset({"b"}),
    )
    assert plan.standbys["c"] == {LOG: [0, 1]}, "the plan itself stays"


def test_beside_a_stock_member_the_answer_is_whole_as_well() -> None:
    """An owner that keeps a task has no copy of it; the other tasks and copies stay as planned."""
    said = [says("a", 0, 1), says("b", 3, standbys=(0,)), says("c", is_stock=True)]
    plan = placed(
        {0: "c", 1: "a", 2: "b", 3: "c", 4: "c"}, standbys={"a": [0, 2], "b": [3, 4], "c": [1]}
    )
    found = step(plan, said)

    def both(*numbers: int) -> dict[str, list[int]]:
        return {"orders": list(numbers), LOG: list(numbers)}

    assert found == RoundStep(
        replace(
            plan,
            actives={"a": both(0, 1), "b": both(2, 3), "c": both(4)},
            standbys={"a": {LOG: [2]}, "b": {LOG: [4]}, "c": {LOG: [1]}},
        ),
        follows=True,
    )
    assert plan.actives["a"] == both(1), "the plan itself stays"


def test_a_kept_task_includes_a_topic_that_no_member_claims_yet() -> None:
    """A changelog that was created later stays with its source, and its planned copy is dropped."""
    new = says("a", 0, 1)
    new = replace(new, data=replace(new.data, actives={"orders": Runs.of([0, 1])}))
    plan = placed({0: "c", 1: "a"}, standbys={"a": [0], "b": [], "c": [1]})
    for is_cooperative in (False, True):
        said = [new, says("b"), says("c", is_stock=True)]
        found = step(plan, said, is_cooperative=is_cooperative)
        whole = {"orders": [0, 1], LOG: [0, 1]}
        assert found.placement.actives["a"] == whole
        assert not any(found.placement.actives["c"].values())
        assert found.placement.standbys["a"] == {LOG: []}
        assert (found.promised, found.follows) == ({}, True)
    again = [replace(new, data=replace(new.data, among=3)), says("b"), says("c", is_stock=True)]
    assert not step(plan, again, is_cooperative=True).follows


def test_an_older_claim_on_a_kept_task_gives_nothing() -> None:
    """Otherwise a false claim of an old generation would make a second owner."""
    said = [says("a", 0, generation=3), says("b", 0), says("c", is_stock=True)]
    found = step(placed({0: "c"}), said, is_cooperative=True)
    assert found.placement.actives["b"] == {"orders": [0], LOG: [0]}
    assert not any(found.placement.actives["a"].values())


def test_the_age_of_a_claim_is_that_of_the_whole_group() -> None:
    """A member that processes no partitions may have the newest claim."""
    found = step(placed({0: "b", 1: "b"}), [says("a", 0, generation=6), says("b"), says("c")])
    assert (found.promised, found.held_up_by) == ({"b": {"orders": [0], LOG: [0]}}, {"a"})
    alone = step(placed({0: "b"}, "ab"), [says("a", 0, generation=6), says("b", generation=6)])
    assert (alone.follows, alone.held_up_by) == (True, frozenset())


@pytest.mark.parametrize(
    ("generation", "holds", "is_blocked"),
    [(7, True, False), (7, False, True), (6, True, True), (8, True, False)],
)
def test_of_two_claims_of_one_generation_the_owners_own_counts(
    generation: int, holds: bool, is_blocked: bool
) -> None:
    """This needs the new owner to process the task; its older claim shows a missed round."""
    found = step(
        placed({0: "b"}, "ab"), [says("a", 0), says("b", 0, generation=generation, holds=holds)]
    )
    assert found.follows is is_blocked
    assert (given(found).get("b") == [0]) is not is_blocked
