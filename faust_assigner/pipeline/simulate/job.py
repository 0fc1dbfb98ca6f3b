"""The job behind ``faust-assigner simulate``: simulate scenarios, write ``sim_result`` and a report.

    OUT/sim_result/*.parquet   one row per scenario, policy and number of standbys
    OUT/report.json            options, sim_summary (distributions), sim_settings (recommendations), replay
                               and events (predicted and recorded figures, in total and per rebalance)
    OUT/what_if.json           the only file if the effect of one change to one group is requested

Without pyarrow (and without Spark) ``sim_result`` is one ``part-00000.jsonl``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from faust_assigner.pipeline.ledgers.current import GroupState, current_here
from faust_assigner.pipeline.ledgers.refusals import Refused
from faust_assigner.pipeline.one_writer import only_writer
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.simulate.facts import Facts, facts_of
from faust_assigner.pipeline.simulate.measured import calibrated
from faust_assigner.pipeline.simulate.output import TABLE, put_report, put_rows
from faust_assigner.pipeline.simulate.policies import arms
from faust_assigner.pipeline.simulate.recorded import UnknownGroup, week
from faust_assigner.pipeline.simulate.report import Summaries, plain, report_of
from faust_assigner.pipeline.simulate.request import Request
from faust_assigner.pipeline.simulate.run import (
    Run,
    Source,
    play_here,
    play_on_spark,
    rows_of_split,
    summarise_on_spark,
)
from faust_assigner.pipeline.simulate.scenarios import scenario_seed
from faust_assigner.pipeline.simulate.settings import summarise
from faust_assigner.pipeline.simulate.what_if import Change, Load, generated, load_of, what_if
from faust_assigner.pipeline.weights.rates import NO_DECAY, rates_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def simulate_here(request: Request, progress: Progress | None = None) -> dict[str, Any]:
    """Run the whole job without Spark, in ``request.jobs`` processes; return the report."""
    progress = progress or Progress()

    def play(run: Run) -> Summaries:
        rows = play_here(run, request.scenarios, jobs=request.jobs)
        put_rows(rows, request.out)
        return lambda part: summarise(
            row for row in rows if part in (None, run.source.split_of(int(row.scenario_id)))
        )

    return _simulate(request, progress, _facts_here(request, progress), play)


def simulate_on_spark(
    spark: SparkSession, request: Request, progress: Progress | None = None
) -> dict[str, Any]:
    """Run the whole job on ``spark``; return the report. The driver never holds the rows."""
    from faust_assigner.pipeline.ledgers.files import hadoop_url

    progress = progress or Progress()
    target = hadoop_url(f"{request.out.rstrip('/')}/{TABLE}")

    def play(run: Run) -> Summaries:
        play_on_spark(spark, run, request.scenarios).write.mode("overwrite").parquet(target)
        results = spark.read.parquet(target)
        return lambda part: summarise_on_spark(
            results if part is None else rows_of_split(results, run, part)
        )

    return _simulate(request, progress, _facts_on_spark(spark, request, progress), play)


def _simulate(
    request: Request, progress: Progress, facts: Facts | None, play: Callable[[Run], Summaries]
) -> dict[str, Any]:
    """Simulate the scenarios; write and return the report.

    Raises FolderInUse if another run writes to the folder.
    """
    run, measured = _run(request, facts)
    progress.enter(
        f"playing {request.scenarios:,} scenarios with each of {len(run.arms):,} settings"
    )
    with only_writer(request.out):
        summaries = play(run)
        progress.enter("summarising the scenarios")
        report = report_of(request, run, measured, summaries, facts)
        put_report(report, request.out, "report.json")
    return report


def what_if_here(request: Request, change: Change) -> dict[str, Any]:
    """Compute the effect of one change to a ledger's group at its newest decision, or to a generated fleet.

    Raises ConfigError for an impossible change, and UnknownGroup unless the request selects exactly one
    group.
    """
    if request.ledgers:
        current, load = _current(request)
        rows = what_if(current, change, load, replicas=request.replicas, costs=request.costs)
    else:
        scenario = request.shape.scenario(0, scenario_seed(request.seed, 0))
        rows = []
        for count in request.replicas:
            current, load = generated(scenario, count)
            rows += what_if(current, change, load, replicas=(count,), costs=request.costs)
    report = {
        "group_id": current.group_id,
        "decision_id": current.decision_id,
        "members": len(current.members),
        "change": plain(change),
        "what_if": rows,
    }
    if request.out:
        put_report(report, request.out, "what_if.json")
    return report


def _current(request: Request) -> tuple[GroupState, Load]:
    from faust_assigner.pipeline.ledgers.rows import read_here

    rows, _ = read_here(
        request.ledgers, request.max_refused, properties=request.properties, now=request.now
    )
    groups = [found for found in current_here(rows) if request.group_id in (None, found.group_id)]
    if len(groups) != 1:
        raise UnknownGroup(
            f"one group expected, the ledger has {[found.group_id for found in groups]}: "
            "name one with --group"
        )
    mine = [
        row.values
        for row in rows
        if row.table == "partition_sample" and row.values["group_id"] == groups[0].group_id
    ]
    return groups[0], load_of(rates_of(mine, half_life_s=NO_DECAY))


def _run(request: Request, facts: Facts | None) -> tuple[Run, tuple[str, ...]]:
    """Return the run to simulate, and the names of the costs that were measured from the ledger."""
    source: Source = request.shape
    costs = request.costs
    measured: tuple[str, ...] = ()
    if facts is not None:
        source = week(facts, group_id=request.group_id)
        mine = facts.of_group(request.group_id)
        costs, measured = calibrated(costs, mine.recoveries, mine.decisions)
    if request.session_timeout_s is not None:
        costs = replace(costs, session_timeout_s=request.session_timeout_s)
        measured = tuple(name for name in measured if name != "session_timeout_s")
    return Run(request.seed, source, arms(request.policies, request.replicas), costs), measured


def _facts_here(request: Request, progress: Progress) -> Facts | None:
    if not request.ledgers:
        return None
    from faust_assigner.pipeline.ledgers.rows import read_here

    progress.enter("reading the lines")
    refused = Refused()
    progress.follow(refused)
    rows, _ = read_here(
        request.ledgers,
        request.max_refused,
        properties=request.properties,
        refused=refused,
        now=request.now,
    )
    return facts_of(rows)


def _facts_on_spark(spark: SparkSession, request: Request, progress: Progress) -> Facts | None:
    if not request.ledgers:
        return None
    from faust_assigner.pipeline.ledgers.sources import read_checked
    from faust_assigner.pipeline.simulate.on_spark import facts_on_spark

    progress.enter("reading the lines")
    parsed, refused = read_checked(
        spark, request.ledgers, request.max_refused, request.properties, now=request.now
    )
    progress.follow(refused)
    return facts_on_spark(parsed)
