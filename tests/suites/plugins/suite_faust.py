"""A pytest plugin that runs faust-streaming's own tests with our assignor instead of Faust's.

    PYTHONPATH=tests/suites/plugins pytest -p suite_faust FOLDER

Every app gets our assignor, unless it chooses one itself. Tests that import the class from
``faust.assignor`` get our assignor, too. The parts of our fixup are installed in each app, too. The
summary counts the created assignors and lists the skipped tests with their reasons. ``make
faust-suite`` fetches the tests and runs them with ``tests/suites/faust.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import faust.assignor
import faust.assignor.partition_assignor
import pytest

from faust_assigner.app import fixup
from faust_assigner.app.assignor import PartitionAssignor

if TYPE_CHECKING:
    from faust.types.app import AppT

#: Tests of behaviour that this project changes on purpose. The key is the end of a test's node id,
#: and the value is the reason.
NOT_APPLICABLE: dict[str, str] = {}

#: Tests that run with our assignor only, without our other parts (rebalance, recovery, router),
#: because these tests inspect the internals of the replaced parts.
ASSIGNOR_ALONE: dict[str, str] = {
    "tests/functional/test_app.py::Test_settings::test_defaults": (
        "asserts Faust's own TableManager and Router, which ours replace"
    ),
    "tests/unit/app/test_base.py::Test_App::test_reply_consumer": (
        "asserts Faust's own ReplyConsumer, which ours replaces"
    ),
    "tests/unit/agents/test_agent.py::Test_Agent::test_on_isolated_partitions_assigned": (
        "puts mocks into Faust's map of runs by partition; our agent keeps the latest runs itself"
    ),
    "tests/unit/agents/test_agent.py::Test_Agent::test_on_isolated_partitions_revoked": (
        "puts mocks into Faust's map of runs by partition; our agent keeps the latest runs itself"
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
    """Our assignor, with a count of its instances for the summary."""

    def __init__(self, app: AppT, replicas: int = 0) -> None:
        global _created
        _created += 1
        super().__init__(app, replicas)


def pytest_configure(config: pytest.Config) -> None:
    """Replace Faust's assignor by ours, for Faust's settings and for the tests."""
    for module in (faust.assignor, faust.assignor.partition_assignor):
        module.PartitionAssignor = CountedAssignor


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of ``NOT_APPLICABLE``, with their reasons."""
    for item in items:
        for end, reason in NOT_APPLICABLE.items():
            if item.nodeid.endswith(end):
                item.add_marker(pytest.mark.skip(reason=f"cannot apply: {reason}"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Install only the assignor during the tests of ``ASSIGNOR_ALONE``."""
    parts = fixup.PARTS
    if any(item.nodeid.endswith(end) for end in ASSIGNOR_ALONE):
        # The environment is not used, because Faust's tests check that it is unchanged.
        left_out = ("repairs", "router", "reads", "ledger", "metrics")
        fixup.PARTS = tuple(part for part in parts if part not in left_out)
    yield
    fixup.PARTS = parts


@pytest.hookimpl(hookwrapper=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """Report the number of assignors, the skipped tests, and the tests on the assignor alone."""
    yield
    terminalreporter.section("faust_assigner instead of Faust's assignor")
    terminalreporter.line(f"created {_created} times")
    for title, tests in (
        ("cannot apply", NOT_APPLICABLE),
        ("run on the assignor alone", ASSIGNOR_ALONE),
    ):
        terminalreporter.line(f"{title}: {len(tests)}")
        for end, reason in sorted(tests.items()):
            terminalreporter.line(f"  {end}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in which no test used our assignor: such a run says nothing about our assignor."""
    if session.testscollected and not _created and not session.config.option.collectonly:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
