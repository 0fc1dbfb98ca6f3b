"""The runner of planted bugs tells a bug that was seen from one that was not, and from a list out of date."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import Mutant, planted
from tests.mutants.run import BROKEN, KILLED, RED, ROOT, STALE, SURVIVED, judged, listed, rooms
from tests.support.named import is_test

SEEN, UNSEEN = "tests/test_it.py::test_seen", "tests/test_it.py::test_unseen"
RED_ANYWAY, GONE = "tests/test_it.py::test_red", "tests/test_it.py::test_gone"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of one function and a few tests."""
    (tmp_path / "faust_assigner").mkdir()
    (tmp_path / "faust_assigner/__init__.py").touch()
    (tmp_path / "faust_assigner/it.py").write_text("def less(a, b):\n    return a < b\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_it.py").write_text(
        "import pytest\n"
        "from faust_assigner.it import less\n"
        "@pytest.mark.parametrize('b', [1, 2])\n"
        "def test_seen(b): assert not less(1, b) or b == 2\n"
        "def test_unseen(): assert less(1, 2)\n"
        "def test_red(): assert False\n"
    )
    return tmp_path


def mutant(*red: str, old: str = "a < b", new: str = "a <= b") -> Mutant:
    """A bug in the one function."""
    return Mutant("less or equal", "faust_assigner/it.py", old, new, red)


def test_what_becomes_of_a_mutant(tree: Path) -> None:
    """Killed only where every named test is green without the bug and red with it."""
    cases = [
        (mutant(SEEN), KILLED, ""),
        (mutant(f"{SEEN}[1]"), KILLED, ""),
        (mutant(f"{SEEN}[2]"), SURVIVED, f"{SEEN}[2]"),
        (mutant(SEEN, UNSEEN), SURVIVED, UNSEEN),
        (mutant(SEEN, old="a > b"), STALE, "found 0 times"),
        (mutant(SEEN, old="a"), STALE, "found 2 times"),
        (mutant(SEEN, new="a <"), BROKEN, "invalid syntax"),
        (mutant(SEEN, RED_ANYWAY), RED, RED_ANYWAY),
    ]
    verdicts = list(judged(tree, [bug for bug, *_ in cases], jobs=2))
    assert [verdict.outcome for verdict in verdicts] == [outcome for _, outcome, _ in cases]
    assert all(
        detail in verdict.detail for verdict, (*_, detail) in zip(verdicts, cases, strict=True)
    )
    assert list((tree / "build").iterdir()) == []


def test_a_mutant_whose_test_is_gone_is_broken(tree: Path) -> None:
    """And the others of its room are still judged."""
    verdicts = list(judged(tree, [mutant(GONE), mutant(SEEN)]))
    assert [verdict.outcome for verdict in verdicts] == [BROKEN, KILLED]
    assert GONE in verdicts[0].detail


def test_every_listed_bug_can_still_be_planted() -> None:
    """A text that is no longer in its file would plant nothing, and its test would pass for nothing."""
    for room in rooms():
        for bug in listed(room):
            compile(planted((ROOT / bug.file).read_text(encoding="utf-8"), bug), bug.file, "exec")


def test_every_test_that_a_listed_bug_names_is_there() -> None:
    """A test that was moved would leave its bugs unseen until somebody plants them all."""
    assert [
        red for room in rooms() for bug in listed(room) for red in bug.red if not is_test(red)
    ] == []
