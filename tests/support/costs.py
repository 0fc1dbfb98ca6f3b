"""A pytest plugin that saves costs which each test, and each process of a test, would pay anew."""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Generator

import pytest

from tests.support import warm

#: A server of a test lives for minutes, too short for Java's second compiler and parallel
#: collectors to pay off on two cores.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def pytest_configure(config: pytest.Config) -> None:
    """Let Java compile little, start Python warm, and keep Hypothesis's tables in one folder.

    If Hypothesis is installed, kio imports it, and it builds these tables unless it finds them.
    That costs a second of computing for every process that a test starts in its own folder.
    """
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA)
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
