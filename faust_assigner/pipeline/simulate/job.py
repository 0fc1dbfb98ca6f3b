"""The job behind ``faust-assigner simulate``: scenarios in, ``sim_result`` and a report out.

    OUT/sim_result/*.parquet   one row per scenario, policy and number of standbys
    OUT/report.json            options, sim_summary (distributions), sim_settings (recommendations), replay
                               and events (prediction and record, in total and per rebalance)
    OUT/what_if.json           instead of both, for one change to one group

Without pyarrow (and without Spark) ``sim_result`` is one ``part-00000.jsonl``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faust_assigner.pipeline.ledgers.current import Current, current_here
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.simulate.advice import advice, of_all
from faust_assigner.pipeline.simulate.events import event_rows
from faust_assigner.pipeline.simulate.measured import calibrated
from faust_assigner.pipeline.simulate.policies import DEFAULT_POLICIES, DEFAULT_REPLICAS, arms
from faust_assigner.pipeline.simulate.recorded import (
    Facts,
    UnknownGroup,
    Week,
    facts_of,
    week,
)
from faust_assigner.pipeline.simulate.run import (
    SIM_DDL,
    Run,
    SimRow,
    Source,
    play_here,
    play_on_spark,
    replayed,
    rows_of_part,
    summarise_on_spark,
)
from faust_assigner.pipeline.simulate.scenarios import Shape, scenario_seed
from faust_assigner.pipeline.simulate.settings import Recommendation, recommend, summarise
from faust_assigner.pipeline.simulate.what_if import Change, Load, generated, load_of, what_if
from faust_assigner.pipeline.weights.rates import NO_DECAY, rates_of
from faust_assigner.simulation.fleet import Costs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "sim_result"
#: With fewer scenarios in a part, the same scenarios choose the settings and judge them.
LEAST_OF_A_PART = 10


@dataclass(frozen=True)
class Request:
    """The command's options and arguments."""

    scenarios: int
    seed: int
    out: str
    policies: Sequence[str] = DEFAULT_POLICIES
    replicas: Sequence[int] = DEFAULT_REPLICAS
    shape: Shape = field(default_factory=Shape)
    costs: Costs = field(default_factory=Costs)
    #: Overrides the ledger's session timeout; None: the ledger's, or else the costs' own.
    session_timeout_s: float | None = None
    ledgers: Sequence[str] = ()
    group_id: str | None = None
    jobs: int = 1
    max_refused: Tolerance = field(default_factory=Tolerance)
    #: Kafka's client properties, for ledgers that are topics.
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)


def simulate_here(request: Request, progress: Progress | None = None) -> dict[str, Any]:
    """The whole job without Spark, in ``request.jobs`` processes; returns the report."""
    progress = progress or Progress()
    facts = _facts_here(request, progress)
    run, measured = _run(request, facts)
    progress.enter(_playing(request, run))
    rows = play_here(run, request.scenarios, jobs=request.jobs)
    _put_rows(rows, request.out)

    def of_part(part: int | None) -> list[dict[str, Any]]:
        return summarise(
            row for row in rows if part in (None, run.source.part_of(int(row.scenario_id)))
        )

    progress.enter("summarising the scenarios")
    return _finish(request, run, measured, of_part, facts)


def _playing(request: Request, run: Run) -> str:
    return f"playing {request.scenarios:,} scenarios with each of {len(run.arms):,} settings"


def simulate_on_spark(
    spark: SparkSession, request: Request, progress: Progress | None = None
) -> dict[str, Any]:
    """The whole job on ``spark``; the driver never holds the rows. Returns the report."""
    from faust_assigner.pipeline.ledgers.files import hadoop_url

    progress = progress or Progress()
    target = hadoop_url(f"{request.out.rstrip('/')}/{TABLE}")
    facts = _facts_on_spark(spark, request, progress)
    run, measured = _run(request, facts)
    progress.enter(_playing(request, run))
    play_on_spark(spark, run, request.scenarios).write.mode("overwrite").parquet(target)
    results = spark.read.parquet(target)

    def of_part(part: int | None) -> list[dict[str, Any]]:
        return summarise_on_spark(results if part is None else rows_of_part(results, run, part))

    progress.enter("summarising the scenarios")
    return _finish(request, run, measured, of_part, facts)


def what_if_here(request: Request, change: Change) -> dict[str, Any]:
    """The effect of one change to a ledger's group at its newest decision, or to a generated fleet.

    Raises ConfigError for an impossible change, NothingRecorded for a ledger without the group.
    """
    if request.ledgers:
        current, load = _current(request)
    else:
        scenario = request.shape.scenario(0, scenario_seed(request.seed, 0))
        current, load = generated(scenario, max(request.replicas))
    rows = what_if(current, change, load, replicas=request.replicas, costs=request.costs)
    report = {
        "group_id": current.group_id,
        "decision_id": current.decision_id,
        "members": len(current.members),
        "change": _plain(change),
        "what_if": rows,
    }
    if request.out:
        _write_text(f"{request.out.rstrip('/')}/what_if.json", json.dumps(report, indent=1) + "\n")
    return report


def _current(request: Request) -> tuple[Current, Load]:
    from faust_assigner.pipeline.ledgers.rows import read_here

    rows, _ = read_here(request.ledgers, request.max_refused, properties=request.properties)
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
    """The run to play, and the names of the costs that the ledger measured."""
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
        request.ledgers, request.max_refused, properties=request.properties, refused=refused
    )
    return facts_of(rows)


