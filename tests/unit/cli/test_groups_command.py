"""``faust-assigner groups``: the tables and the JSON of each answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from faust_assigner.cli import main
from faust_assigner.clients import groups
from faust_assigner.clients import rolls as rolls_of
from faust_assigner.clients.group_views import (
    GroupMemberView,
    GroupView,
    ListedGroup,
    PartitionView,
)
from faust_assigner.clients.rolls import Rolls, Worker

BROKER = {"bootstrap_servers": ["a:1"], "security_protocol": "PLAINTEXT"}


def run(*arguments: str, code: int = 0) -> Result:
    """Run a command in this process; check its exit code."""
    done = CliRunner().invoke(main, ["groups", *arguments, "--bootstrap", "a:1"])
    assert done.exit_code == code, done.output
    return done


def cells(text: str) -> list[list[str]]:
    """Return the words of each line, without empty lines and table rules."""
    found = [line.split() for line in text.splitlines()]
    return [words for words in found if words and set("".join(words)) - {"─"}]


def answering(answer: Any, asked: list[Any]) -> Callable[..., Any]:
    """Return a fake request to the cluster with this answer."""

    async def question(*given: Any) -> Any:
        asked.append(given)
        return answer

    return question


def listed(name: str, **more: str) -> ListedGroup:
    """A group of an old cluster that reports only the id, apart from ``more``."""
    return ListedGroup(
        **{"group_id": name, "group_type": "", "protocol_type": "", "state": "", **more}
    )


def test_a_list_has_a_line_for_each_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing facts are marked with a dash; an empty list has its own text."""
    asked: list[Any] = []
    found = [
        listed("g", group_type="classic", protocol_type="consumer", state="Stable"),
        listed("h"),
    ]
    monkeypatch.setattr(groups, "list_groups", answering(found, asked))
    assert cells(run("list").stdout) == [
        ["group", "type", "protocol", "type", "state"],
        ["g", "classic", "consumer", "Stable"],
        ["h", "-", "-", "-"],
    ]
    assert [list(one.values()) for one in json.loads(run("list", "--json").stdout)] == [
        ["g", "classic", "consumer", "Stable"],
        ["h", "", "", ""],
    ]
    assert asked == [(BROKER,), (BROKER,)]
    monkeypatch.setattr(groups, "list_groups", answering(found[1:], asked))
    assert cells(run("list").stdout)[1:] == [["h", "-", "-", "-"]]
    monkeypatch.setattr(groups, "list_groups", answering([], asked))
    assert (run("list").stdout, run("list", "--json").stdout) == ("no groups\n", "[]\n")


def member(name: str, **more: Any) -> GroupMemberView:
    """A member of a group."""
    base = {"instance_id": None, "client_id": f"c-{name}", "host": "/h", "epoch": None}
    return GroupMemberView(**{"member_id": name, "owned": frozenset(), **base, **more})


MEMBERS = (
    member(
        "a",
        instance_id="i",
        epoch=3,
        is_classic=False,
        owned=frozenset({("t", 0), ("t", 1)}),
        standbys=frozenset({("t", 2)}),
        pending=frozenset({("t", 3)}),
        revoking=frozenset({("t", 4)}),
    ),
    member("b", epoch=3, shares=120),
)
PARTITIONS = (
    PartitionView(topic="t", partition=0, committed=3, end=10, owner="a"),
    PartitionView(topic="t", partition=1, committed=8, end=10, owner="b"),
    PartitionView(topic="u", partition=0, committed=None, end=50, owner=None),
)
GROUP = GroupView(
    group_id="g",
    group_type="consumer",
    protocol_type="",
    state="Stable",
    assignor="",
    coordinator="h:9",
    epoch=5,
    target_epoch=4,
    members=MEMBERS,
    partitions=PARTITIONS,
)


