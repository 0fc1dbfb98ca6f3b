"""A pytest plugin: what each test, and each process that a test starts, would otherwise pay for anew."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator

import pytest

#: A server of tests lives for minutes: what Java's second compiler and parallel collectors cost on two cores
#: is never paid back.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def pytest_configure(config: pytest.Config) -> None:
    """Java compiles little, and Hypothesis's tables lie in one folder, whatever folder a process works in.

    kio imports Hypothesis where it is installed, which makes these tables where it finds none: a second of
    computing for every process that a test starts in a folder of its own.
    """
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA)
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(config.rootpath / ".hypothesis"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Tests and modules live as long as the run: no look for garbage among them, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