def _facts_on_spark(spark: SparkSession, request: Request, progress: Progress) -> Facts | None:
    if not request.ledgers:
        return None
    from faust_assigner.pipeline.ledgers.sources import read_checked
    from faust_assigner.pipeline.simulate.facts import facts_on_spark

    progress.enter("reading the lines")
    parsed, refused = read_checked(spark, request.ledgers, request.max_refused, request.properties)
    progress.follow(refused)
    return facts_on_spark(parsed)


def _finish(
    request: Request,
    run: Run,
    measured: Sequence[str],
    of_part: Callable[[int | None], list[dict[str, Any]]],
    facts: Facts | None,
) -> dict[str, Any]:
    """Write the report and return it.

    ``of_part`` returns the summaries of all scenarios (None), of the scenarios that choose settings (0) and
    of the scenarios that judge them (1).
    """
    chosen_from = request.policies[0].partition("+")[0]
    summaries = of_part(None)
    parts = [run.source.part_of(number) for number in range(request.scenarios)]
    if min(parts.count(0), parts.count(1)) >= LEAST_OF_A_PART:
        lines = recommend(of_part(0), policy=chosen_from, judged=of_part(1))
    else:
        lines = recommend(summaries, policy=chosen_from)
    replay = _replay(run, facts.of_group(request.group_id)) if facts is not None else []
    events = (
        event_rows(run, facts.of_group(request.group_id), chosen_from) if facts is not None else []
    )
    told = _advice(run, facts, request, lines[0]) if facts is not None else []
    if told:
        # Scenarios that are drawn from few weeks would make an interval narrow that the weeks leave wide.
        lines = [line._replace(verdict=of_all(told)) for line in lines]
    scores = {(each["policy"], each["standbys"]): each for each in replay}
    report = {
        "options": {
            "scenarios": request.scenarios,
            "seed": request.seed,
            "policies": list(request.policies),
            "replicas": list(request.replicas),
            "ledgers": list(request.ledgers),
            "shape": None if request.ledgers else _plain(request.shape),
            "costs": _plain(run.costs),
            "measured_costs": list(measured),
        },
        "sim_summary": summaries,
        "sim_settings": [
            {**line._asdict(), "replay": scores.get((line.policy, line.standbys))} for line in lines
        ],
        "replay": replay,
        "events": events,
        "advice": told,
    }
    _write_text(f"{request.out.rstrip('/')}/report.json", json.dumps(report, indent=1) + "\n")
    return report


def _advice(
    run: Run, facts: Facts, request: Request, chosen: Recommendation
) -> list[dict[str, object]]:
    """The advice for the settings that the table recommends over all fleets."""
    mine = facts.of_group(request.group_id)
    return advice(run, mine, chosen.policy.partition("+")[0], (chosen.policy, chosen.standbys))


def _replay(run: Run, facts: Facts) -> list[dict[str, Any]]:
    """Each arm's prediction for the recorded time, and the recorded figures."""
    assert isinstance(run.source, Week)
    recorded = facts.recorded()
    return [{**each, "recorded": recorded} for each in replayed(run, len(run.source.recordings))]


def _plain(settings: Change | Shape | Costs) -> dict[str, object]:
    return {
        name: dict(value) if isinstance(value, dict) else value
        for name, value in vars(settings).items()
    }


def _put_rows(rows: Sequence[SimRow], out: str) -> None:
    if "://" not in out:
        write_rows(rows, Path(out) / TABLE)
        return
    from faust_assigner.pipeline.ledgers.files import file_system

    fs, target = file_system(f"{out.rstrip('/')}/{TABLE}")
    with tempfile.TemporaryDirectory() as folder:
        write_rows(rows, Path(folder) / TABLE)
        with contextlib.suppress(FileNotFoundError):
            fs.rm(target, recursive=True)
        for path in sorted((Path(folder) / TABLE).iterdir()):
            fs.put_file(str(path), f"{target}/{path.name}")


def write_rows(rows: Sequence[SimRow], folder: Path) -> None:
    """Replace the content of ``folder`` by one file with ``rows``; a reader never sees a partial file."""
    fresh = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        lines = (json.dumps({**row._asdict(), "dt": row.dt.isoformat()}) for row in rows)
        (fresh / "part-00000.jsonl").write_text("".join(line + "\n" for line in lines))
    else:
        columns = list(zip(*rows, strict=True)) or [() for _ in SimRow._fields]
        pairs = (entry.split() for entry in SIM_DDL.split(","))
        schema = pa.schema([(name, pa.type_for_alias(_ARROW_NAMES[kind])) for name, kind in pairs])
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)
        ]
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), fresh / "part-00000.parquet")
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(fresh, folder)


#: Spark's names of the types in ``SIM_DDL`` -> Arrow's names.
_ARROW_NAMES = {
    "string": "string",
    "int": "int32",
    "long": "int64",
    "double": "float64",
    "date": "date32",
}


def _write_text(url: str, text: str) -> None:
    if "://" not in url:
        Path(url).parent.mkdir(parents=True, exist_ok=True)
        Path(url).write_text(text)
        return
    from faust_assigner.pipeline.ledgers.files import file_system

    fs, path = file_system(url)
    with fs.open(path, "w") as stream:
        stream.write(text)
