"""The job in place of a Kubernetes Lease: a process whose work fails hands the job over."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import pytest

from examples.leased_job.job import Job
from faust_assigner.service.client import Assigned, Grant, TopicPartition
from tests.support.waiting import PATIENCE_S

AT = TopicPartition("export", 0)


class _Client:
    """A client that may work, and notes that it leaves."""

    name = "export-0"

    def __init__(self) -> None:
        self.left = asyncio.Event()

    def may_work(self, partition: tuple[str, int]) -> bool:
        """It owns the partition."""
        return True

    async def leave(self) -> bool:
        """Note it."""
        self.left.set()
        return True


class _Sink:
    """A sink that writes, or fails."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def write(self, *row: Any) -> bool:
        """As the database."""
        if self.error is not None:
            raise self.error
        return True


async def test_a_job_whose_work_fails_leaves() -> None:
    """Its heartbeats went on: the process kept the job and did not work, and nothing told so."""
    client = _Client()
    job = Job(client, "export", _Sink(sqlite3.OperationalError("disk full")))  # type: ignore[arg-type]
    await job.assigned(Assigned({AT: Grant(AT, 5)}, (Grant(AT, 5),)))
    await asyncio.wait_for(client.left.wait(), PATIENCE_S)
    assert str(job.error) == "disk full"
    await job.stop()


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_a_job_that_works_or_is_stopped_does_not_leave(is_stopped: bool) -> None:
    """Only an error ends it."""
    client = _Client()
    job = Job(client, "export", _Sink(None))  # type: ignore[arg-type]
    await job.assigned(Assigned({AT: Grant(AT, 5)}, (Grant(AT, 5),)))
    await asyncio.sleep(0.02)
    if is_stopped:
        await job.stop()
    assert (client.left.is_set(), job.error) == (False, None)
    await job.stop()
