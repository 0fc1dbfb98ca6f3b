"""The output of ``simulate``: distributions, the settings table, and the effect of one change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from faust_assigner.pipeline.console import Columns, cell, show_rows
from faust_assigner.pipeline.simulate.events import EventRow
from faust_assigner.pipeline.simulate.settings import ALL_FLEETS, STOPPED

#: The maximum number of recorded rebalances that are printed; report.json has all of them.
EVENTS_PRINTED = 20


def show_simulation(report: Mapping[str, Any], out: str) -> None:
    """Print each policy's p50/p90/p99 over all fleets, then the recommended settings."""
    options = report["options"]
    everywhere = [found for found in report["sim_summary"] if found["state"] == ALL_FLEETS]
    show_rows(
        f"{options['scenarios']} scenarios, seed {options['seed']}; p50 / p90 / p99",
        _DISTRIBUTIONS,
        everywhere,
    )
    print()
    show_rows(
        "Settings: the fewest standbys and switches whose figures are within 10% of the best. The figures "
        "are p90 with its 95% interval, from scenarios that did not choose the settings. The next columns "
        "show the best other policy under the same conditions, and predicted / recorded figures",
        _SETTINGS,
        report["sim_settings"],
    )
    for told in report["advice"]:
        old, new = told["recorded"], told["recommended"]
        print(
            f"\nGroup {told['group_id']}: {old['policy']}, standbys {old['standbys']} -> {new['policy']}, "
            f"standbys {new['standbys']}, over {told['weeks']} whole weeks "
            f"{_within(told['difference_s'], told['interval'])} s stopped per partition and week: "
            f"{told['verdict']}"
        )
    if report["events"]:
        print()
        _show_events(report["events"])
    print(f"\nWritten to {out}: sim_result, report.json")


def _show_events(events: Sequence[EventRow]) -> None:
    """Print predicted / recorded figures of the recorded rebalances whose figures differ most."""
    ordered = sorted(events, key=lambda row: (-_prediction_error(row), row["ts"]))[:EVENTS_PRINTED]
    exact = sum(_prediction_error(row) == 0 for row in events)
    show_rows(
        f"The recorded rebalances again, predicted / recorded: {exact} of {len(events)} with equal moves; "
        f"{'the largest differences' if len(events) > len(ordered) else 'all'}, with "
        f"{events[0]['policy']}, standbys {events[0]['standbys']}",
        _EVENTS,
        sorted(ordered, key=lambda row: (row["group_id"], row["ts"])),
    )


def _prediction_error(row: EventRow) -> int:
    """Return the difference between predicted and recorded moves, plus the difference in cold moves."""
    return sum(
        abs(row["predicted"][name] - row["recorded"][name]) for name in ("moved", "cold_moves")
    )


def show_what_if(report: Mapping[str, Any]) -> None:
    """Print the effect of one change with each number of standbys, and the load per rack after the change."""
    rows = report["what_if"]
    show_rows(
        f"Group {report['group_id']}, {report['members']} members, then {rows[0]['members']}",
        _WHAT_IF,
        rows,
    )
    print()
    racks = [(rack, partial(_per_rack, rack)) for rack in rows[0]["actives_per_rack"]]
    show_rows("Racks: actives / standbys", (("standbys", cell("standbys")), *racks), rows)


def _per_rack(rack: str, row: Mapping[str, Any]) -> str:
    return f"{row['actives_per_rack'][rack]} / {row['standbys_per_rack'][rack]}"


def _spread(metric: str, found: Mapping[str, Any]) -> str:
    """Format the percentiles of a metric: ``p50 / p90 / p99``."""
    digits = 2 if metric == "worst_load" else 0 if metric in ("moved", "cold_moves") else 1
    return " / ".join(
        f"{found[f'{metric}_p{percentile}']:.{digits}f}" for percentile in (50, 90, 99)
    )


def _within(value: float | None, interval: Sequence[float] | None, *, digits: int = 1) -> str:
    """Format a value with its interval: ``12.3 (11.0..14.1)``."""
    if value is None:
        return ""
    told = f"{value:.{digits}f}"
    return (
        told if interval is None else f"{told} ({interval[0]:.{digits}f}..{interval[1]:.{digits}f})"
    )


def _predicted(name: str, found: Mapping[str, Any]) -> str:
    """Format a figure as ``predicted / recorded``."""
    return f"{found['predicted'][name]} / {found['recorded'][name]}"


def _replayed(name: str, line: Mapping[str, Any]) -> str:
    """Format a figure of the recorded time as ``predicted / recorded``; empty without a ledger."""
    return _predicted(name, line["replay"]) if line.get("replay") else ""


_DISTRIBUTIONS: Columns = (
    ("policy", cell("policy")),
    ("standbys", cell("standbys")),
    ("tasks moved", partial(_spread, "moved")),
    ("of them cold", partial(_spread, "cold_moves")),
    ("s stopped/partition", partial(_spread, "unavailable_s_per_partition")),
    ("worst gap s", partial(_spread, "worst_gap_s")),
    ("worst load", partial(_spread, "worst_load")),
)
_SETTINGS: Columns = (
    ("state", cell("state")),
    ("racks", cell("racks")),
    ("scenarios", cell("scenarios")),
    ("policy", cell("policy")),
    ("standbys", cell("standbys")),
    ("s stopped/partition", lambda line: _within(line[STOPPED], line["intervals"][STOPPED])),
    (
        "worst load",
        lambda line: _within(line["worst_load_p90"], line["intervals"]["worst_load_p90"], digits=2),
    ),
    ("other policy", cell("instead_of")),
    ("its s stopped/partition", lambda line: _within(line[f"its_{STOPPED}"], line["its_interval"])),
    ("less it, paired", lambda line: _within(line["difference_s"], line["difference_interval"])),
    ("verdict", cell("verdict")),
    ("rebalances", partial(_replayed, "rebalances")),
    ("moved", partial(_replayed, "moved")),
    ("cold", partial(_replayed, "cold_moves")),
)
_EVENTS: Columns = (
    ("time", lambda row: str(row["ts"][:19].replace("T", " "))),
    ("group", cell("group_id")),
    ("trigger", cell("trigger")),
    ("rebalances", partial(_predicted, "rebalances")),
    ("moved", partial(_predicted, "moved")),
    ("cold", partial(_predicted, "cold_moves")),
)
_WHAT_IF: Columns = (
    ("standbys", cell("standbys")),
    ("tasks moved", cell("moves")),
    ("warm", cell("warm")),
    ("cold", cell("cold")),
    ("MB to restore", lambda row: f"{row['bytes_to_restore'] / 1e6:.1f}"),
    ("s stopped at most", cell("stopped_s", ".1f")),
    ("s until restored", cell("restored_s", ".1f")),
    ("peak lag", cell("peak_lag")),
    ("idle members", cell("idle_members")),
    ("pairs in one rack", cell("colocated_pairs")),
)
