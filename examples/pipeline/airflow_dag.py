"""The pipeline as a DAG of Airflow: each hour, one run at a time, tried again where that may help."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta

from airflow.decorators import dag, task
from airflow.exceptions import AirflowFailException

COMMAND = ["faust-assigner", "pipeline", "run", "--config", "/etc/shop/pipeline.toml"]
TRY_AGAIN = 75


@dag(
    schedule="17 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    # A run reads all that is new, whatever hour it is of: missed hours need no runs of their own.
    catchup=False,
    max_active_runs=1,
)
def shop_pipeline() -> None:
    """One task."""

    @task(retries=3, retry_delay=timedelta(minutes=5))
    def run() -> None:
        code = subprocess.run(COMMAND, check=False).returncode
        if code == TRY_AGAIN:
            raise RuntimeError("something did not answer")
        if code:
            raise AirflowFailException(
                f"{COMMAND[0]} ended with {code}: trying again will not help"
            )

    run()


shop_pipeline()
