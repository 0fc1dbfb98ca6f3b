"""Compare Spark's mapInPandas with a pool of processes of the same width on scenarios, both warm.

    python benchmarks/simulate.py [scenarios] [width]

Asserts that both return the same rows; prints seconds, scenarios per second and the ratio.
"""

from __future__ import annotations

import itertools
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from faust_assigner.pipeline.session import spark_session
from faust_assigner.pipeline.simulate.policies import arms
from faust_assigner.pipeline.simulate.run import BATCH, Run, play_on_spark, play_piece
from faust_assigner.pipeline.simulate.sim_result import SimRow

SEED = 1
#: As many batches as a Spark task has, so that both start and end work equally often.
WARM_UP = 8


def main(scenarios: int, width: int) -> None:
    """Warm both up, time both, compare."""
    run = Run(SEED, arms=arms(["ours", "ours+static", "stock"], [1]))
    pieces = [
        range(start, min(start + BATCH // 4, scenarios))
        for start in range(0, scenarios, BATCH // 4)
    ]
    with ProcessPoolExecutor(width, mp_context=get_context("spawn")) as pool:
        list(pool.map(play_piece, itertools.repeat(run), [range(WARM_UP)] * width))
        began = time.perf_counter()
        pooled = list(
            itertools.chain.from_iterable(pool.map(play_piece, itertools.repeat(run), pieces))
        )
        pool_s = time.perf_counter() - began
    spark = spark_session(f"local[{width}]", "bench-simulate")
    try:
        play_on_spark(spark, run, WARM_UP * width).collect()
        began = time.perf_counter()
        found = play_on_spark(spark, run, scenarios).collect()
        spark_s = time.perf_counter() - began
    finally:
        spark.stop()
    assert sorted(SimRow(*row) for row in found) == sorted(pooled), "Spark and the pool disagree"
    print(
        f"seed {SEED}, {scenarios} scenarios x {len(run.arms)} arms, {width} wide, "
        f"{len(pooled)} equal rows"
    )
    for name, seconds in (("pool", pool_s), ("mapInPandas", spark_s)):
        print(f"{name:12} {seconds:7.1f} s  {scenarios / seconds:7.1f} scenarios/s")
    print(f"ratio        {spark_s / pool_s:7.2f}  (goal <= 1.15)")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 1_000,
        int(sys.argv[2]) if len(sys.argv) > 2 else 2,
    )
