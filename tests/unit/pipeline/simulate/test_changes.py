"""A change to a group as a whole row, and the report of a simulation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faust_assigner import Member
from faust_assigner.errors import ConfigError
from faust_assigner.ledger import Row
from faust_assigner.pipeline.console import show_weights
from faust_assigner.pipeline.ledgers.current import GroupState
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.simulate import console, job, output
from faust_assigner.pipeline.simulate import report as report_module
from faust_assigner.pipeline.simulate.console import show_simulation
from faust_assigner.pipeline.simulate.facts import facts_of
from faust_assigner.pipeline.simulate.recorded import UnknownGroup
from faust_assigner.pipeline.simulate.request import Request
from faust_assigner.pipeline.simulate.settings import summarise
from faust_assigner.pipeline.simulate.what_if import Change, Load, changed, load_of, what_if
from faust_assigner.pipeline.weights.rates import PartitionRate
from faust_assigner.simulation.fleet import Costs
from tests.unit.pipeline.simulate.test_console import ADVICE, LINE, event, report, summary
from tests.unit.pipeline.simulate.test_recordings import ROWS, START, sampled
from tests.unit.pipeline.simulate.test_settings import row as result

# -- changes --------------------------------------------------------------------------------------


def test_the_load_of_rates_has_a_value_for_each_place() -> None:
    """The load has arrivals per second, and records and bytes of the state."""
    rates = [
        PartitionRate("g", "in", 0, 2, 2_000.0, 10, 100, 1.0, 0, START, 9, 30.0, 4),
        PartitionRate("g", "log-changelog", 1, 2, 1_000.0, 5, 50, 1.0, 700, START, 90, 0.0, 0),
    ]
    assert load_of(rates) == Load(
        {("in", 0): 15.0, ("log-changelog", 1): 5.0},
        {("in", 0): 0.0, ("log-changelog", 1): 90.0},
        {("in", 0): 0.0, ("log-changelog", 1): 700.0},
    )


def test_the_whole_row_of_a_change() -> None:
    """Two racks and a member without a rack; of four tasks one moves cold and one warm."""
    topics = ["in", "log"]
    members = tuple(
        Member(
            name,
            topics,
            actives={"in": mine, "log": mine},
            standbys={"log": copies} if copies else {},
            generation=1,
            rack_id=rack,
        )
        for name, rack, mine, copies in (
            *(("a", "r1", [0, 1], []), ("b", None, [2], [3]), ("c", "r1", [3], [])),
        )
    )
    current = GroupState("g", "d", members, {"in": 4, "log": 4}, ("log",))
    load = Load(
        {("in", n): 10.0 * (n + 1) for n in range(4)},
        {("log", n): 100.0 * (n + 1) for n in range(4)},
        {("log", n): 1_000.0 * (n + 1) for n in range(4)},
    )
    costs = Costs(rebalance_pause_s=1.0, warm_takeover_s=2.0, replay_records_per_s=100.0)
    (row,) = what_if(current, Change(remove=("c",)), load, replicas=[0], costs=costs)
    assert row == {
        "standbys": 0,
        "members": 2,
        "moves": 1,
        "warm": 1,
        "cold": 0,
        "bytes_to_restore": 0,
        "stopped_s": 3.0,
        "restored_s": 0.0,
        "peak_lag": 120,
        "idle_members": 0,
        "actives_per_rack": {"(none)": 2, "r1": 2},
        "standbys_per_rack": {"(none)": 0, "r1": 0},
        "colocated_pairs": 0,
    }
    (row,) = what_if(current, Change(remove=("b",), add=1), load, replicas=[1], costs=costs)
    assert (row["moves"], row["cold"], row["members"], row["colocated_pairs"]) == (1, 1, 3, 4)
    assert row["actives_per_rack"] == {"r1": 4}
    assert row["standbys_per_rack"] == {"r1": 4}
    default = what_if(current, Change(), load, replicas=(2, 0))
    assert [each["standbys"] for each in default] == [2, 0]
    assert default[1]["stopped_s"] == pytest.approx(Costs().rebalance_pause_s + 1.0)


def test_members_are_removed_by_instance_or_member_id() -> None:
    """The error for an unknown name lists all names; new members share the topics."""
    members = [
        Member("id-1", ["t"], instance_id="w1", rack_id="r2"),
        Member("id-2", ["t"], rack_id="r1"),
        Member("id-3", ["t"], instance_id="w3", rack_id="r1"),
    ]
    left = changed(members, Change(remove=("w1", "id-3"), add=2))
    assert [(m.member_id, m.rack_id, m.topics) for m in left] == [
        ("id-2", "r1", ["t"]),
        ("new-1", "r1", ["t"]),
        ("new-2", "r1", ["t"]),
    ]
    with pytest.raises(ConfigError) as failure:
        changed(members, Change(remove=("zz", "id-1", "yy")))
    assert str(failure.value) == "no member is called 'yy'; there are: id-2, w1, w3"
    with pytest.raises(ConfigError, match="rack 'r9'; the racks are r1, r2"):
        changed(members, Change(lose_rack="r9"))
    with pytest.raises(ConfigError, match="rack 'r9'; no member has a rack"):
        changed([Member("id-1", ["t"])], Change(lose_rack="r9"))
    assert [m.member_id for m in changed(members, Change(lose_rack="r1"))] == ["id-1"]


# -- the report -----------------------------------------------------------------------------------


def test_the_whole_text_of_a_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    """There are two arms, a line, an advice and an event, with empty lines between the parts."""
    told = report(
        sim_summary=[summary("ours"), summary("stock", first=3.0), summary("x", state="large")],
        sim_settings=[LINE],
        advice=[ADVICE],
        events=[event(5, 2)],
    )
    show_simulation(told, "out")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "40 scenarios, seed 7; p50 / p90 / p99"
    assert [line.split()[0] for line in lines[2:4]] == ["ours", "stock"]
    assert lines[4] == ""
    assert lines[5].startswith("Settings: ")
    empty = [number for number, line in enumerate(lines) if not line]
    assert lines[empty[1] + 1].startswith("Group shop: ")
    assert lines[empty[2] + 1].startswith("The recorded rebalances again")
    assert lines[empty[3] + 1 :] == ["Written to out: sim_result, report.json"]


def test_the_group_of_a_change_is_the_named_one_or_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The load comes from the group's own samples."""
    rows = [*ROWS, sampled("in/0", 50, 7, 0, group_id="h")]
    for number, row in enumerate(rows):
        if row.table == "decision":
            rows[number] = Row("decision", {**row.values, "policy": "p"})
    monkeypatch.setattr(
        "faust_assigner.pipeline.ledgers.rows.read_here", lambda *_, **__: (rows, None)
    )
    request = Request(1, 2, "", ledgers=("l",), group_id="h")
    current, load = job._current(request)
    assert (current.group_id, current.decision_id) == ("h", "e2")
    assert list(load.rates) == [("in", 0)]
    current, load = job._current(replace(request, group_id="g"))
    assert (current.decision_id, len(load.rates)) == ("d3", 3)
    with pytest.raises(UnknownGroup, match=r"the ledger has \['g', 'h'\]"):
        job._current(replace(request, group_id=None))


