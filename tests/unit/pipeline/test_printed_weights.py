"""The complete text of learned weights, and the edges of the other printed tables."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.pipeline.console import (
    ROWS_PRINTED,
    show_findings,
    show_history,
    show_verdicts,
    show_weights,
)
from faust_assigner.pipeline.doctor import OK, WARNING, Finding
from faust_assigner.pipeline.history.report import REPORTED, About, Report
from faust_assigner.snapshots.manifest import Manifest
from faust_assigner.snapshots.verification import Verdict

GROUP = {
    "group_id": "shop",
    "partitions": 12,
    "samples": 300,
    "lowest": 0.251,
    "highest": 3.996,
    "heaviest_partition": "orders/3",
    "confidence_median": 0.914,
    "confidence_lowest": 0.5,
    "oldest_s": 5_400.0,
    "drift": None,
}
SCORE = {
    "group_id": "cart",
    "decision_id": "d",
    "ts": "2026-11-21T12:34:56.789+00:00",
    "before": 1.9,
    "counted": 1.5,
    "weighted": 1.1,
    "counted_moves": 2,
    "weighted_moves": 31,
    "ratio": 0.734,
}
REPORT: dict[str, Any] = {
    "version": 7,
    "by": "cpu",
    "groups": [GROUP, {**GROUP, "group_id": "cart", "drift": 0.0, "samples": 9}],
    "shadow": [],
    "quarantined": 0,
    "stale_samples": False,
    "newest_sample": "2026-11-21T11:00:00+00:00",
    "out": "w.json",
    "topic": None,
}
WEIGHTS = [
    "Weights version 7, by cpu",
    "group  partitions  samples  lowest  highest  heaviest partition  confidence median  lowest  oldest"
    "  drift",
    "shop   12          300      0.25    4.00     orders/3            91%                50%     1.5 h   -",
    "cart   12          9        0.25    4.00     orders/3            91%                50%     1.5 h   0%",
]
SHADOW = [
    "",
    "Shadow: the newest decisions planned without and with weights (loads relative to the mean)",
    "group  decision          heaviest now  counted  weighted  tasks moved counted  tasks moved weighted"
    "  weighted / counted",
    "cart   2026-11-21T12:34  1.90          1.50     1.10      2                    31                  "
    "  0.73",
]


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({}, ["", "Written to w.json"]),
        ({"topic": "weights"}, ["", "Written to w.json and topic weights"]),
        ({"out": None, "topic": "weights"}, ["", "Written to topic weights"]),
        (
            {"shadow": [SCORE], "quarantined": 3, "stale_samples": True},
            [
                *SHADOW,
                "",
                "3 lines refused; `faust-assigner history` says why",
                "",
                "The newest sample is from 2026-11-21T11:00:00+00:00: are samples still written?",
                "",
                "Written to w.json",
            ],
        ),
    ],
    ids=["a file", "both", "a topic", "all parts"],
)
def test_weights_are_printed_with_their_groups_and_targets(
    capsys: pytest.CaptureFixture[str], more: dict[str, Any], wanted: list[str]
) -> None:
    """Parts without a row are left out; a drift of zero is not an unknown drift."""
    show_weights({**REPORT, **more})
    assert capsys.readouterr().out.splitlines() == [*WEIGHTS, *wanted]


def test_a_table_of_exactly_all_printed_rows_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """A value of zero is printed, and a table without rows has no empty line."""
    row = {"group_id": "g", "policy": "p", "max_spread": 0.0, "mean_spread": 0, "idle_members": 0}
    rows = [{**row, "dt": f"day {number:02}"} for number in range(ROWS_PRINTED)]
    tables: dict[str, Any] = {name: [] for name in REPORTED}
    show_history(Report({**tables, "balance": rows}, about=About(version="1")), "out")
    told = capsys.readouterr().out.splitlines()
    at = told.index("Balance, in topic partitions")
    assert told[at - 1 :] == [
        "",
        "Balance, in topic partitions",
        "group_id  dt      policy  max_spread  mean_spread  idle_members",
        *(
            f"g         day {number:02}  p       0.000       0            0"
            for number in range(ROWS_PRINTED)
        ),
        "",
        "Written to out: report.html, report.json, and a Parquet folder for each table",
    ]
    assert told[at - 2].split()[:1] != [""]


def test_only_findings_with_a_fix_are_listed_again(capsys: pytest.CaptureFixture[str]) -> None:
    """A good finding may have advice, and a warning may have none."""
    show_findings([Finding("java", OK, "17", "use 21"), Finding("pandas", WARNING, "old")])
    told = capsys.readouterr().out.splitlines()
    assert told[-4:] == ["", "What to do", "check  fix", "java   use 21"]


def test_a_snapshot_with_a_problem_may_be_visible(capsys: pytest.CaptureFixture[str]) -> None:
    """Readers find it, so it is reported as visible."""
    show_verdicts([Verdict("a", Manifest.__new__(Manifest), "bytes differ")], as_json=True)
    told = capsys.readouterr().out
    assert told == (
        '[\n {\n  "snapshot": "a",\n  "visible": true,\n  "problem": "bytes differ"\n }\n]\n'
    )
