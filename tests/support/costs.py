"""A pytest plugin that saves costs which each test, and each process of a test, would pay anew."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import java, warm


def pytest_configure(config: pytest.Config) -> None:
    """Let Java compile little, start Python warm, and keep Hypothesis's tables in one folder.

    If Hypothesis is installed, kio imports it, and it builds these tables unless it finds them.
    That costs a second of computing for every process that a test starts in its own folder.
    """
    os.environ.setdefault(java.OPTIONS, java.options())
    subprocess.Popen = warm.Popen  # type: ignore[misc]
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(config.rootpath / ".hypothesis"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable the garbage collector: collected tests and modules live as long as the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    """Start the process that collects the tests for all workers, as a worker would."""
    from xdist.plugin import _sys_path

    if sys.platform != "linux" or len(specs) < 2 or not all(map(_is_plain, specs)):
        return
    node = SimpleNamespace(config=config, workerinput={"workerid": "xdist", "mainargv": sys.argv})
    config.hook.pytest_configure_node(node=node)
    plan = node.workerinput, [str(one) for one in config.invocation_params.args]
    program = (
        f"import sys; sys.path = {[str(warm.ROOT), *_sys_path]}; "
        f"from tests.support.forked_workers import serve; del sys.path[0]; serve(%d, *{plan})"
    )
    warm.begin("xdist", program, os.getcwd())


def _is_plain(spec: Any) -> bool:
    """Return whether xdist starts this worker on this machine, with this Python, in this folder."""
    return bool(spec.popen) and not (spec.python or spec.chdir or spec.via)
