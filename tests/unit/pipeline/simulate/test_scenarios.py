"""Scenarios: generated from a seed, or recorded in a ledger and varied."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from faust_assigner.cli import main
from faust_assigner.ledger import encode
from faust_assigner.pipeline.ledgers.rows import Refused, accepted_rows
from faust_assigner.pipeline.simulate.facts import facts_of
from faust_assigner.pipeline.simulate.recorded import NothingRecorded, week
from faust_assigner.pipeline.simulate.scenarios import Shape, generate, scenario_seed, zipf_shares
from faust_assigner.simulation.fleet import Event, Kind

MONDAY = dt.datetime(2026, 11, 16, 8, 0, tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize(("groups", "stateless"), [(1, 0), (2, 1), (3, 1)])
def test_one_group_of_several_has_no_state(groups: int, stateless: int) -> None:
    """A sole group always has state."""
    for number in range(20):
        shape = Shape(groups=(groups, groups))
        scenario = generate(shape, number, scenario_seed(9, number))
        assert len(scenario.groups) == groups
        assert sum(group.changelog is None for group in scenario.groups) == stateless


@pytest.mark.parametrize("scenario_id", range(40))
def test_a_generated_scenario_keeps_to_its_shape(scenario_id: int) -> None:
    """Values are in range, events ascend in time, and removed workers have no events."""
    scenario = generate(Shape(), scenario_id, scenario_seed(9, scenario_id))

    assert 3 <= len(scenario.start) <= 6
    assert 12 <= scenario.tasks <= 36
    assert (
        len(scenario.rates)
        == len(scenario.records)
        == len(scenario.learned_weights)
        == scenario.tasks
    )
    assert (scenario.records[~scenario.stateful] == 0).all()
    assert [event.at_s for event in scenario.events] == sorted(
        event.at_s for event in scenario.events
    )
    alive = set(scenario.start)
    for event in scenario.events:
        assert (event.member_id in alive) == (event.kind is not Kind.JOIN), event
        if event.kind is Kind.JOIN:
            alive.add(event.member_id)
        elif event.kind in (Kind.LEAVE, Kind.CRASH):
            alive.remove(event.member_id)
    assert alive


def test_all_kinds_of_incident_are_generated() -> None:
    """200 scenarios have every kind of event and several racks."""
    scenarios = [generate(Shape(), number, scenario_seed(1, number)) for number in range(200)]
    kinds = Counter(event.kind for scenario in scenarios for event in scenario.events)
    assert set(kinds) == set(Kind)
    assert {len({worker.rack_id for worker in scenario.workers}) for scenario in scenarios} >= {
        1,
        3,
    }


def test_the_same_seed_gives_the_same_scenario_in_another_process() -> None:
    """A new interpreter draws the same numbers, without hash order or global randomness."""
    program = (
        "from faust_assigner.pipeline.simulate.scenarios import *; import json;"
        "s = generate(Shape(), 7, scenario_seed(3, 7));"
        "print(json.dumps([s.rates.tolist(), s.records.tolist(), [repr(e) for e in s.events]]))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    here = generate(Shape(), 7, scenario_seed(3, 7))
    assert seen == {
        json.dumps(
            [here.rates.tolist(), here.records.tolist(), [repr(event) for event in here.events]]
        )
        + "\n"
    }


def test_zipf_shares_follow_the_law() -> None:
    """With exponent 1 the heaviest of four has 12/25; with 0 all are equal."""
    assert zipf_shares(4, 1.0, np.array([2, 0, 1, 3]))[2] == pytest.approx(12 / 25)
    assert zipf_shares(4, 0.0, np.arange(4)) == pytest.approx([0.25] * 4)


def decision(number: int, at_s: float, trigger: str, *members: str) -> bytes:
    """Return a decision of group ``shop`` at ``seconds`` into the week."""
    return encode(
        "decision",
        {
            "group_id": "shop",
            "decision_id": f"d{number}",
            "ts": MONDAY + at_s,
            "generation": number,
            "trigger": trigger,
            "policy": "ours",
            "config": {"weightless": "lead"},
            "solve_ms": 1.0,
            "members": [
                {"member_id": name, "rack": None, "capacity": 1.0, "epoch": number}
                for name in members
            ],
        },
    )


def placement(topic: str, partition: int, role: str, member: str) -> bytes:
    """Return a placement of the first decision."""
    return encode(
        "assignment",
        {
            "group_id": "shop",
            "decision_id": "d0",
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


def sample(topic: str, partition: int, at_s: float, records: int, end_offset: int = 0) -> bytes:
    """Return a sample with 50 bytes a record, and the end offset of a changelog."""
    return encode(
        "partition_sample",
        {
            "group_id": "shop",
            "ts": MONDAY + at_s,
            "topic": topic,
            "partition": partition,
            "end_offset": end_offset,
            "committed_offset": 1,
            "bytes_in": records * 50,
            "records_in": records,
            "cpu_ms": 0.0,
            "state_bytes": 77 * end_offset,
        },
    )


@pytest.fixture
def recorded_week(tmp_path: Path) -> Path:
    """Topics of four and one partitions, a weightless topic, worker events and a bad line."""
    lines = [decision(0, 0, "first join", "a", "b")]
    lines += [placement("orders", number, "active", "ab"[number % 2]) for number in range(4)]
    lines += [
        placement("shop-totals-changelog", number, role, "ab"[(number + (role == "standby")) % 2])
        for number in range(4)
        for role in ("active", "standby")
    ]
    lines += [placement("events", 0, "active", "a"), placement("lead", 0, "active", "b")]
    lines += [decision(1, 100, "member left", "a"), decision(2, 110, "member joined", "a", "b2")]
    lines += [decision(3, 500, "session expired", "b2"), decision(4, 9_000, "join", "b2", "c")]
    lines += [sample("orders", 0, at, 6_000) for at in (60, 120, 180)]
    lines += [sample("orders", 1, at, 600) for at in (60, 120, 180)]
    lines += [sample("shop-totals-changelog", 0, 60, 0, 7_500)]
    (tmp_path / "ledger.jsonl").write_bytes(b"".join(lines) + b"no json\n" + lines[0])
    return tmp_path


def test_a_recorded_week_is_read_as_it_happened(recorded_week: Path) -> None:
    """A return within minutes is a restart, an expired session a crash, a new member a join."""
    refused = Refused()
    scenario = week(facts_of(accepted_rows([str(recorded_week)], refused))).scenario(0, 17)

    assert refused.lines == 1
    assert (scenario.group_id, scenario.dt, scenario.start) == ("shop", "2026-11-16", ("a", "b"))
    assert scenario.events == (
        Event(100.0, Kind.RESTART, "b", 10.0),
        Event(500.0, Kind.CRASH, "a"),
        Event(9_000.0, Kind.JOIN, "c"),
    )
    assert [(group.topic, group.partitions, group.changelog) for group in scenario.groups] == [
        ("events", 1, None),
        ("orders", 4, "shop-totals-changelog"),
    ]
    assert scenario.rates[1:3].tolist() == [100.0, 10.0]
    assert scenario.records.tolist() == [0.0, 7_500.0, 10_000.0, 10_000.0, 10_000.0]


def test_variations_of_a_week_keep_its_incidents_and_change_their_victims(
    recorded_week: Path,
) -> None:
    """The kinds and their order stay; the crashed workers and the times vary."""
    source = week(facts_of(accepted_rows([str(recorded_week)])))
    variations = [source.scenario(number, scenario_seed(1, number)) for number in range(1, 30)]

    for varied in variations:
        assert [event.kind for event in varied.events] == [Kind.RESTART, Kind.CRASH, Kind.JOIN]
        assert sorted(varied.rates) == sorted(source.scenario(0, 0).rates)
    assert {varied.events[1].member_id for varied in variations} == {"a", "b"}
    assert len({varied.events[1].at_s for varied in variations}) == len(variations)


def test_a_ledger_without_decisions_is_refused_by_name(tmp_path: Path) -> None:
    """An empty ledger is an error, not a simulation."""
    (tmp_path / "empty.jsonl").write_bytes(sample("orders", 0, 60, 5))
    with pytest.raises(NothingRecorded, match="no decision in the ledger"):
        week(facts_of(accepted_rows([str(tmp_path)])))


@pytest.mark.slow
def test_what_the_replay_predicts_stands_beside_what_was_recorded(
    recorded_week: Path, tmp_path: Path
) -> None:
    """Both are shown for each arm, with each recommendation, and on the terminal."""
    out = tmp_path / "out"
    asked = ["--ledger", str(recorded_week), "--scenarios", "24", "--replicas", "0,1"]
    asked += ["--policies", "ours,ours+eager", "--no-spark", "--jobs", "1", "--out", str(out)]
    done = CliRunner().invoke(main, ["simulate", *asked])
    assert done.exit_code == 0, done.output
    report = json.loads((out / "report.json").read_text())
    assert {(each["policy"], each["standbys"]) for each in report["replay"]} == {
        (policy, count) for policy in ("ours", "ours+eager") for count in (0, 1)
    }
    recorded = {"rebalances": 4, "moved": 0, "cold_moves": 0}
    assert all(each["recorded"] == recorded for each in report["replay"])
    for line in report["sim_settings"]:
        assert line["replay"] in report["replay"]
        predicted = line["replay"]["predicted"]["rebalances"]
        assert f"{predicted} / 4" in done.output
        assert line["chosen_at"] is not None
        # Less than a week is recorded: variations of this week recommend no change.
        assert line["verdict"] == "keep: the recorded settings are the recommended settings"
        assert line["scenarios"] == 11  # the half of 23 variations used for judging
