"""The effect of a change to a group, before the change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from faust_assigner import Member
from faust_assigner.cli import main
from faust_assigner.errors import ConfigError
from faust_assigner.ledger import encode
from faust_assigner.pipeline.ledgers.current import GroupState
from faust_assigner.pipeline.simulate.scenarios import Shape, generate
from faust_assigner.pipeline.simulate.what_if import Change, Load, changed, generated, what_if
from faust_assigner.simulation.fleet import Costs

COSTS = Costs(rebalance_pause_s=0.5, warm_takeover_s=1.0, replay_records_per_s=1_000.0)
#: 4 tasks of 10,000 records and 1 MB; 100 records arrive a second.
LOAD = Load(
    {("t", number): 100.0 for number in range(4)},
    {("c", number): 1e4 for number in range(4)},
    {("c", number): 1e6 for number in range(4)},
)


def group(standbys: bool = True) -> GroupState:
    """Return a and b in two racks: each owns two tasks and has the other's standbys."""
    members = tuple(
        Member(
            name,
            ["c", "t"],
            actives={"t": mine, "c": mine},
            standbys={"c": others} if standbys else {},
            generation=1,
            rack_id=f"rack-{name}",
        )
        for name, mine, others in (("a", [0, 1], [2, 3]), ("b", [2, 3], [0, 1]))
    )
    return GroupState("shop", "d", members, {"c": 4, "t": 4}, ("c",))


def one(change: Change, current: GroupState | None = None, replicas: int = 1) -> dict[str, Any]:
    """Return the row for a number of standbys."""
    (row,) = what_if(current or group(), change, LOAD, replicas=[replicas], costs=COSTS)
    return row


def test_losing_a_rack_with_standbys_elsewhere_is_warm() -> None:
    """Two tasks move to their standbys after a pause and a takeover, without a restore."""
    row = one(Change(lose_rack="rack-b"))
    assert (row["moves"], row["warm"], row["cold"], row["bytes_to_restore"]) == (2, 2, 0, 0)
    assert (row["stopped_s"], row["peak_lag"]) == (1.5, 150)
    assert row["actives_per_rack"] == {"rack-a": 4}


def test_without_standbys_the_replay_is_in_the_figures() -> None:
    """Two cold tasks replay 20,000 records at 1,000/s and 2 MB; 100/s wait meanwhile."""
    row = one(Change(remove=("b",)), group(standbys=False), replicas=0)
    assert (row["moves"], row["cold"], row["bytes_to_restore"]) == (2, 2, 2_000_000)
    assert row["stopped_s"] == pytest.approx(21.5)
    assert row["restored_s"] == pytest.approx(20.0)
    assert row["peak_lag"] == 2_150


def test_new_workers_stand_where_the_fewest_are() -> None:
    """Four workers are added over two racks; idle workers beyond the tasks are counted."""
    members = changed(group().members, Change(add=4))
    assert [member.rack_id for member in members[2:]] == ["rack-a", "rack-b", "rack-a", "rack-b"]
    assert one(Change(add=4))["idle_members"] == 2


def test_pairs_in_one_rack_are_counted() -> None:
    """With one rack and one standby, both copies of every task are in the rack."""
    assert one(Change(lose_rack="rack-b", add=1))["colocated_pairs"] == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Change(lose_rack="az-9"), "no member is in rack 'az-9'"),
        (Change(remove=("x",)), "'x'"),
        (Change(remove=("a", "b")), "no member would be left"),
    ],
)
def test_an_impossible_change_is_refused(change: Change, said: str) -> None:
    """The message names the fault."""
    with pytest.raises(ConfigError, match=said):
        changed(group().members, change)


