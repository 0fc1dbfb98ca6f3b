"""Lines logged during an app's setup reach the worker's log, which opens later."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app import fixup
from faust_assigner.app.fixup import PACKAGE, kept_until_start
from tests.support.faust_group import make_app
from tests.support.waiting import wait_until

OURS = "faust_assigner:PartitionAssignor"
WRONG = {"faust_assigner_follow_up_s": "nan", "faust_assigner_cooperative": "off"}
SAID = [
    "Rebalances are eager and stop all partitions: FAUST_ASSIGNER_COOPERATIVE is off",
    "FAUST_ASSIGNER_FOLLOW_UP_S must be 0 or more seconds, got 'nan'; "
    "using the default 5 after a cooperative round, 30 after an eager round",
]


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Any:
    """An app loaded by the ``faust`` command before the log exists."""
    with monkeypatch.context() as patch:
        patch.setattr(PACKAGE, "hasHandlers", lambda: False)
        app = app_of()
    caplog.clear()
    return app


def app_of() -> Any:
    """Return a configured app that does not run."""
    app = make_app("http://w", assignor=OURS, broker="kafka://127.0.0.1:1", **WRONG)
    app.finalize()
    return app


def test_it_is_told_when_the_app_starts(early: Any, caplog: pytest.LogCaptureFixture) -> None:
    """These lines about a wrong setting and eager rounds used to be lost."""
    with caplog.at_level(logging.INFO):
        early._new_consumer()
    assert caplog.messages == SAID
    assert PACKAGE.level == logging.NOTSET


def test_what_nobody_wants_to_read_is_not_told(
    early: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The log's level at the app's start counts."""
    with caplog.at_level(logging.ERROR):
        early._new_consumer()
    assert caplog.messages == SAID[1:]


def test_where_there_is_a_log_it_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """The lines are not repeated."""
    with caplog.at_level(logging.INFO):
        app = app_of()
        assert caplog.messages == SAID
        app._new_consumer()
    assert caplog.messages == SAID


@pytest.mark.slow
@pytest.mark.processes
def test_a_workers_log_has_it(tmp_path: Path) -> None:
    """The worker is real, and its broker is unreachable."""
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


@pytest.mark.parametrize(
    ("level", "kept"),
    [
        (logging.NOTSET, ["info", "warning", "error"]),
        (logging.DEBUG, ["debug", "info", "warning", "error"]),
        (logging.ERROR, ["error"]),
    ],
)
def test_a_level_of_the_package_counts_while_there_is_no_log(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, level: int, kept: list[str]
) -> None:
    """The records are handled in their order, once, before the consumer is created."""
    handled: list[str] = []
    app: Any = SimpleNamespace(_new_consumer=lambda: handled.append("created") or "a consumer")
    request.addfinalizer(lambda: PACKAGE.setLevel(logging.NOTSET))
    PACKAGE.setLevel(level)
    handlers, create = list(PACKAGE.handlers), app._new_consumer
    logger = logging.getLogger("faust_assigner.app.fixup")
    with monkeypatch.context() as patch:
        patch.setattr(PACKAGE, "hasHandlers", lambda: False)
        with kept_until_start(app):
            """Log nothing."""
        assert app._new_consumer is create
        with kept_until_start(app):
            for name in ("debug", "info", "warning", "error"):
                getattr(logger, name)(name)
        assert (PACKAGE.level, PACKAGE.handlers) == (level, handlers)
        with pytest.raises(KeyError), kept_until_start(app):
            raise KeyError
    assert (PACKAGE.level, PACKAGE.handlers) == (level, handlers)
    monkeypatch.setattr(logger, "handle", lambda record: handled.append(record.getMessage()))
    monkeypatch.setattr(logger, "isEnabledFor", lambda level: True)
    assert app._new_consumer() == "a consumer"
    assert app._new_consumer() == "a consumer"
    assert handled == [*kept, "created", "created"]


def test_only_records_that_their_logger_wants_at_the_start_are_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker's logging is configured after the records were kept."""
    handled: list[str] = []
    logger = logging.getLogger("faust_assigner.made_up")
    monkeypatch.setattr(logger, "level", logging.ERROR)
    monkeypatch.setattr(logger, "handle", lambda record: handled.append(record.getMessage()))
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    records = [
        logging.LogRecord(logger.name, level, "", 1, text, (), None)
        for level, text in ((logging.INFO, "info"), (logging.ERROR, "error"))
    ]
    assert fixup._log_and_create(records, lambda: "a consumer") == "a consumer"
    assert (handled, records) == (["error"], [])


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [("faust_assigner.app.assignor", True), ("faust_assigner_extra.assignor", False)],
)
def test_an_assignor_of_a_package_with_a_longer_name_is_not_ours(name: str, is_ours: bool) -> None:
    """The name of the package ends at its dot."""
    chosen = type("Assignor", (), {"__module__": name})
    app: Any = SimpleNamespace(conf=SimpleNamespace(PartitionAssignor=chosen))
    assert fixup.chose_our_assignor(app) is is_ours
