"""The pipeline as an Airflow DAG: hourly, a single run at a time, with retries of transient failures."""

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
    # A run reads all new records, of any hour: missed hours need no runs.
    catchup=False,
    max_active_runs=1,
)
def shop_pipeline() -> None:
    """Define the DAG's single task."""

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