def test_the_command_answers_without_spark_and_writes_when_asked(tmp_path: Path) -> None:
    """``simulate --add 2`` on a generated fleet prints a table and writes what_if.json in --out."""
    arguments = [
        "simulate",
        "--members",
        "4",
        "--partitions",
        "24",
        "--seed",
        "3",
        "--add",
        "2",
        "--out",
        str(tmp_path),
    ]
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == 0, shown.output
    assert "4 members, then 6" in shown.output
    report = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).output)
    assert report == json.loads((tmp_path / "what_if.json").read_text())
    assert [row["standbys"] for row in report["what_if"]] == [0, 1, 2]
    assert all(row["moves"] == row["warm"] + row["cold"] > 0 for row in report["what_if"])


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Two decisions of group ``shop``; the newer is the group above, with 100 records/s each."""
    at = 1.7e9
    lines = []
    for number, members in enumerate((["a"], ["a", "b"])):
        lines.append(
            encode(
                "decision",
                {
                    "group_id": "shop",
                    "decision_id": f"d{number}",
                    "ts": at + number,
                    "generation": number,
                    "trigger": "join",
                    "policy": "ours",
                    "config": {},
                    "solve_ms": 1.0,
                    "members": [
                        {
                            "member_id": name,
                            "rack": f"rack-{name}",
                            "capacity": 1.0,
                            "epoch": number,
                        }
                        for name in members
                    ],
                },
            )
        )
        for partition in range(4):
            owner, other = members[partition // 2 % len(members)], members[partition // 2 - 1]
            rows = [("t", "active", owner), ("c", "active", owner)]
            rows += [("c", "standby", other)] if other != owner else []
            lines += [
                encode(
                    "assignment",
                    {
                        "group_id": "shop",
                        "decision_id": f"d{number}",
                        "topic": topic,
                        "partition": partition,
                        "role": role,
                        "member_id": member,
                        "prev_member_id": None,
                        "moved": False,
                        "standby_hit": False,
                        "cold": False,
                    },
                )
                for topic, role, member in rows
            ]
    lines += [
        encode(
            "partition_sample",
            {
                "group_id": "shop",
                "ts": at + second,
                "topic": topic,
                "partition": partition,
                "end_offset": 1,
                "committed_offset": 1,
                "bytes_in": 600_000,
                "records_in": 6_000,
                "cpu_ms": 1.0,
                "state_bytes": 1_000_000 if topic == "c" else 0,
            },
        )
        for second in (0, 60)
        for topic in ("t", "c")
        for partition in range(4)
    ]
    (tmp_path / "shop.jsonl").write_bytes(b"".join(reversed(lines)))
    return tmp_path


def test_the_newest_decision_of_a_ledger_is_where_the_change_starts(ledger: Path) -> None:
    """The order of lines does not matter; loads come from the samples."""
    done = CliRunner().invoke(
        main,
        ["simulate", "--ledger", str(ledger), "--lose-rack", "rack-b", "--replicas", "1", "--json"],
    )
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    (row,) = report["what_if"]
    assert (report["group_id"], report["decision_id"], report["members"]) == ("shop", "d1", 2)
    assert (row["moves"], row["cold"], row["peak_lag"]) == (2, 0, 170)  # 1.7 s of 100 records/s


def test_a_group_the_ledger_does_not_know_is_said(ledger: Path) -> None:
    """The exit code is 2, and the error lists the groups."""
    done = CliRunner().invoke(
        main, ["simulate", "--ledger", str(ledger), "--add", "1", "--group", "bank"]
    )
    assert done.exit_code == 2
    assert "one group expected" in done.output


def test_a_generated_fleet_runs_with_the_scenarios_own_load() -> None:
    """Each task has its rate and records; only workers of the start count."""
    shape = Shape(groups=(3, 3), members=(4, 4))
    scenario = generate(shape, 0, 7)
    scenario = replace(scenario, start=scenario.start[:3])
    current, load = generated(scenario, 1)
    assert [member.member_id for member in current.members] == sorted(scenario.start)
    assert {member.generation for member in current.members} == {1}
    flat = [(group, number) for group in scenario.groups for number in range(group.partitions)]
    rates = {(group.topic, n): rate for (group, n), rate in zip(flat, scenario.rates, strict=True)}
    records = {
        (group.changelog, n): kept
        for (group, n), kept in zip(flat, scenario.records, strict=True)
        if group.changelog is not None
    }
    assert len(set(rates.values())) == len(rates)
    assert (load.rates, load.records) == (rates, records)
    assert load.bytes_kept == {key: kept * 100.0 for key, kept in records.items()}
    owned = [(t, n) for one in current.members for t, mine in one.actives.items() for n in mine]
    assert sorted(owned) == sorted(
        (t, n) for t, count in scenario.partitions.items() for n in range(count)
    )
    assert sum(len(mine) for one in current.members for mine in one.standbys.values()) == len(
        records
    )
