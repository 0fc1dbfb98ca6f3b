"""Values at their limits in a report: zero is not unknown, the first of equals counts, empty is left out."""

from __future__ import annotations

from dataclasses import astuple, replace
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from faust_assigner.status.build import (
    _copies_by_partition,
    _decision,
    _missing_parts,
    build,
    changelogs_of,
)
from faust_assigner.status.described import (
    DescribedGroup,
    DescribedMember,
    decode_group,
    numbers_of,
    replaced_urls,
)
from faust_assigner.status.evidence import Evidence, Heard
from faust_assigner.status.members import View, _give_unique_names, views_of
from faust_assigner.status.report import ANSWERED, OTHER, SILENT, Copy
from faust_assigner.status.waiting import waits_of
from faust_assigner.wire.answer import Answer
from faust_assigner.wire.join import JoinData, encode_join
from faust_assigner.wire.outcome import Outcome
from faust_assigner.wire.worker_status import CopyLag, Peer, Standstill, TableStatus, WorkerStatus
from tests.support.status import group as group_of

QUIET = Heard(answer=SILENT)


def described(member_id: str, **more: Any) -> DescribedMember:
    """A member."""
    return DescribedMember(**{"member_id": member_id, "client_id": "c", "address": "a", **more})


def view(name: str, status: WorkerStatus | None = None, **member: Any) -> View:
    """A member by name, with its answer."""
    heard = QUIET if status is None else Heard(answer=ANSWERED, status=status)
    return View(member=described(f"m-{name}", **member), heard=heard, name=name)


def status(**more: Any) -> WorkerStatus:
    """A worker's answer."""
    return WorkerStatus(**{"app": "shop", "member_id": "m", **more})


def test_a_position_and_an_end_of_zero_are_known() -> None:
    """A measured lag goes before the position at the join, even if the worker could not measure it."""
    held = {"log": [0, 1, 2, 3, 4, 5]}
    said = JoinData(positions={"log": {0: 0, 1: 0, 2: 7, 4: 60, 5: 9}})
    told = status(
        copies=(
            CopyLag(topic="log", partition=4, records=0, seconds=0.0),
            CopyLag(topic="log", partition=5, records=None, seconds=3.0),
        )
    )
    ends = {("log", 0): 40, ("log", 1): 0, ("log", 2): 5, ("log", 4): 90, ("log", 5): 80}
    found = _copies_by_partition([view("a", told, said=said, given=Answer({}, held))], ends)
    assert {number: astuple(*copies) for (_, number), copies in found.items()} == {
        0: ("a", False, 40, None, False),
        1: ("a", False, 0, None, False),
        2: ("a", False, 0, None, False),
        3: ("a", False, None, None, False),
        4: ("a", False, 0, 0.0, True),
        5: ("a", False, None, 3.0, True),
    }


def outcome(moved: int, *, leads: bool = False) -> Outcome:
    """The outcome of a round that moved this many tasks."""
    return Outcome(
        trigger="join", decided_at=0, members=2, tasks=9, moved=moved, cold=0, off_target=0,
        warming=0, leads=leads,
    )  # fmt: skip


def test_among_equal_decisions_the_first_members_own_answer_counts_and_then_the_leaders() -> None:
    """The group's answer goes before the worker's; a date of zero is unknown."""

    def given(generation: int, moved: int, *, leads: bool = False) -> Answer:
        found = outcome(moved, leads=leads)
        return Answer({}, {}, generation=generation, decision_id=f"d{moved}", outcome=found)

    told = status(generation=7, decision_id="d2", outcome=outcome(2))
    views = [
        view("z", given=given(6, 9, leads=True)),
        view("a", told, given=given(7, 1)),
        view("b", given=given(7, 3)),
    ]
    found = _decision(views)
    assert found is not None
    assert (found.decision_id, found.moved, found.leader, found.at) == ("d1", 1, None, None)
    led = _decision([*views, view("c", given=given(7, 4, leads=True))])
    assert led is not None
    assert (led.decision_id, led.moved, led.leader) == ("d4", 4, "c")


