"""``faust-assigner groups``: what shows only with several partitions, a first epoch or no error."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from faust_assigner.clients import groups
from faust_assigner.clients.group_views import ListedGroup, PartitionView
from tests.unit.cli.test_groups_command import GROUP, answering, cells, member, run


def test_the_partitions_of_a_member_are_sorted_in_the_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of partitions is a list of pairs."""
    places = [[topic, number] for topic in ("a", "b", "c") for number in (2, 10, 33)]
    several = frozenset((topic, number) for topic, number in places)
    told = member("a", owned=several, pending=several, revoking=several, standbys=several)
    found = replace(GROUP, members=(told,))
    monkeypatch.setattr(groups, "describe_group", answering(found, []))
    [shown] = json.loads(run("describe", "g", "--json").stdout)["members"]
    kinds = ("owned", "pending", "revoking", "standbys")
    assert [shown[kind] for kind in kinds] == [places] * 4


def test_a_retired_member_has_no_error_in_the_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """One refusal of several fails the command."""
    errors = {"a": "", "b": "UnknownMemberIdError"}
    monkeypatch.setattr(groups, "retire", answering(errors, []))
    names = [f"--instance-id={name}" for name in errors]
    shown = json.loads(run("retire", "g", *names, "--json", code=1).stdout)
    assert shown == {"a": None, "b": "UnknownMemberIdError"}
    monkeypatch.setattr(groups, "retire", answering({"a": ""}, []))
    assert json.loads(run("retire", "g", names[0], "--json").stdout) == {"a": None}


def test_a_classic_member_is_marked_in_a_consumer_group_of_the_first_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Numbers are at the right of their columns."""
    rows = (
        PartitionView(topic="t", partition=7, committed=9, end=5_010, owner="a"),
        PartitionView(topic="t", partition=10, committed=None, end=8, owner=None),
        PartitionView(topic="t", partition=11, committed=8_000, end=8_001, owner="a"),
        PartitionView(topic="t", partition=12, committed=3, end=None, owner="a"),
    )
    found = replace(GROUP, epoch=0, members=(member("a", epoch=0),), partitions=rows)
    monkeypatch.setattr(groups, "describe_group", answering(found, []))
    lines = [line.rstrip() for line in run("describe", "g").stdout.splitlines()]
    assert cells("\n".join(lines))[3][3:5] == ["/h", "classic"]
    head = next(number for number, line in enumerate(lines) if line.lstrip().startswith("topic"))
    shown = [line for line in lines[head:] if line and set(line.strip()) - {"─", " "}]
    assert shown == [
        "topic   partition   committed    end    lag   owner",
        "t               7           9   5010   5001   a",
        "t              10           -      8      -   -",
        "t              11        8000   8001      1   a",
        "t              12           3      -      -   a",
        "total lag 5002, of 2 of 4 partitions",
    ]


def test_names_with_brackets_and_colons_are_shown_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client chooses its names; in rich's markup ``[/b]`` ends a style, and ``:key:`` is a picture."""
    listed = [
        ListedGroup(group_id=name, group_type="", protocol_type="", state="Stable")
        for name in ("orders[test]", "a[/b]", "a:key:b")
    ]
    monkeypatch.setattr(groups, "list_groups", answering(listed, []))
    shown = [line.split()[0] for line in run("list").stdout.splitlines() if "Stable" in line]
    assert shown == ["orders[test]", "a[/b]", "a:key:b"]
