"""The printed tables of ``simulate`` and ``weights``."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.pipeline.console import show_weights
from faust_assigner.pipeline.simulate.console import (
    EVENTS_PRINTED,
    _within,
    show_simulation,
    show_what_if,
)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The printed tables: the title, and each row by its heads."""
    found: list[dict[str, Any]] = []

    def show(title: str, heads: Any, rows: Any) -> None:
        lists = [list(zip(heads, row, strict=True)) for row in rows]
        found.append({"title": title, "rows": lists})

    monkeypatch.setattr("faust_assigner.pipeline.console.show", show)
    return found


def cells(row: list[tuple[str, str]]) -> dict[str, str]:
    """Return a row by its heads; a repeated head counts once."""
    return dict(row)


def summary(policy: str, state: str = "all", first: float = 1.0) -> dict[str, Any]:
    """Return the distributions of an arm with distinct figures."""
    metrics = (
        *("moved", "cold_moves", "unavailable_s_per_partition", "worst_gap_s", "worst_load"),
    )
    found: dict[str, Any] = {"policy": policy, "standbys": 2, "state": state}
    for n, metric in enumerate(metrics):
        for at, percentile in enumerate((50, 90, 99)):
            found[f"{metric}_p{percentile}"] = first + n + at / 4
    return found


LINE: dict[str, Any] = {
    "state": "large",
    "racks": "several",
    "scenarios": 11,
    "policy": "ours",
    "standbys": 1,
    "unavailable_s_per_partition_p90": 12.34,
    "worst_load_p90": 1.567,
    "intervals": {"unavailable_s_per_partition_p90": (11.0, 14.1), "worst_load_p90": (1.5, 1.61)},
    "instead_of": "stock, standbys 1",
    "its_unavailable_s_per_partition_p90": 20.0,
    "its_interval": (19.0, 21.0),
    "difference_s": -7.66,
    "difference_interval": (-9.0, -6.0),
    "verdict": "change",
    "replay": {
        "predicted": {"rebalances": 3, "moved": 5, "cold_moves": 1},
        "recorded": {"rebalances": 4, "moved": 6, "cold_moves": 2},
    },
}
ADVICE = {
    "group_id": "shop",
    "weeks": 3,
    "recorded": {"policy": "stock", "standbys": 0},
    "recommended": {"policy": "ours", "standbys": 1},
    "difference_s": -2.5,
    "interval": [-3.0, -2.0],
    "verdict": "change",
}


def event(number: int, predicted: int, group: str = "g", cold: int = 0) -> dict[str, Any]:
    """Return a recorded rebalance with two moved tasks."""
    return {
        "ts": f"2026-11-21T03:{number:02d}:07.500+00:00",
        "group_id": group,
        "trigger": "join",
        "policy": "ours",
        "standbys": 1,
        "predicted": {"rebalances": 1, "moved": predicted, "cold_moves": cold},
        "recorded": {"rebalances": 1, "moved": 2, "cold_moves": 0},
    }


def report(**more: Any) -> dict[str, Any]:
    """Return the report of a simulation."""
    base = {
        "options": {"scenarios": 40, "seed": 7},
        "sim_summary": [summary("ours"), summary("ours", state="large", first=50.0)],
        "sim_settings": [LINE],
        "advice": [],
        "events": [],
    }
    return {**base, **more}