def test_the_topics_of_tables_are_a_members_own_word_if_it_gives_one() -> None:
    """A worker's tables count only for members without this package's metadata, as names do for all."""
    tables = (TableStatus(name="t", changelog="odd-log", store="memory"),)
    ours = view("a", status(tables=tables), said=JoinData(), topics=frozenset({"shop-x-changelog"}))
    evidence = Evidence(group=DescribedGroup(group_id="shop", state="Stable"))
    assert changelogs_of(evidence, [ours]) == {"shop-x-changelog"}
    named = view("b", said=JoinData(changelogs=frozenset({"my-log"})))
    hidden = view("c", status(tables=tables, standbys={"shop-y-changelog": (1,)}))
    owned = view("d", status(actives={"shop-z-changelog": (1,), "bank-z-changelog": (1,)}))
    assert changelogs_of(evidence, [ours, named, hidden, owned]) == {
        "my-log",
        "odd-log",
        "shop-x-changelog",
        "shop-y-changelog",
        "shop-z-changelog",
    }


def test_a_member_without_an_id_and_with_unreadable_data_has_two_problems() -> None:
    """The sentences name the member."""
    one = View(member=described("", problem="its metadata is unreadable"), heard=QUIET, name="p")
    group = DescribedGroup(group_id="shop", state="Stable", members=(one.member,))
    assert [text.split(" is ")[0] for text in _missing_parts(Evidence(group=group), [one])] == [
        "p: its metadata",
        "p was in the last round and does not answer. Its member id",
    ]


def test_the_lag_of_partitions_without_an_owner_counts() -> None:
    """A generation of zero is known, and a leader is not named like the beginning of a member's name."""
    members = tuple(
        described(
            f"m-{name}",
            instance_id=name,
            said=JoinData(f"http://{name}"),
            given=Answer({"t": [number]}, {}, generation=0, outcome=outcome(1, leads=leads)),
        )
        for name, number, leads in (("w", 0, True), ("w1", 2, False))
    )
    found = build(
        Evidence(
            group=DescribedGroup(group_id="shop", state="Stable", members=members),
            committed={("t", 0): 3, ("t", 1): 5, ("t", 2): 9, ("t", 3): 50},
            ends={("t", 0): 4, ("t", 1): 25, ("t", 2): 109, ("t", 3): 40, ("t", 4): 0},
        )
    )
    assert found.totals.lag == 1 + 20 + 100
    assert [one.lag for one in found.partitions] == [1, 20, 100, 0]
    assert [(one.name, one.generation, one.is_leader, one.lag) for one in found.members] == [
        ("w", 0, True, 1),
        ("w1", 0, False, 100),
    ]


def entity(metadata: bytes, assignment: bytes, **more: Any) -> Any:
    """A settled group of one member, as its coordinator describes it."""
    member = {
        "member_id": "m",
        "client_id": "c",
        "client_host": "//h",
        "member_metadata": metadata,
        "member_assignment": assignment,
    }
    return SimpleNamespace(
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="",
        members=[SimpleNamespace(**member | more)],
    )


def test_a_member_with_unreadable_metadata_keeps_its_assignment() -> None:
    """A topic without a name is none; an empty instance id is one; one slash is removed from an address."""
    assigned = group_of(1).answers["m0"]
    (one,) = decode_group(entity(b"\xff", assigned, group_instance_id="")).members
    assert (one.said, one.instance_id, one.address) == (None, "", "/h")
    assert one.given is not None
    assert one.problem.startswith("its metadata is unreadable: ")
    joined = ConsumerProtocolMemberMetadata(
        0, ["", "t", None], encode_join(JoinData(), [])
    ).encode()
    (two,) = decode_group(entity(joined, b"")).members
    assert (two.topics, two.given, two.instance_id, two.problem) == ({"", "t"}, None, None, "")
    strange = ConsumerProtocolMemberMetadata(0, ["t"], b"x").encode()
    (three,) = decode_group(entity(strange, b"")).members
    assert (three.topics, three.said, three.kind) == ({"t"}, None, "not Faust")


@pytest.mark.parametrize(
    ("claims", "numbers"),
    [
        ({"b": [3, 1], "a": [2]}, [("a", (2,)), ("b", (3, 1))]),
        ({"a": [], "b": range(2)}, [("b", (0, 1))]),
    ],
)
def test_claims_have_numbers_by_topic_without_empty_topics(claims: Any, numbers: Any) -> None:
    """Topics are sorted, numbers keep their order."""
    assert list(numbers_of(claims).items()) == numbers


def test_standbys_are_ascending_without_warm_ups_and_without_empty_topics() -> None:
    """The worker may list its copies in any order."""
    told = status(standbys={"u": (9, 33, 1, 17), "v": (4,)}, awaited={"u": (17,), "v": (4,)})
    one = view("a", told)
    assert (one.standbys, one.warmups) == ({"u": (1, 9, 33)}, {"u": (17,), "v": (4,)})


