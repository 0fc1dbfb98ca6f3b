"""The pytest plugin of Faust's own tests: the replaced assignor, the skips and the summary."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import faust.assignor
import faust.assignor.partition_assignor
import pytest

from faust_assigner.app import fixup
from faust_assigner.app.assignor import PartitionAssignor
from tests.suites.plugins import suite_faust
from tests.suites.plugins.suite_faust import CountedAssignor


@pytest.fixture(autouse=True)
def suite(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No assignor was created, and two tests cannot apply."""
    monkeypatch.setattr(suite_faust, "_created", 0)
    monkeypatch.setattr(suite_faust, "NOT_APPLICABLE", {"b.py::two": "why 2", "a.py::one": "why 1"})
    monkeypatch.setattr(suite_faust, "ASSIGNOR_ALONE", {"c.py::three": "why 3"})
    return


def item(nodeid: str) -> Any:
    """Return a test that keeps its marks."""
    marks: list[Any] = []
    return SimpleNamespace(nodeid=nodeid, marks=marks, add_marker=marks.append)


def test_both_places_of_fausts_assignor_have_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faust's settings and its tests import the class from different modules."""
    for module in (faust.assignor, faust.assignor.partition_assignor):
        monkeypatch.setattr(module, "PartitionAssignor", None, raising=False)
    suite_faust.pytest_configure(None)  # type: ignore[arg-type]
    assert faust.assignor.PartitionAssignor is CountedAssignor
    assert faust.assignor.partition_assignor.PartitionAssignor is CountedAssignor


def test_each_created_assignor_is_counted_with_its_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The number of replicas is passed on; its default is none."""
    seen: list[Any] = []
    monkeypatch.setattr(PartitionAssignor, "__init__", lambda it, *given: seen.append(given))
    app: Any = object()
    CountedAssignor(app, 2)
    CountedAssignor(app)
    assert (seen, suite_faust._created) == ([(app, 2), (app, 0)], 2)


def test_only_tests_that_cannot_apply_are_skipped_with_their_reasons() -> None:
    """A test is named by the end of its id."""
    items = [item("x/a.py::one"), item("x/a.py::one_more"), item("b.py::two")]
    suite_faust.pytest_collection_modifyitems(items)
    assert [[(one.name, one.kwargs) for one in test.marks] for test in items] == [
        [("skip", {"reason": "cannot apply: why 1"})],
        [],
        [("skip", {"reason": "cannot apply: why 2"})],
    ]


def test_a_test_of_replaced_internals_has_the_assignor_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other parts are left out during the test and are back after it."""
    parts = ("assignor", "repairs", "router", "reads", "ledger", "metrics", "others")
    monkeypatch.setattr(fixup, "PARTS", parts)
    during = []
    for name in ("x/c.py::three", "x/c.py::three_more"):
        run = suite_faust.pytest_runtest_protocol(item(name))
        next(run)
        during.append(fixup.PARTS)
        assert next(run, None) is None
        assert parts == fixup.PARTS
    assert during == [("assignor", "others"), parts]


def test_the_summary_lists_the_tests_by_name_after_pytests_own() -> None:
    """The count of assignors is first."""
    told: list[Any] = []
    reporter = SimpleNamespace(section=lambda text: told.append(f"= {text}"), line=told.append)
    suite_faust._created = 5
    run = suite_faust.pytest_terminal_summary(reporter)
    next(run)
    assert told == []
    assert next(run, None) is None
    assert told == [
        "= faust_assigner instead of Faust's assignor",
        "created 5 times",
        "cannot apply: 2",
        "  a.py::one: why 1",
        "  b.py::two: why 2",
        "run on the assignor alone: 1",
        "  c.py::three: why 3",
    ]


@pytest.mark.parametrize(
    ("collected", "created", "is_only_collected", "fails"),
    [(3, 0, False, True), (0, 0, False, False), (3, 1, False, False), (3, 0, True, False)],
)
def test_a_run_whose_tests_create_no_assignor_fails(
    collected: int, created: int, is_only_collected: bool, fails: bool
) -> None:
    """A run without tests, or which only lists its tests, proves nothing and passes."""
    suite_faust._created = created
    option = SimpleNamespace(collectonly=is_only_collected)
    session: Any = SimpleNamespace(
        testscollected=collected, config=SimpleNamespace(option=option), exitstatus=0
    )
    suite_faust.pytest_sessionfinish(session)
    assert session.exitstatus == (pytest.ExitCode.TESTS_FAILED if fails else 0)
