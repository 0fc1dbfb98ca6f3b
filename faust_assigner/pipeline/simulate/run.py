"""Simulate thousands of scenarios with many arms: one row of ``sim_result`` per scenario and arm.

An arm is a policy with its settings and number of standbys. :func:`play` is the whole computation. Spark
runs it through ``mapInPandas`` (a few tasks per core); a process pool or a plain loop runs it without Spark.
All three give the same numbers, because a scenario depends on (source, scenario number, seed) alone.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import TYPE_CHECKING, Protocol

from faust_assigner.pipeline.simulate.policies import arms as default_arms
from faust_assigner.pipeline.simulate.policies import load
from faust_assigner.pipeline.simulate.scenarios import Shape, scenario_seed
from faust_assigner.pipeline.simulate.settings import (
    ALL_FLEETS,
    comparable,
    difference,
    distribution,
    in_order,
    state_class,
)
from faust_assigner.pipeline.simulate.sim_result import SIM_DDL, SimRow
from faust_assigner.simulation.fleet import Arm, Costs, Scenario
from faust_assigner.simulation.simulator import Memo, simulate

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

#: Several tasks per core even out the cores' load: some scenarios take longer.
TASKS_PER_CORE = 4
#: The number of scenarios per data frame of a task, and per work item of the process pool.
BATCH = 64
#: The figures that are predicted for a recording and compared with the record.
REPLAYED = ("rebalances", "moved", "cold_moves")


class Source(Protocol):
    """A source of scenarios: a :class:`Shape`, which generates scenarios, or a recorded week."""

    def scenario(self, scenario_id: int, seed: int) -> Scenario:
        """Return the scenario with this number; ``seed`` comes from :func:`scenario_seed`."""

    def split_of(self, scenario_id: int) -> int | None:
        """Return 0 if the scenario chooses settings, 1 if it evaluates them, None for neither."""


@dataclass(frozen=True)
class Run:
    """The whole input of a task: picklable, small, and equal on every machine."""

    seed: int
    source: Source = field(default_factory=Shape)
    arms: tuple[Arm, ...] = field(default_factory=default_arms)
    costs: Costs = field(default_factory=Costs)


def play(run: Run, scenario_ids: Iterable[int]) -> Iterator[SimRow]:
    """Yield the rows of the given scenarios, arm by arm. Cost: about one plan per rebalance and arm."""
    for scenario_id in scenario_ids:
        scenario = run.source.scenario(scenario_id, scenario_seed(run.seed, scenario_id))
        memo: Memo = {}
        for arm in run.arms:
            yield _row(scenario, arm, run.costs, memo)


def _row(scenario: Scenario, arm: Arm, costs: Costs, memo: Memo) -> SimRow:
    outcome = simulate(scenario, arm, load(arm.policy), costs=costs, memo=memo)
    starters = [worker for worker in scenario.workers if worker.member_id in scenario.start]
    return SimRow(
        scenario.group_id,
        dt.date.fromisoformat(scenario.dt),
        f"{scenario.scenario_id:06d}",
        scenario.seed,
        len(starters),
        scenario.tasks,
        arm.replicas,
        arm.label,
        int(outcome.moved),
        outcome.imbalance,
        outcome.unavailable_s,
        int(outcome.cold_moves),
        outcome.worst_load,
        outcome.worst_gap_s,
        outcome.restored,
        outcome.rebalances,
        outcome.idle_members,
        len({worker.rack_id for worker in starters}),
        state_class(float(scenario.records.mean())),
    )


def replayed(run: Run, recordings: int) -> list[dict[str, object]]:
    """Return each arm's prediction for the unchanged recordings: rebalances, moved tasks, cold moves."""
    found: dict[tuple[str, int], dict[str, object]] = {}
    for row in play(run, range(recordings)):
        mine = found.setdefault((row.policy, row.standbys), dict.fromkeys(REPLAYED, 0))
        for name in REPLAYED:
            mine[name] += getattr(row, name)
    return [
        {"policy": policy, "standbys": standbys, "predicted": sums}
        for (policy, standbys), sums in found.items()
    ]


