"""A process that is forked from a warm one differs from ``python -m`` in nothing but its cost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm

TOLD = """
import atexit, json, os, sys
print(json.dumps([sys.argv[1:], os.environ.get("SAID"), os.getcwd(), sys.stdin.read(), os.getppid(),
                  __name__, sys.path[:2], "pytest" in sys.modules,
                  [(one.encoding, one.errors, one.newlines, one.line_buffering, one.write_through,
                    type(one.buffer).__name__, one.seekable(), one is old)
                   for one, old in ((sys.stdin, sys.__stdin__), (sys.stdout, sys.__stdout__),
                                    (sys.stderr, sys.__stderr__))]]))
sys.stdout.flush()
print("an error", file=sys.stderr)
atexit.register(print, "at the end")
sys.exit(7)
"""


@pytest.fixture(autouse=True)
def kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A warm process without imports, for the module ``told`` and for ``sleeps``."""
    monkeypatch.setattr(warm, "_running", {})
    monkeypatch.setattr(warm, "kind_of", lambda command: "any")
    (tmp_path / "told.py").write_text(TOLD)
    (tmp_path / "sleeps.py").write_text("import time; print('here', flush=True); time.sleep(60)")
    yield
    for each in warm._running.values():
        each._socket.close()
        assert each._process.wait(20) == 0


def run(start: Any, folder: Path, unbuffered: str = "") -> Any:
    """Run ``told`` with arguments, environment and input; return its code and its output."""
    process = start(
        [sys.executable, "-m", "told", "a b", "-c"],
        cwd=folder,
        env=os.environ | {"SAID": "so", "PYTHONPATH": "/nowhere", "PYTHONUNBUFFERED": unbuffered},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, errors = process.communicate("an input", 60)
    said, *more = out.splitlines()
    return process.returncode, json.loads(said), more, errors


def test_a_warm_process_is_that_of_exec(tmp_path: Path) -> None:
    """Arguments, environment, folder, streams, parent, path, exit code and exit handlers."""
    found = run(warm.Popen, tmp_path)
    assert list(warm._running) == ["any"]
    assert found == run(warm.Popen.__base__, tmp_path)
    assert run(warm.Popen, tmp_path, "1") == run(warm.Popen.__base__, tmp_path, "1") != found
    code, said, more, errors = found
    assert (code, more, errors) == (7, ["at the end"], "an error\n")
    assert said[:-1] == [
        *(["a b", "-c"], "so", str(tmp_path), "an input", os.getpid(), "__main__"),
        *([str(tmp_path), "/nowhere"], False),
    ]


def test_a_warm_process_ends_by_a_signal_to_it_alone(tmp_path: Path) -> None:
    """Other processes of its kind live on."""
    command = [sys.executable, "-m", "sleeps"]
    both = [warm.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.stdout and process.stdout.readline() for process in both] == [b"here\n"] * 2
    both[0].kill()
    assert both[0].wait(20) == -signal.SIGKILL
    assert both[1].poll() is None
    both[1].terminate()
    assert both[1].wait(20) == -signal.SIGTERM
    for process in both:
        assert process.stdout is not None
        process.stdout.close()


def test_after_the_end_of_the_warm_process_a_start_is_done_by_exec(tmp_path: Path) -> None:
    """The next start is warm again."""
    run(warm.Popen, tmp_path)
    first = warm._running["any"]
    first._process.kill()
    first._process.wait()
    first._socket.close()
    assert run(warm.Popen, tmp_path)[0] == 7
    assert not warm._running
    assert run(warm.Popen, tmp_path)[0] == 7
    assert warm._running["any"] is not first


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ([], {"env": {"PYTHONHASHSEED": "1"}}),
        ([], {"process_group": 0}),
        ([], {"pass_fds": (0,)}),
        ([], {"umask": 0o77}),
        ([], {"executable": sys.executable}),
    ],
)
def test_a_process_that_cannot_be_forked_is_started_by_exec(
    tmp_path: Path, words: list[str], more: dict[str, Any]
) -> None:
    """These settings have an effect at the start of Python or of a process only."""
    command = [sys.executable, "-m", "told", *words]
    kept = {**os.environ, **more.pop("env", {})}
    done = warm.Popen(
        command, cwd=tmp_path, env=kept, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **more
    )
    assert done.wait(60) == 7
    assert not warm._running