def test_the_distributions_are_those_over_all_fleets(
    shown: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Tasks are whole numbers, loads have two digits, and the last line names the folder."""
    show_simulation(report(), "out")
    table = shown[0]
    assert table["title"] == "40 scenarios, seed 7; p50 / p90 / p99"
    assert [cells(row) for row in table["rows"]] == [
        {
            "policy": "ours",
            "standbys": "2",
            "tasks moved": "1 / 1 / 2",
            "of them cold": "2 / 2 / 2",
            "s stopped/partition": "3.0 / 3.2 / 3.5",
            "worst gap s": "4.0 / 4.2 / 4.5",
            "worst load": "5.00 / 5.25 / 5.50",
        }
    ]
    assert capsys.readouterr().out.splitlines()[-1] == "Written to out: sim_result, report.json"


def test_recommended_settings_stand_beside_the_other_policy_and_the_record(
    shown: list[dict[str, Any]],
) -> None:
    """Each value has its own interval; a line without a rival or a record has empty cells."""
    show_simulation(report(), "out")
    (row,) = shown[1]["rows"]
    assert cells(row) == {
        "state": "large",
        "racks": "several",
        "scenarios": "11",
        "policy": "ours",
        "standbys": "1",
        "s stopped/partition": "12.3 (11.0..14.1)",
        "worst load": "1.57 (1.50..1.61)",
        "other policy": "stock, standbys 1",
        "its s stopped/partition": "20.0 (19.0..21.0)",
        "less it, paired": "-7.7 (-9.0..-6.0)",
        "verdict": "change",
        "rebalances": "3 / 4",
        "moved": "5 / 6",
        "cold": "1 / 2",
    }
    alone = {
        **LINE,
        "instead_of": "",
        "its_unavailable_s_per_partition_p90": None,
        "its_interval": None,
        "difference_s": 0.0,
        "difference_interval": None,
        "replay": None,
    }
    show_simulation(report(sim_settings=[alone]), "out")
    found = cells(shown[3]["rows"][0])
    assert [found[name] for name in ("its s stopped/partition", "less it, paired", "moved")] == [
        "",
        "0.0",
        "",
    ]


@pytest.mark.parametrize(
    ("value", "interval", "shown"),
    [
        (0.0, (-1.25, 2.5), "0.00 (-1.25..2.50)"),
        (1.0, (0.0, 0.0), "1.00 (0.00..0.00)"),
        (0.0, None, "0.00"),
        (None, (1.0, 2.0), ""),
    ],
)
def test_a_value_of_zero_has_its_interval(
    value: float | None, interval: tuple[float, float] | None, shown: str
) -> None:
    """Only an unknown value is an empty cell."""
    assert _within(value, interval, digits=2) == shown


def test_the_advice_names_both_settings_of_each_group(
    shown: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Recorded settings come before recommended ones; an unknown difference is left out."""
    unknown = {**ADVICE, "group_id": "bank", "difference_s": None, "interval": None}
    show_simulation(report(advice=[ADVICE, unknown]), "out")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Group")]
    assert lines == [
        "Group shop: stock, standbys 0 -> ours, standbys 1, over 3 whole weeks "
        "-2.5 (-3.0..-2.0) s stopped per partition and week: change",
        "Group bank: stock, standbys 0 -> ours, standbys 1, over 3 whole weeks "
        " s stopped per partition and week: change",
    ]


def test_the_recorded_rebalances_that_differ_most_are_printed_by_group_and_time(
    shown: list[dict[str, Any]],
) -> None:
    """Warm and cold differences count; the title counts equal rebalances and has the first one's settings."""
    events = [event(n, 2) for n in range(EVENTS_PRINTED)]
    events += [event(40, 2, group="a", cold=1), {**event(41, 0), "policy": "other", "standbys": 2}]
    show_simulation(report(events=events), "out")
    table = shown[2]
    assert f": {EVENTS_PRINTED} of {EVENTS_PRINTED + 2} with equal moves" in table["title"]
    assert "the largest differences, with ours, standbys 1" in table["title"]
    rows = [cells(row) for row in table["rows"]]
    assert len(rows) == EVENTS_PRINTED
    assert (rows[0]["group"], rows[0]["cold"]) == ("a", "1 / 0")
    assert [row["time"][14:16] for row in rows[1:]] == [
        *(f"{n:02d}" for n in range(EVENTS_PRINTED - 2)),
        "41",
    ]
    assert rows[-1] == {
        "time": "2026-11-21 03:41:07",
        "group": "g",
        "trigger": "join",
        "rebalances": "1 / 1",
        "moved": "0 / 2",
        "cold": "0 / 0",
    }
    show_simulation(report(events=events[:1]), "out")
    assert "1 of 1 with equal moves; all, with" in shown[-1]["title"]


def test_the_effect_of_a_change_is_shown_for_each_number_of_standbys(
    shown: list[dict[str, Any]],
) -> None:
    """Bytes are in MB; the racks have actives, then standbys."""
    row = {
        "standbys": 1,
        "members": 5,
        "moves": 7,
        "warm": 4,
        "cold": 3,
        "bytes_to_restore": 2_500_000,
        "stopped_s": 1.54,
        "restored_s": 20.06,
        "peak_lag": 170,
        "idle_members": 2,
        "colocated_pairs": 6,
        "actives_per_rack": {"r1": 8, "r2": 9},
        "standbys_per_rack": {"r1": 10, "r2": 11},
    }
    show_what_if({"group_id": "g", "members": 4, "what_if": [row, {**row, "standbys": 2}]})
    first, second = shown
    assert first["title"] == "Group g, 4 members, then 5"
    assert [value for _, value in first["rows"][0]] == [
        *("1", "7", "4", "3", "2.5", "1.5", "20.1", "170", "2", "6")
    ]
    assert [cells(one) for one in second["rows"]] == [
        {"standbys": "1", "r1": "8 / 10", "r2": "9 / 11"},
        {"standbys": "2", "r1": "8 / 10", "r2": "9 / 11"},
    ]


GROUP = {
    "group_id": "shop",
    "partitions": 12,
    "samples": 300,
    "lowest": 0.25,
    "highest": 4.0,
    "heaviest_partition": "orders/3",
    "confidence_median": 0.914,
    "confidence_lowest": 0.5,
    "oldest_s": 5_400.0,
    "drift": None,
}


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        ({}, ["Written to w"]),
        ({"topic": "t"}, ["Written to w and topic t"]),
        ({"out": None, "topic": "t"}, ["Written to topic t"]),
        (
            {"quarantined": 3},
            ["3 lines refused; `faust-assigner history` says why", "Written to w"],
        ),
        (
            {"stale_samples": True, "newest_sample": "2026-11-20"},
            ["The newest sample is from 2026-11-20: are samples still written?", "Written to w"],
        ),
    ],
)
def test_learned_weights_are_shown_with_their_places_and_their_doubts(
    shown: list[dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    more: dict[str, Any],
    lines: list[str],
) -> None:
    """Ages are in hours, shares in percent; a first version has no drift."""
    base = {
        "version": 7,
        "by": "cpu",
        "groups": [GROUP, {**GROUP, "drift": 0.125}],
        "shadow": [],
        "quarantined": 0,
        "stale_samples": False,
        "out": "w",
        "topic": None,
    }
    show_weights({**base, **more})
    (table,) = shown
    assert table["title"] == "Weights version 7, by cpu"
    assert [[value for _, value in row] for row in table["rows"]] == [
        ["shop", "12", "300", "0.25", "4.00", "orders/3", "91%", "50%", "1.5 h", drift]
        for drift in ("-", "12%")
    ]
    assert [line for line in capsys.readouterr().out.splitlines() if line] == lines


def test_each_figure_of_a_shadow_score_stands_below_its_head(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A reader who confuses the two loads would switch weights off."""
    score = {
        "group_id": "shop",
        "ts": "2026-11-21T12:00:00+00:00",
        "before": 1.9,
        "counted": 1.5,
        "weighted": 1.1,
        "counted_moves": 2,
        "weighted_moves": 3,
        "ratio": 0.73,
    }
    report = {"version": 7, "by": "records", "groups": [], "shadow": [score], "quarantined": 0}
    show_weights({**report, "stale_samples": False, "out": "weights", "topic": None})
    lines = capsys.readouterr().out.splitlines()
    head = next(line for line in lines if line.startswith("group") and "counted" in line)
    row = next(line for line in lines if line.startswith("shop"))
    shown = {
        name: row[head.index(name) :].split()[0]
        for name in ("heaviest now", "counted ", "weighted ", "tasks moved counted")
    }
    assert list(shown.values()) == ["1.90", "1.50", "1.10", "2"]
    assert row.split()[-2:] == ["3", "0.73"]