def test_a_description_has_a_line_for_each_member_and_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group's lag counts only partitions with a committed offset."""
    asked: list[Any] = []
    monkeypatch.setattr(groups, "describe_group", answering(GROUP, asked))
    shown = cells(run("describe", "g").stdout)
    assert asked == [(BROKER, "g")]
    assert [" ".join(line) for line in shown] == [
        "group g: consumer -, Stable, 2 members, assignor -, at h:9",
        "group epoch 5, target assignment epoch 4",
        "member instance client host epoch owned standby pending revoking",
        "a i c-a /h 3 t 0-1 t 2 t 3 t 4",
        "b - c-b /h classic 120 bytes - - -",
        "topic partition committed end lag owner",
        "t 0 3 10 7 a",
        "t 1 8 10 2 b",
        "u 0 - 50 - -",
        "total lag 9, of 2 of 3 partitions",
    ]


def test_a_zero_is_shown_as_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lag, no bytes and the first epoch are known values."""
    told = {
        "members": (member("a", epoch=0, is_classic=False, shares=0),),
        "partitions": (
            PartitionView(topic="t", partition=0, committed=0, end=0, owner="a"),
            PartitionView(topic="t", partition=1, committed=4, end=10, owner="a"),
        ),
    }
    monkeypatch.setattr(groups, "describe_group", answering(GroupView(**vars(GROUP) | told), []))
    shown = [" ".join(line) for line in cells(run("describe", "g").stdout)]
    assert shown[3] == "a - c-a /h 0 0 bytes - - -"
    assert shown[5:] == ["t 0 0 0 0 a", "t 1 4 10 6 a", "total lag 6, of 2 of 2 partitions"]


def test_a_classic_group_has_no_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No member is marked as classic; without members the table is left out."""
    classic = GroupView(
        **{**vars(GROUP), "epoch": None, "members": (member("c"),), "partitions": ()}
    )
    monkeypatch.setattr(groups, "describe_group", answering(classic, []))
    shown = [" ".join(line) for line in cells(run("describe", "g").stdout)]
    assert shown[0].startswith("group g: ")
    assert shown[2:] == ["c - c-c /h - - - - -"]
    empty = GroupView(**{**vars(classic), "members": ()})
    monkeypatch.setattr(groups, "describe_group", answering(empty, []))
    assert len(cells(run("describe", "g").stdout)) == 1


def test_the_json_of_a_description_has_sorted_partitions_and_lags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lag is None for a partition without a committed offset."""
    monkeypatch.setattr(groups, "describe_group", answering(GROUP, []))
    found = json.loads(run("describe", "g", "--json").stdout)
    assert [row["lag"] for row in found["partitions"]] == [7, 2, None]
    assert found["members"][0]["owned"] == [["t", 0], ["t", 1]]
    assert (found["epoch"], found["target_epoch"]) == (5, 4)


def test_rolls_are_shown_with_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers, the protocol of the last round, and the advice."""
    asked: list[Any] = []
    workers = [Worker(member_id="m", client_id="c", host="/h", kind="stock")]
    found = Rolls(chosen="faust", workers=workers)
    monkeypatch.setattr(rolls_of, "rolls", answering(found, asked))
    lines = run("rolls", "g").stdout.splitlines()
    assert cells("\n".join(lines))[1] == ["m", "c", "/h", "stock"]
    assert lines[-1 - len(found.roll_steps) :] == ["the last round: faust", *found.roll_steps]
    told = json.loads(run("rolls", "g", "--json").stdout)
    assert (told["chosen"], told["advice"]) == ("faust", list(found.roll_steps))
    assert asked == [(BROKER, "g")] * 2


def test_a_member_that_is_not_in_the_group_is_told_from_other_refusals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each instance id has a line with the broker's error."""
    asked: list[Any] = []
    errors = {"a": "", "b": "UnknownMemberIdError", "c": "GroupAuthorizationFailedError"}
    monkeypatch.setattr(groups, "retire", answering(errors, asked))
    done = run("retire", "g", *(f"--instance-id={name}" for name in errors), code=1)
    assert done.stdout.splitlines() == [
        "a: removed",
        "b: not removed, the group has no member with this instance id: UnknownMemberIdError",
        "c: not removed, GroupAuthorizationFailedError",
    ]
    assert asked == [(BROKER, "g", ("a", "b", "c"))]