def test_rows_and_reports_may_go_to_another_file_system(tmp_path: Path) -> None:
    """The former rows are replaced there too."""
    import fsspec

    fs = fsspec.filesystem("memory")
    fs.pipe_file("/sim/out/sim_result/part-00009.parquet", b"old")
    output.put_rows([result(1, "ours", 1, 2.0)], "memory://sim/out/")
    output.put_report({}, "memory://sim/out/", "report.json")
    found = sorted(fs.find("/sim/out"))
    assert found == ["/sim/out/report.json", "/sim/out/sim_result/part-00000.parquet"]
    output.put_rows([result(1, "ours", 1, 2.0)], f"{tmp_path}/a/b")
    output.put_report({"a": 1}, f"{tmp_path}/c/d", "report.json")
    assert (tmp_path / "a/b/sim_result/part-00000.parquet").exists()
    assert json.loads((tmp_path / "c/d/report.json").read_text()) == {"a": 1}


def test_a_run_without_spark_shows_its_stages_and_writes_both_files(tmp_path: Path) -> None:
    """The number of settings is policies times standbys."""
    shown = Progress()
    stages: list[str] = []
    shown.enter = stages.append  # type: ignore[method-assign]
    request = Request(2, 5, f"{tmp_path}/out/", ("ours",), (0, 1))
    found = job.simulate_here(request, shown)
    assert stages == ["playing 2 scenarios with each of 2 settings", "summarising the scenarios"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "report.json",
        "sim_result",
    ]
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert written == json.loads(json.dumps(found))
    assert [(each["standbys"], each["scenarios"]) for each in found["sim_summary"][:2]] == [
        (0, 2),
        (1, 2),
    ]
    assert (found["replay"], found["advice"], found["options"]["measured_costs"]) == ([], [], [])


