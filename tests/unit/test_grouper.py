"""PartitionGrouper: co-partitioned topics, followed sources, and stable group ids."""

from __future__ import annotations

from random import Random

import pytest

from faust_assigner import grouper
from faust_assigner.grouper import NARROW_IDS_FROM, PartitionGrouper
from faust_assigner.model import Group

ALL = ("a", "b", "c")


def group(
    subscriptions: list[list[str]],
    partitions: dict[str, int],
    changelogs: tuple[str, ...] = (),
    previous_ids: dict[str, int] | None = None,
    weightless: tuple[str, ...] = (),
) -> tuple[Group, ...]:
    """Return the groups of these subscriptions."""
    return PartitionGrouper().group(
        subscriptions,
        partitions,
        changelogs=changelogs,
        weightless=weightless,
        previous_ids=previous_ids,
    )


def ids(groups: tuple[Group, ...]) -> dict[str, int]:
    """Return topic -> group id."""
    return {topic: g.group_id for g in groups for topic in g.topics}


def test_equal_counts_and_equal_subscribers_are_one_group() -> None:
    """Two topics with equal counts share a group; a third topic with another count does not."""
    found = group([["a", "b", "c"]] * 2, {"a": 4, "b": 4, "c": 3})
    assert [g.topics for g in found] == [("c",), ("a", "b")]


def test_equal_counts_and_different_subscribers_are_two_groups() -> None:
    """A single member without ``b`` separates the topics."""
    found = group([["a", "b"], ["a"]], {"a": 4, "b": 4})
    assert [(g.topics, g.members.tolist()) for g in found] == [(("a",), [0, 1]), (("b",), [0])]


def test_sources_come_before_changelogs_in_a_group() -> None:
    """The topics vote in this order."""
    (found,) = group([["a-log", "b"]], {"a-log": 4, "b": 4}, ("a-log",))
    assert found.topics == ("b", "a-log")
    assert found.changelogs == ("a-log",)


def test_topics_without_partitions_or_subscribers_form_no_group() -> None:
    """Such topics have no partitions to assign or no members to receive them."""
    assert group([["gone", "empty"]], {"lonely": 3, "empty": 0}) == ()


def test_subscriptions_that_are_not_names_are_ignored() -> None:
    """Another member's subscription may contain values of any type."""
    odd = [["a", None, 3, b"a"]]
    assert ids(group(odd, {"a": 2})) == {"a": 2}  # type: ignore[arg-type]


def test_the_id_of_a_count_is_the_count() -> None:
    """Operators can predict the id."""
    assert ids(group([["a", "b"]], {"a": 4, "b": 9})) == {"a": 4, "b": 9}


def test_adding_a_topic_renumbers_nothing() -> None:
    """The existing ids stay for any count and name of the new topic."""
    partitions = {"m": 4, "n": 9, "o": 9}
    before = ids(group([["m", "n"], ["m", "n", "o"]], partitions))
    for name in ("a", "z", "mm"):
        for count in (1, 4, 9, 30):
            more = partitions | {name: count}
            after = ids(group([["m", "n", name], ["m", "n", "o", name]], more))
            assert {t: after[t] for t in before} == before, (name, count)


def test_remembered_ids_survive_a_topic_that_joins_a_narrow_group() -> None:
    """Without remembered ids, a narrow group's id changes with its first topic."""
    before = ids(group([["m"], ["m", "o"]], {"m": 4, "o": 4}))
    after = ids(group([["m"], ["m", "o", "a"]], {"m": 4, "o": 4, "a": 4}, previous_ids=before))
    assert after["o"] == after["a"] == before["o"]


def test_a_changelog_never_renames_its_group() -> None:
    """A narrow group is named after its first source."""
    before = ids(group([["m"], ["m", "o"]], {"m": 4, "o": 4}))
    after = ids(group([["m"], ["m", "o", "a-log"]], {"m": 4, "o": 4, "a-log": 4}, ("a-log",)))
    assert after["o"] == before["o"]


def test_a_remembered_id_goes_to_the_group_with_most_of_its_topics() -> None:
    """If a group splits, the larger part keeps the id and the smaller part gets a new id."""
    before = {"a": 4, "b": 4, "c": 4}
    after = ids(group([["a", "b", "c"], ["a", "b"]], {"a": 4, "b": 4, "c": 4}, previous_ids=before))
    assert after["a"] == after["b"] == 4
    assert after["c"] != 4


def test_an_id_that_topics_lost_goes_to_no_other_group_in_the_same_round() -> None:
    """The free id's last transactions may still be ending after two groups merge."""
    before = {"a": NARROW_IDS_FROM, "b": 4}
    after = ids(group([["a", "b", "c"], ["a", "b"]], {"a": 4, "b": 4, "c": 4}, previous_ids=before))
    assert after["a"] == after["b"] == NARROW_IDS_FROM
    assert after["c"] not in before.values()