def play_here(run: Run, scenarios: int, *, jobs: int = 1) -> list[SimRow]:
    """Simulate all scenarios without Spark in ``jobs`` processes; rows are in order of scenario and arm."""
    if jobs == 1:
        return list(play(run, range(scenarios)))
    pieces = [range(start, min(start + BATCH, scenarios)) for start in range(0, scenarios, BATCH)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return list(
            itertools.chain.from_iterable(pool.map(play_piece, itertools.repeat(run), pieces))
        )


def play_piece(run: Run, scenario_ids: range) -> list[SimRow]:
    """Return the rows of :func:`play` as a list, for one work item of the process pool."""
    return list(play(run, scenario_ids))


def play_on_spark(spark: SparkSession, run: Run, scenarios: int) -> DataFrame:
    """Simulate all scenarios as a lazy Spark DataFrame of ``SIM_DDL``; the caller must cache or write it.

    Uses mapInPandas over ranges of scenario numbers. With applyInPandas, Spark's adaptive coalescing
    would put all scenarios into one task.
    """
    from faust_assigner.pipeline.session import width

    tasks = max(1, min(scenarios, width(spark) * TASKS_PER_CORE))

    def rows(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            ids = frame["id"].tolist()
            for start in range(0, len(ids), BATCH):
                yield to_frame(list(play(run, ids[start : start + BATCH])))

    return spark.range(0, scenarios, 1, tasks).mapInPandas(rows, SIM_DDL)


def rows_of_split(results: DataFrame, run: Run, part: int) -> DataFrame:
    """Return the rows of ``results`` whose scenarios choose settings (0) or evaluate them (1)."""
    from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

    of_part = F.udf(lambda name: run.source.split_of(int(name)) == part, "boolean")
    return results.where(of_part("scenario_id"))


def summarise_on_spark(results: DataFrame) -> list[dict[str, object]]:
    """Compute ``settings.summarise`` of ``results``, with one task per arm and class of fleet."""
    from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

    racks = F.when(F.col("racks") > 1, "several").otherwise("one")
    classes = F.array(
        F.struct(F.lit(ALL_FLEETS).alias("state"), F.lit(ALL_FLEETS).alias("racks")),
        F.struct(F.col("state"), racks.alias("racks")),
    )
    keys = ("class", "policy", "standbys")

    def one(frame: pd.DataFrame) -> pd.DataFrame:
        rows = [SimRow(*values) for values in frame[list(SimRow._fields)].itertuples(index=False)]
        found = frame["class"].iloc[0]
        text = json.dumps(distribution(rows, (found["state"], found["racks"])))
        return pd.DataFrame({"summary": [text]})

    import pandas as pd

    classed = results.withColumn("class", F.explode(classes))
    told = classed.groupBy(*keys).applyInPandas(one, "summary string")
    summaries = [json.loads(row.summary) for row in told.collect()]
    pairs = _pairs_on_spark(classed)
    for found in summaries:
        arm = (found["state"], found["racks"], found["standbys"], found["policy"])
        found["against"] = {
            name[-1]: pair for name, pair in sorted(pairs.items()) if name[:-1] == arm
        }
    return in_order(summaries)


def _pairs_on_spark(classed: DataFrame) -> dict[tuple[object, ...], dict[str, object]]:
    """Return (state, racks, standbys, policy, other policy) -> the paired difference; one task per key."""
    import pandas as pd
    from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

    names = [row.policy for row in classed.select("policy").distinct().collect()]
    wanted = [(mine, other) for mine in names for other in names if comparable(mine, other)]
    if not wanted:
        return {}
    place = ["class", "standbys", "scenario_id"]
    told = classed.select(
        *place, "policy", (F.col("unavailable_s") / F.col("partitions")).alias("stopped")
    )
    mine = told.withColumnsRenamed({"policy": "a", "stopped": "mine"})
    theirs = told.withColumnsRenamed({"policy": "b", "stopped": "theirs"})
    pairs = F.broadcast(classed.sparkSession.createDataFrame(wanted, "a string, b string"))

    def one(frame: pd.DataFrame) -> pd.DataFrame:
        first = frame.iloc[0]
        found = difference(
            *(
                dict(zip(frame["scenario_id"], frame[side], strict=True))
                for side in ("mine", "theirs")
            )
        )
        key = [first["class"]["state"], first["class"]["racks"], int(first["standbys"]), first["a"]]
        return pd.DataFrame({"told": [json.dumps([[*key, first["b"]], found])]})

    joined = mine.join(pairs, "a").join(theirs, [*place, "b"])
    rows = joined.groupBy("class", "standbys", "a", "b").applyInPandas(one, "told string").collect()
    return {tuple(key): found for key, found in (json.loads(row.told) for row in rows)}


def to_frame(rows: Sequence[SimRow]) -> pd.DataFrame:
    """Return the rows as a pandas DataFrame with the columns of :class:`SimRow`."""
    import pandas as pd

    return pd.DataFrame(rows, columns=list(SimRow._fields))
