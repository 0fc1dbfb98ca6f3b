"""A pytest plugin that runs faust-streaming's own tests with our assignor in the place of Faust's.

    pytest -p faust_assigner.testing.faust_suite tests/

Every app that does not choose an assignor gets ours, and so do tests that import the class from
``faust.assignor``; with it come the parts that the fixup installs. The summary tells how often it was
created and which tests cannot apply, with the reason. ``make faust-suite`` fetches the tests and runs
them; :mod:`faust_assigner.testing.faust_suite_run` is what it calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import faust.assignor
import faust.assignor.partition_assignor
import pytest

from faust_assigner.app import fixup
from faust_assigner.app.assignor import PartitionAssignor

#: Tests that ask for something this project means to have otherwise: end of the node id -> the reason.
NOT_APPLICABLE: dict[str, str] = {}

#: Tests that apply to the assignor alone, without the repairs of a rebalance, the faster recovery and the
#: careful router: they look at the insides of what those replace.
ASSIGNOR_ALONE: dict[str, str] = {
    "tests/functional/test_app.py::Test_settings::test_defaults": (
        "asserts Faust's own TableManager and Router, which ours replace"
    ),
    "tests/unit/tables/test_manager.py::Test_Manager::test_on_rebalance": (
        "replaces the recovery service by a mock; our TableManager asks it to close databases first"
    ),
    "tests/unit/test_worker.py::Test_Worker::test_on_init_dependencies__sensors_to_app": (
        "asserts that an app has no sensor but its own; the metrics and the ledger add one each"
    ),
    "tests/unit/sensors/test_base.py::TestSensorDelegate::test_remove": (
        "asserts that an app has no sensor but its own; the metrics and the ledger add one each"
    ),
    "tests/unit/sensors/test_base.py::TestSensorDelegate::test_on_message_in": (
        "sends a mock as a message; the ledger adds up the sizes of messages"
    ),
}

_created = 0


class CountedAssignor(PartitionAssignor):
    """Ours; the summary tells how many the suite created."""

    def __init__(self, app: Any, replicas: int = 0) -> None:
        global _created
        _created += 1
        super().__init__(app, replicas)


def pytest_configure(config: pytest.Config) -> None:
    """Swap the class where Faust's settings and tests look for it."""
    for module in (faust.assignor, faust.assignor.partition_assignor):
        module.PartitionAssignor = CountedAssignor


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot apply, with the reason."""
    for item in items:
        for end, reason in NOT_APPLICABLE.items():
            if item.nodeid.endswith(end):
                item.add_marker(pytest.mark.skip(reason=f"cannot apply: {reason}"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Install nothing but the assignor for the tests that look at what the rest replaces."""
    parts = fixup.PARTS
    if any(item.nodeid.endswith(end) for end in ASSIGNOR_ALONE):
        # Not through the environment: Faust's tests check that it stays as it was.
        left_out = ("repairs", "restore", "router", "cooperative", "reads", "ledger", "metrics")
        fixup.PARTS = tuple(part for part in parts if part not in left_out)
    yield
    fixup.PARTS = parts


@pytest.hookimpl(hookwrapper=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """Say what was swapped, and what could not apply or not in full."""
    yield
    terminalreporter.section("faust_assigner in the place of Faust's assignor")
    terminalreporter.line(f"created {_created} times")
    for title, tests in (
        ("cannot apply", NOT_APPLICABLE),
        ("run on the assignor alone", ASSIGNOR_ALONE),
    ):
        terminalreporter.line(f"{title}: {len(tests)}")
        for end, reason in sorted(tests.items()):
            terminalreporter.line(f"  {end}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run in which nobody asked for our assignor proves nothing."""
    if session.testscollected and not _created and not session.config.option.collectonly:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
