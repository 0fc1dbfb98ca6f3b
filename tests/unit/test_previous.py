"""Deciding between claims of ownership, and the members with copies of each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from faust_assigner import Member, Plan, plan
from faust_assigner.checks.reading import accepted_owners, copies_of, last_owners, units_of
from tests.property.world import EVENTS, WEIGHTLESS, World
from tests.support.examples import examples

TOPICS = ["a", "b", "c-log"]


def judged(members: Sequence[Member], count: int = 1) -> Plan:
    """Return a plan; the tests read its previous owners."""
    return plan(members, dict.fromkeys(TOPICS, count), changelogs=["c-log"])


def previous(*members: Member) -> list[str | None]:
    """Return the believed previous owners of the group's numbers."""
    answer = judged(members)
    return [answer.member_ids[m] if m >= 0 else None for m in answer.previous_owner[0].tolist()]


def member(name: str, generation: int, *topics: str) -> Member:
    """Return a member subscribed to all topics, with a claim on partition 0 of ``topics``."""
    return Member(name, TOPICS, actives={t: [0] for t in topics}, generation=generation)


def test_one_claim_is_believed() -> None:
    """The claim may be on any topic of the task."""
    assert previous(member("x", 1, "c-log"), member("y", 1)) == ["x"]


def test_the_newest_generation_wins_even_against_more_topics() -> None:
    """The zombie claims all topics of the task, the owner one topic; the owner's claim wins."""
    assert previous(member("zombie", 1, "a", "b", "c-log"), member("owner", 2, "a")) == ["owner"]


def test_equal_generations_on_one_topic_void_both_and_older_ones_stay_out() -> None:
    """A third, older claim is ignored too."""
    assert previous(member("x", 2, "a"), member("y", 2, "a"), member("z", 1, "a")) == [None]


def test_most_topics_win_within_a_generation() -> None:
    """Two topics win against a single topic."""
    assert previous(member("x", 2, "a"), member("y", 2, "b", "c-log")) == ["y"]


def test_a_tie_of_topics_goes_to_the_source_then_to_the_name() -> None:
    """A source outweighs a changelog; of two sources the first by name decides."""
    assert previous(member("x", 2, "c-log"), member("y", 2, "b")) == ["y"]
    assert previous(member("x", 2, "b"), member("y", 2, "a")) == ["y"]


def test_claiming_a_partition_twice_is_no_contest() -> None:
    """Duplicates within a member's claim do not void the claim."""
    assert previous(Member("x", TOPICS, actives={"a": [0, 0, 0]}), Member("y", TOPICS)) == ["x"]


def test_a_stale_copy_is_still_a_copy() -> None:
    """A member with an outdated claim still has the state on disk."""
    answer = judged([member("zombie", 1, "a"), member("owner", 2, "a")])
    held = zip(
        answer.previous.copy_task.tolist(), answer.previous.copy_member.tolist(), strict=True
    )
    assert list(held) == [(0, answer.member_ids.index("zombie"))]


def test_whoever_was_active_holds_every_changelog_and_a_standby_holds_its_own() -> None:
    """Partial copies are counted in changelogs."""
    topics = ["s", "one-log", "two-log"]
    answer = plan(
        [
            Member("active", topics, actives={"s": [0]}, generation=1),
            Member("half", topics, standbys={"one-log": [0, 0]}),
            Member("owner", topics, actives={"s": [0]}, generation=2),
        ],
        dict.fromkeys(topics, 1),
        changelogs=["one-log", "two-log"],
    )
    held = dict(
        zip(
            [answer.member_ids[m] for m in answer.previous.copy_member.tolist()],
            answer.previous.copy_logs.tolist(),
            strict=True,
        )
    )
    assert held == {"active": 2, "half": 1}


def test_the_fast_judge_agrees_with_the_plain_one() -> None:
    """Over lives with zombies, false claims and junk, numpy and plain Python agree."""
    events, chances = zip(*EVENTS, strict=True)
    for seed in range(examples(5, 1)):
        rng = Random(seed)
        world = World()
        for _ in range(5):
            world.join(rng)
        for _ in range(25):
            for event in rng.choices(events, chances, k=2):
                event(world, rng)
            answer = world.answer()
            ordered = sorted(world.members.values(), key=lambda m: m.member_id)
            for unit in units_of(
                ordered, world.partitions, frozenset(answer_changelogs(answer)), WEIGHTLESS
            ):
                g = next(
                    i for i, group in enumerate(answer.groups) if unit.topics[0] in group.topics
                )
                before = accepted_owners(unit, ordered, "actives")
                assert before == answer.previous_owner[g].tolist()
                last = answer.layout.of(g, answer.previous.last_owner)
                assert last_owners(unit, ordered, before) == last.tolist()
                if unit.changelogs:
                    assert copies(answer, g) == [
                        {m: n for m, n in of.items() if m != answer.previous_owner[g][p]}
                        for p, of in enumerate(copies_of(unit, ordered))
                    ]
            world.rebalance(thorough=False)


def answer_changelogs(answer: Plan) -> set[str]:
    """Return all topics with state."""
    return {t for group in answer.groups for t in group.changelogs}


