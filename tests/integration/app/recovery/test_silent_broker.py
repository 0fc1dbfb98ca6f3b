"""A broker that is silent for longer than the request timeout, then answers: real processes, SIGSTOP."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.workers.troubled import troubled

pytestmark = pytest.mark.timeout(180)


@pytest.mark.slow
def test_a_broker_silent_in_a_recovery_leaves_a_worker_that_works(tmp_path: Path) -> None:
    """Stock takes a timeout for a stop: its recovery ends, and the worker stays without work."""
    with troubled(tmp_path, stream_recovery_delay=1.5) as it:
        it.start()
        assert it.until(lambda worker: worker.generation >= 0)
        with it.frozen_broker():
            time.sleep(9)
        assert it.until(lambda _: it.done == 20), it.log()[-3000:]
        assert it.worker.alive


@pytest.mark.slow
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "amid orders"])
def test_sigterm_ends_a_worker_while_the_broker_is_silent(tmp_path: Path, busy: bool) -> None:
    """aiokafka repeats the last commit without an end; ours ends after seconds."""
    with troubled(tmp_path, broker_request_timeout=90.0) as it:
        it.start()
        assert it.until(lambda _: it.done == 20)
        if busy:
            it.load.start()
            assert it.until(lambda _: it.done > 100)
        with it.frozen_broker():
            it.worker.process.terminate()
            # The promise is 10 s; a busy machine may need longer for the rest of the shutdown.
            it.worker.process.wait(40)
        assert "this step is skipped" in it.log() or "Could not leave the group" in it.log()


@pytest.mark.slow
def test_a_commit_given_up_at_a_silent_brokers_is_repeated_not_lost(tmp_path: Path) -> None:
    """The next worker starts at the last committed offset."""
    with troubled(tmp_path, waiting=50) as it:
        it.start()
        assert it.until(lambda _: it.done == 100)
        with it.frozen_broker():
            it.worker.process.terminate()
            it.worker.process.wait(40)
        it.load.start()
        time.sleep(1)
        it.load.stop()
        it.start()
        assert it.until(lambda _: it.done == sum(it.load.sent)), it.log()[-3000:]