def test_another_copy_of_the_package_is_not_run_warm(tmp_path: Path) -> None:
    """The warm process has imported this copy."""
    assert warm.is_alike(os.environ, str(warm.ROOT))
    assert warm.is_alike(os.environ, str(tmp_path))
    (tmp_path / "faust_assigner").mkdir()
    assert not warm.is_alike(os.environ, str(tmp_path))
    assert not warm.is_alike({**os.environ, "PYTHONPATH": str(tmp_path)}, str(warm.ROOT))


@pytest.mark.parametrize(
    ("name", "is_alike"),
    [
        ("FAUST_WEB_PORT", False),
        ("F_DATADIR", False),
        ("NO_CYTHON", False),
        ("PYTHONHASHSEED", False),
        ("PYTHONUNBUFFERED", True),
        ("FAUST_ASSIGNER_LEDGER", True),
        ("FLEET_NAME", True),
    ],
)
def test_a_setting_that_is_read_by_an_import_needs_a_new_import(name: str, is_alike: bool) -> None:
    """This package and the tests' apps read their settings when they are configured."""
    changed = {**os.environ, name: "1" if os.environ.get(name) != "1" else "2"}
    assert warm.is_alike(changed, str(warm.ROOT)) is is_alike


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["-m", "tests.support.workers.app", "worker"], "worker"),
        (["-m", "tests.support.workers.app", "agents"], None),
        (["-m", "tests.soak.windows", "worker", "-l", "info"], "worker"),
        (["-m", "faust_assigner.testing.worker"], "worker"),
        (["-m", "faust_assigner.cli", "broker", "--port", "0"], "command"),
        (["-m", "faust_assigner", "status"], "command"),
        (["-m", "faust_assigner.cli", "serve", "--bind", "127.0.0.1:0"], "grpc"),
        (["-m", "faust_assigner.cli", "service", "topics"], "grpc"),
        (["-m", "faust_assigner.cli", "history"], None),
        (["-m", "faust_assigner.cli"], None),
        (["-m", "tests.support.pages"], None),
        (["-c", "tests.support.workers.app", "worker"], None),
        (["-m"], None),
    ],
)
def test_workers_and_commands_are_warm(
    monkeypatch: pytest.MonkeyPatch, words: list[str], kind: str | None
) -> None:
    """Other programs are started too seldom, and Spark starts processes of its own."""
    monkeypatch.undo()
    assert warm.kind_of([sys.executable, *words]) == kind
    assert warm.kind_of(["/usr/bin/python", *words]) is None
    assert warm.kind_of([warm.SCRIPT, *words[2:]]) == (None if kind == "worker" else kind)


@pytest.mark.parametrize("is_session", [True, False])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_warm_process_follows_the_settings_of_its_session_and_its_output(
    tmp_path: Path, unbuffered: str, *, is_session: bool
) -> None:
    """A service's instance has its own session and writes its log at once."""
    (tmp_path / "told.py").write_text(
        "import os, sys; print(os.getsid(0) == os.getpid(), end=''); os._exit(0)"
    )
    found = [
        start(
            [sys.executable, "-m", "told"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=subprocess.PIPE,
            start_new_session=is_session,
        ).communicate(timeout=60)[0]
        for start in (warm.Popen, warm.Popen.__base__)
    ]
    assert "any" in warm._running
    assert found == [str(is_session).encode() if unbuffered else b""] * 2


def test_a_script_is_run_as_its_interpreter_would(tmp_path: Path) -> None:
    """Its folder is the first of the path, and its path is its first argument."""
    script = tmp_path / "script"
    script.write_text(f"#!{sys.executable}\nimport sys; print(__name__, sys.argv, sys.path[0])")
    script.chmod(0o755)
    program = (
        "from tests.support import warm; warm.SCRIPT = sys.argv[1]; warm._run(sys.argv[1:], '/')"
    )
    commands = (
        [str(script), "a"],
        [sys.executable, "-c", f"import sys; {program}", str(script), "a"],
    )
    cold: Any = warm.Popen.__base__
    found = [cold(one, cwd=warm.ROOT, stdout=subprocess.PIPE).communicate()[0] for one in commands]
    assert found[0] == found[1] != b""
