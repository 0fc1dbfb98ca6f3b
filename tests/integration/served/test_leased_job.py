"""The job of docs/how-to/from-leases.md: one process works; the sink refuses rows of former owners."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.leased_job.sink import Sink
from tests.support.assigning.instances import QUICK, ROOT, instances, until
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.processes


@contextlib.contextmanager
def jobs(target: str, folder: Path, *names: str) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Start the job's processes by name, and end them with the test."""
    running = {
        name: subprocess.Popen(
            [sys.executable, "-m", "examples.leased_job.job", "--service", target, "--name", name],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for name in names
    }
    try:
        yield running
    finally:
        for process in running.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


@pytest.mark.slow
async def test_a_job_is_done_by_one_process_through_a_freeze_and_a_stop(tmp_path: Path) -> None:
    """After SIGSTOP the other process takes over, and after SIGTERM the owner hands over first."""
    with (
        instances(tmp_path, *QUICK, "--strict", "--topic", "export=1") as (service,),
        contextlib.closing(Sink(tmp_path / "export.db")) as sink,
        jobs(service.target, tmp_path, "export-0", "export-1") as running,
    ):

        def writers(since: int) -> list[str]:
            return [name for _, name, _ in sink.rows()[since:]]

        await until(lambda: writers(0), "one of them writes")
        first = writers(0)[0]
        [second] = running.keys() - {first}
        running[first].send_signal(signal.SIGSTOP)
        count = len(sink.rows())
        await until(lambda: second in writers(count), "the other one takes over")
        running[first].send_signal(signal.SIGCONT)
        count = len(sink.rows())
        await until(_more(sink, count + 20), "it goes on")
        assert set(writers(count)) == {second}
        running[second].terminate()
        await until(lambda: first in writers(count), "the first one takes over again")
        assert running[second].wait(PATIENCE_S) == 0
        running[first].terminate()
        assert running[first].wait(PATIENCE_S) == 0, (
            "the last process has no successor, and ends all the same"
        )
        rows = sink.rows()
        assert [epoch for epoch, *_ in rows] == sorted(epoch for epoch, *_ in rows)
        assert len({(epoch, name) for epoch, name, _ in rows}) == len({epoch for epoch, *_ in rows})


def _more(sink: Sink, count: int) -> Callable[[], bool]:
    return lambda: len(sink.rows()) > count


def test_the_sink_refuses_a_former_owner(tmp_path: Path) -> None:
    """The sink compares only epochs, not names."""
    with contextlib.closing(Sink(tmp_path / "db")) as sink:
        assert [sink.write("job", epoch, "a", 1.0) for epoch in (5, 7, 5, 7)] == [
            True,
            True,
            False,
            True,
        ]
        assert [epoch for epoch, *_ in sink.rows()] == [5, 7, 7]
        assert [owner[:3] for owner in sink.owners()] == [(5, "a", 1), (7, "a", 2)]