def test_no_two_groups_ever_share_an_id() -> None:
    """Remembered ids may collide with counts or with each other."""
    subscriptions = [["a", "b", "c", "d"], ["a", "b", "c"], ["a", "b"], ["a"]]
    for previous in (
        {},
        {"a": 7, "b": 7, "c": 4},
        {"d": 4, "a": NARROW_IDS_FROM},
        {"a": -1, "b": True},
    ):
        found = ids(group(subscriptions, dict.fromkeys("abcd", 4), previous_ids=previous))  # type: ignore[arg-type]
        assert len(set(found.values())) == 4, previous


def test_member_churn_renumbers_nothing_while_the_widest_stays_the_widest() -> None:
    """Plain members join and leave."""
    few = ids(group([["m", "o"], ["m"]], {"m": 4, "o": 4}))
    many = ids(group([["m", "o"], ["m"], ["m"], ["m", "o"]], {"m": 4, "o": 4}))
    assert few == many


def test_a_changelog_with_fewer_subscribers_follows_the_wider_source() -> None:
    """Such subscriptions occur in a rolling deploy that adds a table."""
    found = group([["a"], ["a", "a-log"]], {"a": 4, "a-log": 4}, ("a-log",))
    assert [g.follows for g in found] == [None, 0]


def test_a_follower_prefers_the_source_it_shares_most_members_with() -> None:
    """Of two sources with equal counts, the changelog follows the source of all its members."""
    found = group(
        [["a", "a-log", "b"], ["b"], ["b", "c"], ["a", "a-log"]],
        {"a": 4, "b": 4, "a-log": 4, "c": 4},
        ("a-log",),
    )
    by_topic = {g.topics[0]: g for g in found}
    assert by_topic["a"].changelogs == ("a-log",)  # same members: one group, no source
    assert by_topic["c"].follows is None


def test_a_changelog_of_another_count_follows_nobody() -> None:
    """Only equal numbers can travel together."""
    found = group([["a"], ["a", "a-log"]], {"a": 4, "a-log": 5}, ("a-log",))
    assert [g.follows for g in found] == [None, None]


def test_a_shared_id_stays_with_the_group_that_works() -> None:
    """A weightless topic leaves its old group; the transactional ids of the others stay."""
    found = ids(
        group(
            [["work", "lead"]],
            {"work": 1, "lead": 1},
            weightless=("lead",),
            previous_ids={"lead": 7, "work": 7},
        )
    )
    assert found["work"] == 7
    assert found["lead"] != 7


def test_where_sets_are_declared_only_their_topics_travel_together() -> None:
    """Overlapping sets are merged, equal counts do not bind topics, and no group follows."""
    partitions = {"a": 4, "b": 4, "c": 4, "d": 4, "log": 4}
    found = PartitionGrouper().group(
        [list(partitions)] * 2,
        partitions,
        changelogs=("log",),
        co_partitioned=(("b", "c"), ("a", "b")),
    )
    assert [g.topics for g in found] == [("a", "b", "c"), ("d",), ("log",)]
    assert all(g.follows is None for g in found)
    subscriptions = [["a", "log"], ["a"]]
    alone = PartitionGrouper().group(
        subscriptions, {"a": 4, "log": 4}, changelogs=("log",), co_partitioned=()
    )
    assert [(g.topics, g.follows) for g in alone] == [(("a",), None), (("log",), None)]
    usual = PartitionGrouper().group(subscriptions, {"a": 4, "log": 4}, changelogs=("log",))
    assert [(g.topics, g.follows) for g in usual] == [(("a",), None), (("log",), 0)]


def test_a_declared_set_of_different_counts_binds_only_equal_ones() -> None:
    """Partition 5 of ``b`` has no counterpart in ``a``."""
    found = PartitionGrouper().group([["a", "b"]], {"a": 4, "b": 6}, co_partitioned=(("a", "b"),))
    assert [g.topics for g in found] == [("a",), ("b",)]


@pytest.mark.parametrize("remembered", [4, 8])
def test_a_group_whose_width_changed_shares_its_id_with_no_other(remembered: int) -> None:
    """The remembered id may be the count of another group now; transactional ids contain the id."""
    found = group([["a", "b"]], {"a": 8, "b": 4}, previous_ids={"a": 4, "b": remembered})
    assert len({g.group_id for g in found}) == len(found) == 2
    assert ids(found)["a"] == 4


@pytest.mark.parametrize("seed", range(20))
def test_ids_are_different_whatever_is_remembered(seed: int) -> None:
    """The widths and the groups' topics change from round to round."""
    rng, previous = Random(seed), {}
    for _ in range(6):
        counts = {topic: rng.randint(1, 4) for topic in "abcdef"}
        found = group([list("abcdef"), list("abc")], counts, previous_ids=previous)
        previous = ids(found) | {"a": rng.randint(0, 4)}
        assert len({g.group_id for g in found}) == len(found)