def test_a_process_is_replaced_only_by_a_member_with_its_instance_id_and_a_known_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newest answer names the last round; departed members and hidden URLs replace no process."""
    directories = {
        b"new": SimpleNamespace(
            instances=("i1", "i2", "i3", "i4", ""),
            urls=("http://old1", "http://same2", "http://old3", "http://old4", "http://old5"),
        ),
        b"old": SimpleNamespace(instances=("i1",), urls=("http://older",)),
    }
    monkeypatch.setattr(
        "faust_assigner.status.described.read_directory", lambda raw: directories[raw]
    )

    def member(name: str, url: str, directory: bytes, generation: int, **more: Any) -> Any:
        given = Answer({}, {}, generation=generation, directory=directory)
        said = JoinData(url) if url else None
        return described(name, **{"instance_id": f"i{name}", "said": said, "given": given, **more})

    group = DescribedGroup(
        group_id="g",
        state="Stable",
        members=(
            member("1", "http://new1", b"old", 4),
            member("2", "http://same2", b"new", 5),
            member("3", "", b"old", 3),
            member("5", "http://new5", b"old", 3, instance_id=None),
        ),
    )
    assert replaced_urls(group) == {"http://old1"}
    assert replaced_urls(replace(group, members=())) == frozenset()


def test_a_lag_and_a_time_of_zero_are_shown() -> None:
    """A copy of unknown lag adds nothing to a known lag; a restore may end now."""
    told = status(
        awaited={"log": (1, 2), "other": (3,)},
        standing=(Standstill(topic="t", partition=4, reason="restoring", seconds=9.0),),
        restore_remaining_records=6,
        restore_remaining_s=0.0,
    )
    views = [view("a", told), view("b", status(actives={"other": (3,)}))]
    copies = {
        ("log", 1): [Copy(member="a", is_warmup=True, lag=0, seconds=None, is_measured=True)],
        ("log", 2): [
            Copy(member="a", is_warmup=True, lag=None, seconds=None, is_measured=False),
            Copy(member="b", is_warmup=False, lag=77, seconds=None, is_measured=True),
        ],
    }
    group = DescribedGroup(group_id="shop", state="Stable")
    assert [one.text for one in waits_of(group, views, copies)] == [
        "t 4 not processed: its tables are being restored (6 records remain, about 0 s left)",
        "catches up on log 1-2 (0 records behind) to become the owner",
        "catches up on other 3 to take over from b",
    ]


def test_each_member_of_a_rebalance_has_one_row_and_the_answer_of_its_first_url() -> None:
    """A silent peer with a member's URL is that member; an answer without an app is another's."""
    members = tuple(described(f"m-{name}", instance_id=name) for name in ("x", "y", "z"))
    group = DescribedGroup(group_id="shop", state="PreparingRebalance", members=members)

    def answer(**more: Any) -> Heard:
        return Heard(answer=ANSWERED, status=status(**more))

    found = views_of(
        Evidence(
            group=group,
            heard={
                "http://two": answer(member_id="m-x", host="second"),
                "http://one": answer(member_id="m-x", host="first"),
                "http://y": QUIET,
                "http://z": answer(app="", member_id="m-q"),
                "http://w/": QUIET,
            },
            peers=[Peer(url="http://y"), Peer(url="http://w/"), Peer(url="http://unheard")],
            urls={"m-y": "http://y", "m-z": "http://z"},
        )
    )
    told = [(one.name, one.member.member_id, one.url, one.heard.answer) for one in found]
    assert told == [
        ("w", "", "http://w/", SILENT),
        ("x", "m-x", "http://two", ANSWERED),
        ("y", "m-y", "http://y", SILENT),
        ("z", "m-z", "http://z", OTHER),
    ]
    assert found[3].heard.detail == "http://z serves a different app, "


def test_members_of_one_host_are_named_with_their_ports_without_a_slash() -> None:
    """The scheme is left out; a member with a unique host is named by its host."""
    urls = ("http://h:1/", "https://h:2", "http://g:3/", "")
    views = [View(member=described(f"m{n}"), heard=QUIET, url=url) for n, url in enumerate(urls)]
    assert sorted(one.name for one in _give_unique_names(views)) == ["g", "h:1", "h:2", "m3"]
