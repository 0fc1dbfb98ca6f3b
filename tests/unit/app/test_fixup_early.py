"""What is said while an app is set up is in the worker's log, which is opened later."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.app.fixup import PACKAGE
from tests.support.faust_group import make_app
from tests.support.waiting import wait_until

OURS = "faust_assigner:PartitionAssignor"
WRONG = {"faust_assigner_follow_up_s": "nan", "faust_assigner_cooperative": "off"}
SAID = [
    "Rebalances are eager and stop all partitions: FAUST_ASSIGNER_COOPERATIVE is off",
    "FAUST_ASSIGNER_FOLLOW_UP_S must be 0 or more seconds, got 'nan'; "
    "going on with 5 after a cooperative round, 30 after an eager round",
]


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Any:
    """An app that the ``faust`` command has loaded: there was no log yet."""
    with monkeypatch.context() as patch:
        patch.setattr(PACKAGE, "hasHandlers", lambda: False)
        app = app_of()
    caplog.clear()
    return app


def app_of() -> Any:
    """A configured app, nothing of which runs."""
    app = make_app("http://w", assignor=OURS, broker="kafka://127.0.0.1:1", **WRONG)
    app.finalize()
    return app


def test_it_is_told_when_the_app_starts(early: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong setting, and why rounds are eager, were said to nobody."""
    with caplog.at_level(logging.INFO):
        early._new_consumer()
    assert caplog.messages == SAID
    assert PACKAGE.level == logging.NOTSET


def test_what_nobody_wants_to_read_is_not_told(
    early: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The log's level counts, as it is by then."""
    with caplog.at_level(logging.ERROR):
        early._new_consumer()
    assert caplog.messages == SAID[1:]


def test_where_there_is_a_log_it_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """And not again."""
    with caplog.at_level(logging.INFO):
        app = app_of()
        assert caplog.messages == SAID
        app._new_consumer()
    assert caplog.messages == SAID


@pytest.mark.processes
def test_a_workers_log_has_it(tmp_path: Path) -> None:
    """Of a real worker, whose broker nobody serves."""
    (tmp_path / "made_up.py").write_text(
        f"import faust\napp = faust.App('a', broker='kafka://127.0.0.1:1', PartitionAssignor={OURS!r},\n"
        f"                store='memory://', **{WRONG!r})\n"
    )
    log = tmp_path / "log"
    with log.open("w") as file:
        worker = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "faust",
                "-A",
                "made_up",
                "worker",
                "-l",
                "info",
                "--without-web",
            ],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: SAID[1] in log.read_text(), log.read_text)
    finally:
        worker.kill()
        worker.wait()
    assert SAID[0] in log.read_text()