def test_the_id_of_a_topic_that_is_gone_goes_to_no_other_group() -> None:
    """A member may still end transactions of the removed topic in this round."""
    found = ids(group([["b"]], {"b": 4}, previous_ids={"gone": 4}))
    assert found["b"] != 4


@pytest.mark.parametrize("name", list("abcdef"))
def test_an_id_made_from_a_name_is_no_other_groups_count(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hash can yield only the count or the number after the count here."""
    monkeypatch.setattr(grouper, "NARROW_IDS_FROM", 4)
    monkeypatch.setattr(grouper, "_NARROW_IDS", 2)
    found = ids(group([["wide", name], ["wide"]], {"wide": 4, name: 4}))
    assert found == {"wide": 4, name: 5}


def test_a_group_with_work_comes_before_a_weightless_group_of_its_width() -> None:
    """The order is by count, width, and work; the topic names decide last."""
    found = group([["a", "b"]] * 2, {"a": 4, "b": 4}, weightless=("a",))
    assert [one.topics for one in found] == [("b",), ("a",)]
    assert found[0].group_id == 4


def test_a_changelog_follows_no_weightless_group() -> None:
    """Faust's leader topic owns no state."""
    found = group([["w", "log"], ["w"]], {"w": 4, "log": 4}, ("log",), weightless=("w",))
    assert [one.follows for one in found] == [None, None]


def test_a_changelog_may_follow_a_group_of_its_own_width() -> None:
    """During a deploy, the table and the source have different subscribers."""
    found = group([["log"], ["log", "src"], ["src"]], {"src": 4, "log": 4}, ("log",))
    follows = {one.topics: one.follows for one in found}
    leader = next(at for at, one in enumerate(found) if one.topics == ("src",))
    assert follows == {("log",): leader, ("src",): None}


def test_of_two_sources_with_equally_many_common_members_the_wider_leads() -> None:
    """Of equally wide sources the first in order leads."""
    both = ["p", "q", "log"]
    wide = [both, both, ["p", "q"], ["q"]]
    found = group(wide, {"p": 4, "q": 4, "log": 4}, ("log",))
    (follower,) = [one for one in found if one.follows is not None]
    assert found[follower.follows or 0].topics == ("q",)
    equal = [both, both, ["p"], ["q"]]
    found = group(equal, {"p": 4, "q": 4, "log": 4}, ("log",))
    (follower,) = [one for one in found if one.follows is not None]
    assert found[follower.follows or 0].topics == ("p",)


def test_only_the_widest_group_of_a_count_may_have_the_count_as_its_id() -> None:
    """A narrower group does not get the count if the widest group has a remembered id."""
    subscriptions = [["wide", "narrow"], ["wide"]]
    found = ids(group(subscriptions, {"wide": 4, "narrow": 4}, previous_ids={"wide": 77}))
    assert found["wide"] == 77
    assert found["narrow"] >= NARROW_IDS_FROM


@pytest.mark.parametrize("remembered", [-1, True, 2.0, "5", None])
def test_a_remembered_id_that_is_no_id_is_ignored(remembered: object) -> None:
    """Remembered ids come from other members' metadata."""
    found = group([["t"]], {"t": 4}, previous_ids={"t": remembered})  # type: ignore[dict-item]
    assert ids(found) == {"t": 4}


def test_of_a_groups_topics_that_part_the_larger_part_keeps_the_id() -> None:
    """The smaller part has the first name."""
    subscriptions = [["a", "b", "c"], ["b", "c"]]
    previous = dict.fromkeys("abc", 50)
    found = ids(group(subscriptions, dict.fromkeys("abc", 4), previous_ids=previous))
    assert (found["b"], found["c"]) == (50, 50)
    assert found["a"] != 50


def test_the_id_of_a_narrow_group_is_the_same_in_every_version() -> None:
    """Transactional ids contain the hash: another hash would leave open transactions behind."""
    assert grouper._probe("orders", set()) == 425986159
    assert grouper._probe("orders", {425986159}) == 689813880


def test_groups_whose_hashes_collide_keep_their_ids_whoever_is_wider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ids are assigned in the order of names, and are distinct."""
    monkeypatch.setattr(grouper, "_NARROW_IDS", 4)
    names = [f"t{n}" for n in range(40)]
    first = names[0]
    second = next(
        one for one in names[1:] if grouper._probe(one, set()) == grouper._probe(first, set())
    )
    counts = {"wide": 4, first: 4, second: 4}
    found = []
    for wider, narrower in ((first, second), (second, first)):
        subscriptions = [["wide", wider, narrower], ["wide", wider], ["wide"]]
        found.append(ids(group(subscriptions, counts)))
    assert found[0] == found[1]
    assert len(set(found[0].values())) == 3