@pytest.mark.parametrize("which", ["what if", "weights", "shadow"])
def test_the_heads_of_a_table_are_in_the_order_of_its_cells(
    monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """A value below another head would be read as the wrong figure."""
    shown: list[Any] = []
    monkeypatch.setattr(
        "faust_assigner.pipeline.console.show", lambda title, heads, rows: shown.append(heads)
    )
    if which == "what if":
        row = dict.fromkeys(("standbys", "members", "moves", "warm", "cold", "peak_lag"), 1)
        row |= dict.fromkeys(("bytes_to_restore", "stopped_s", "restored_s", "idle_members"), 2)
        racks: dict[str, Any] = {"actives_per_rack": {"r": 1}, "standbys_per_rack": {"r": 2}}
        told = {**row, "colocated_pairs": 3, **racks}
        console.show_what_if({"group_id": "g", "members": 1, "what_if": [told]})
        wanted = "standbys, tasks moved, warm, cold, MB to restore, s stopped at most, "
        wanted += "s until restored, peak lag, idle members, pairs in one rack"
    elif which == "weights":
        report_ = {"version": 1, "by": "cpu", "groups": [], "shadow": [], "quarantined": 0}
        show_weights({**report_, "stale_samples": False, "out": "w", "topic": None})
        wanted = "group, partitions, samples, lowest, highest, heaviest partition, "
        wanted += "confidence median, lowest, oldest, drift"
    else:
        report_ = {"version": 1, "by": "cpu", "groups": [], "quarantined": 0, "topic": None}
        scores = [{"group_id": "g", "ts": "2026", "counted_moves": 1, "weighted_moves": 1}]
        scores[0] |= dict.fromkeys(("before", "counted", "weighted", "ratio"), 1.0)
        show_weights({**report_, "stale_samples": False, "out": "w", "shadow": scores})
        wanted = "group, decision, heaviest now, counted, weighted, tasks moved counted, "
        wanted += "tasks moved weighted, weighted / counted"
    assert ", ".join(shown[which == "shadow"]) == wanted


def test_the_slowest_worker_decides_how_long_a_change_stops_the_group() -> None:
    """Two workers replay; racks are sorted and counted."""
    topics = ["in", "log"]
    members = tuple(
        Member(name, topics, actives={"in": n, "log": n}, generation=1, rack_id=rack)
        for name, rack, n in (("a", "r2", []), ("b", "r1", [0, 1]), ("c", "r3", []))
    )
    current = GroupState("g", "d", members, {"in": 2, "log": 2}, ("log",))
    load = Load({}, {("log", 0): 100.0, ("log", 1): 900.0}, {("log", 0): 1.0, ("log", 1): 8.0})
    costs = Costs(rebalance_pause_s=1.0, warm_takeover_s=2.0, replay_records_per_s=100.0)
    (row,) = what_if(current, Change(remove=("b",)), load, replicas=[0], costs=costs)
    assert (row["cold"], row["bytes_to_restore"]) == (2, 9)
    assert (row["stopped_s"], row["restored_s"]) == (12.0, 9.0)
    assert list(row["actives_per_rack"].items()) == [("r2", 1), ("r3", 1)]


def test_a_partition_that_two_members_claim_has_not_moved_to_either() -> None:
    """Both members are owners."""
    members = (
        Member("a", ["in"], actives={"in": [0, 1]}, generation=1),
        Member("b", ["in"], actives={"in": [1]}, generation=1),
    )
    current = GroupState("g", "d", members, {"in": 2}, ())
    (row,) = what_if(current, Change(), Load({}, {}, {}), replicas=[0])
    assert row["moves"] == 0


def test_a_new_partition_and_a_topic_without_state_are_no_cold_moves() -> None:
    """A first owner is no move; a task without state loses nothing."""
    members = tuple(
        Member(name, ["in"], actives={"in": numbers}, generation=1)
        for name, numbers in (("a", [0]), ("b", [1]), ("c", []))
    )
    current = GroupState("g", "d", members, {"in": 3}, ())
    nothing, gone = (
        what_if(current, change, Load({}, {}, {}), replicas=[1])[0]
        for change in (Change(), Change(remove=("b",)))
    )
    assert (nothing["moves"], nothing["cold"]) == (0, 0)
    assert (gone["moves"], gone["warm"], gone["cold"]) == (1, 1, 0)


def test_copies_on_members_without_a_rack_are_in_no_common_rack() -> None:
    """Their place is not known."""
    members = tuple(
        Member(name, ["in", "log"], actives={"in": [n], "log": [n]}, generation=1)
        for n, name in enumerate("ab")
    )
    current = GroupState("g", "d", members, {"in": 2, "log": 2}, ("log",))
    (row,) = what_if(current, Change(), Load({}, {}, {}), replicas=[1])
    assert (row["standbys_per_rack"], row["colocated_pairs"]) == ({"(none)": 2}, 0)


def test_a_topic_without_weight_moves_nothing() -> None:
    """Its owner has as many orders as before."""
    members = (
        Member("a", ["lead", "orders"], actives={"lead": [0], "orders": [0, 1]}, generation=1),
        Member("b", ["lead", "orders"], actives={"orders": [2]}, generation=1),
    )
    moves = [
        what_if(
            GroupState("g", "d", members, {"lead": 1, "orders": 3}, (), weightless),
            Change(),
            Load({}, {}, {}),
            replicas=[0],
        )[0]["moves"]
        for weightless in (("lead",), ())
    ]
    assert moves == [0, 1]


def test_a_report_of_a_ledger_has_its_replay_its_events_and_its_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each line has the advice's verdict and its own arm's score."""
    facts = facts_of(ROWS)
    asked: list[Any] = []

    def note(name: str, found: Any) -> Any:
        return lambda *given: asked.append((name, *given)) or found

    replay = [
        {"policy": policy, "standbys": count, "predicted": {"rebalances": 10 * count}}
        for policy, count in (("ours+static", 1), ("ours+static", 0), ("stock", 1))
    ]
    monkeypatch.setattr(report_module, "replayed", note("replayed", replay))
    monkeypatch.setattr(report_module, "event_rows", note("events", ["event"]))
    monkeypatch.setattr(
        report_module, "recommend_change", note("advice", [{"verdict": "keep: worse"}])
    )
    rows = [
        result(n, policy, count, 50.0 + 10 * count, racks=1 + n % 2)
        for n in range(4)
        for policy, count in (("ours+static", 1), ("ours+static", 0), ("stock", 1))
    ]
    policies = ("ours+static", "stock")
    request = Request(2, 5, "out", policies, (0, 1), ledgers=("l",), group_id="g")
    run, measured = job._run(request, facts)
    found = report_module.report_of(request, run, measured, lambda part: summarise(rows), facts)
    mine = facts.of_group("g")
    recorded = {"rebalances": 2, "moved": 3, "cold_moves": 1}
    assert asked == [
        ("replayed", run, 1),
        ("events", run, mine, "ours"),
        ("advice", run, mine, "ours", ("ours+static", 0)),
    ]
    assert found["replay"] == [{**each, "recorded": recorded} for each in replay]
    assert (found["events"], found["advice"]) == (["event"], [{"verdict": "keep: worse"}])
    lines = found["sim_settings"]
    assert len(lines) == 3
    for line in lines:
        assert (line["policy"], line["standbys"], line["verdict"]) == (
            "ours+static",
            0,
            "keep: worse",
        )
        assert line["replay"] == found["replay"][1]
    assert (found["options"]["shape"], found["options"]["ledgers"]) == (None, ["l"])