def copies(answer: Plan, g: int) -> list[dict[int, int]]:
    """Return number -> member -> number of changelogs held."""
    found: list[dict[int, int]] = [{} for _ in range(answer.groups[g].partitions)]
    start, previous = int(answer.layout.start[g]), answer.previous
    for task, m, logs in zip(
        previous.copy_task.tolist(),
        previous.copy_member.tolist(),
        previous.copy_logs.tolist(),
        strict=True,
    ):
        if 0 <= task - start < len(found):
            found[task - start][m] = logs
    return found


def test_a_task_is_awaited_by_who_holds_a_copy_of_what_another_owns() -> None:
    """A claim is void without a copy, without an owner, and for the member's own task."""

    def awaited(owned: Sequence[str], standbys: Sequence[str], waits: str = "waits") -> int:
        members = [
            Member("owner", TOPICS, actives={t: [0] for t in owned}, generation=1),
            Member("waits", TOPICS, standbys={t: [0] for t in standbys}, generation=1),
        ]
        members = [
            replace(m, awaited={"c-log": [0]}) if m.member_id == waits else m for m in members
        ]
        (found,) = judged(members).previous.awaited.tolist()
        return found

    assert awaited(["a"], ["c-log"]) == 1
    assert awaited(["a"], []) == -1
    assert awaited([], ["c-log"]) == -1
    assert awaited(["a"], ["c-log"], waits="owner") == -1
    assert awaited(["a"], ["c-log"], waits="nobody") == -1


def test_of_two_members_that_await_a_task_the_newer_claim_counts() -> None:
    """The generation of a former assignment has no effect; equal claims void each other."""
    copy = {"c-log": [0]}

    def awaited(one: int, other: int) -> list[int]:
        waits = [
            Member(
                name,
                TOPICS,
                standbys=copy,
                awaited=copy,
                generation=generation,
                former_generation=9 - generation,
            )
            for name, generation in (("x", one), ("y", other))
        ]
        return judged([member("owner", 1, "a"), *waits]).previous.awaited.tolist()

    assert [awaited(3, 5), awaited(5, 3), awaited(5, 5)] == [[2], [1], [-1]]


def past(*members: Member, changelogs: Sequence[str] = ("c-log",)) -> Any:
    """Return the previous state of partition 0 of the group."""
    return plan(members, dict.fromkeys(TOPICS, 1), changelogs=changelogs).previous


def former(name: str, *, at: int | None = None, generation: int = 5, **claims: Any) -> Member:
    """Return a member with partition 0 as its last assignment before a stop."""
    wish = {"a": [0]}
    return Member(
        name, TOPICS, former_actives=wish, former_generation=at, generation=generation, **claims
    )


def test_a_former_ownership_from_generation_zero_is_dated() -> None:
    """Generation 0 is older than the member's own generation; an undated claim is not."""
    found = [past(former("x", at=at)).former.tolist() for at in (0, 5, None)]
    assert found == [[-1], [0], [0]]


def test_a_task_with_an_owner_has_no_former_owner() -> None:
    """The wish of the former owner remains as its home."""
    found = past(member("owner", 6, "a"), former("was", generation=5))
    assert (found.owner.tolist(), found.former.tolist(), found.home.tolist()) == ([0], [-1], [1])


def test_a_generation_may_be_any_number_and_nothing_else() -> None:
    """A number beyond 64 bits is the newest; a boolean or a negative number is no generation."""
    assert previous(member("x", 1 << 80, "a"), member("y", 5, "a")) == ["x"]
    assert previous(member("x", True, "a"), member("y", 0, "a")) == ["y"]
    assert previous(member("x", -7, "a"), member("y", -1, "b")) == ["x"]
    assert previous(member("x", -7, "a"), member("y", -1, "a")) == [None]


def test_a_former_owner_with_less_state_than_a_copy_loses_the_task() -> None:
    """The copy with the most changelogs counts, in any order of the members."""
    logs, one, both = ("b", "c-log"), {"b": [0]}, {"b": [0], "c-log": [0]}
    more = Member("a", TOPICS, standbys=both, generation=5)
    assert past(more, former("z", standbys=one), changelogs=logs).former.tolist() == [-1]
    less = Member("a", TOPICS, standbys=one, generation=5)
    assert past(less, former("z", standbys=one), changelogs=logs).former.tolist() == [1]


def test_a_copy_has_at_most_every_changelog_and_is_a_standby_if_it_was_one_too() -> None:
    """Here the member is an outdated owner of two topics, and a standby."""
    both = Member(
        "old", TOPICS, actives={"a": [0], "b": [0]}, standbys={"c-log": [0]}, generation=1
    )
    found = past(both, member("owner", 2, "a"))
    assert (found.copy_logs.tolist(), found.copy_was_standby.tolist()) == ([1], [True])


def test_the_copy_for_an_awaited_task_was_no_standby() -> None:
    """The copy is a warm-up in addition to the standbys."""
    copy = {"c-log": [0]}
    waits = Member("waits", TOPICS, standbys=copy, awaited=copy, generation=1)
    found = past(member("owner", 1, "a"), waits)
    assert (found.awaited.tolist(), found.copy_was_standby.tolist()) == ([1], [False])
