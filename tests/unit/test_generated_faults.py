"""Generated faults: their kinds, their drawing, and the verdict of their room's tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.generated import (
    BESIDES,
    LIVE,
    RedAnyway,
    changed_since,
    drawn,
    files_of,
    judged,
    live_tests,
    room_tests,
    told,
)
from tests.mutants.operators import Mutation, mutations
from tests.mutants.run import KILLED, ROOT, SURVIVED

IT = "faust_assigner/room/it.py"
LESS = "def less(a, b):\n    return a < b\n"
SEES = "from faust_assigner.room.it import less\ndef test_equal(): assert not less(1, 1)\n"
UNSEEING = "def test_it(): assert less(0, 1) and more(1, 0)\n"
STORIES = """
import pathlib, pytest
from faust_assigner.room.it import less

def test_red_anyway(): raise AssertionError

@pytest.mark.flaky(reruns=1)
def test_flaky():
    first = not pathlib.Path("flaky").exists()
    pathlib.Path("flaky").touch()
    assert not first

@pytest.mark.kafka
def test_with_kafka(): raise AssertionError

def test_equal(): assert not less(1, 1)
"""


def tree(folder: Path, test: str, source: str = LESS) -> Path:
    """Create a repository with a module in a room and a test file."""
    for name in ("faust_assigner/room", "tests/unit/room"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
    (folder / IT).write_text(source)
    (folder / "tests/unit/room/test_it.py").write_text(test)
    return folder


def pairs(body: str) -> set[tuple[str, str]]:
    """Return the lines before and after each fault in a function with this body."""
    source = "async def it(a, b, c):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    return {(one.old, one.new) for one in mutations(IT, source)}


def test_a_fault_that_no_test_sees_survives_and_one_that_a_test_sees_is_killed(
    tmp_path: Path,
) -> None:
    """The file is restored after each fault, and no fault runs with another fault's bytecode."""
    source = LESS + "def more(a, b):\n    return a > b\n"
    root = tree(tmp_path, SEES, source)
    seen, unseen = mutations(IT, source)
    outcomes = [one.outcome for one in judged(root, [seen, unseen, seen, unseen])]
    assert outcomes == [KILLED, SURVIVED, KILLED, SURVIVED]
    assert (root / IT).read_text() == source


def test_faults_beside_assertions_are_planted_although_pytest_rewrites_these(
    tmp_path: Path,
) -> None:
    """pytest rewrites the assertions of the package, because it has a plugin."""
    source = "def less(a, b):\n    assert a is not None\n    return a < b\n"
    root = tree(tmp_path, SEES, source)
    rewrite = "import pytest\npytest.register_assert_rewrite('faust_assigner.room.it')\n"
    (root / "tests/unit/conftest.py").write_text(rewrite)
    [verdict] = judged(root, mutations(IT, source))
    assert (verdict.outcome, verdict.detail) == (KILLED, "tests/unit/room/test_it.py::test_equal")


@pytest.mark.slow
def test_a_fault_that_lets_tests_hang_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline ends the test run."""
    monkeypatch.setattr("tests.mutants.generated.PATIENCE", 0.0)
    monkeypatch.setattr("tests.mutants.generated.MORE_S", 3.0)
    source = "def less(a, b):\n    while a > b:\n        break\n    return a < b\n"
    hanging = SEES + "def test_more(): assert not less(2, 1)\n"
    root = tree(tmp_path, hanging, source)
    [fault] = [one for one in mutations(IT, source) if (one.old, one.new) == ("break", "pass")]
    [verdict] = judged(root, [fault])
    assert verdict.outcome == KILLED
    assert "could not end" in verdict.detail


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds another process's memory")
def test_a_fault_that_fills_the_memory_is_killed_by_the_limit_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test of the endless loop fails by MemoryError, long before the deadline ends its process."""
    monkeypatch.setattr("tests.mutants.run.MEMORY_BYTES", 1 << 30)
    loop = "    while a > b:\n        kept.append(bytearray(1 << 20))\n        break\n"
    source = f"def less(a, b):\n    kept = []\n{loop}    return a < b\n"
    root = tree(tmp_path, SEES + "def test_more(): assert not less(2, 1)\n", source)
    [fault] = [one for one in mutations(IT, source) if (one.old, one.new) == ("break", "pass")]
    [verdict] = judged(root, [fault])
    assert (verdict.outcome, verdict.detail) == (KILLED, "tests/unit/room/test_it.py::test_more")


@pytest.mark.slow
def test_what_survives_meets_the_stories_of_the_room(tmp_path: Path) -> None:
    """A failing story kills no fault and hides none; a flaky story is run twice."""
    source = LESS + "def more(a, b):\n    return a > b\n"
    root = tree(tmp_path, "from faust_assigner.room.it import less, more\n" + UNSEEING, source)
    (root / "tests/integration/room").mkdir(parents=True)
    (root / "tests/integration/room/test_story.py").write_text(STORIES)
    [less, more] = mutations(IT, source)
    seen, unseen = judged(root, [less, more], live=True)
    assert (seen.outcome, seen.detail) == (
        KILLED,
        "story: tests/integration/room/test_story.py::test_equal",
    )
    assert (unseen.outcome, unseen.detail) == (SURVIVED, "in the stories, too")
    assert (root / IT).read_text() == source


@pytest.mark.slow
def test_a_function_that_no_test_calls_is_not_seen_and_one_called_by_the_import_is(
    tmp_path: Path,
) -> None:
    """No test runs for the uncalled function; all tests run for a function called at import."""
    source = (
        LESS + "def unasked(a):\n    return not a\ndef limit():\n    return 1\nLIMIT = limit()\n"
    )
    test = SEES.replace("less\n", "less, LIMIT\n", 1) + "def test_limit(): assert LIMIT == 1\n"
    root = tree(tmp_path, test, source)
    _, unasked, *limits = mutations(IT, source)
    silent, *seen = judged(root, [unasked, *limits])
    assert (silent.outcome, silent.detail) == (SURVIVED, "no test calls the function")
    assert [one.outcome for one in seen] == [KILLED, KILLED]


@pytest.mark.slow
def test_faults_in_a_default_and_in_a_function_made_at_the_import_are_judged(
    tmp_path: Path,
) -> None:
    """The first is executed by the import alone; the second belongs to a function within a called one."""
    maker = "def maker(limit):\n    def is_less(a):\n        return a < limit\n    return is_less\n"
    source = f"{maker}less = maker(1)\ndef more(a=1, b=2):\n    return a > b\n"
    test = "from faust_assigner.room.it import less, more\ndef test_it(): assert {}\n"
    faults = mutations(IT, source)
    for name, sees, seen in (
        ("blind", "not less(2) and more(2, 1)", []),
        ("less", "not less(1)", ["maker"]),
        ("boundary", "not more(2, 2)", ["more"]),
        ("default", "not more(b=1)", ["more", "more"]),
    ):
        root = tree(tmp_path / name, test.format(sees), source)
        found = [one for one in judged(root, faults) if one.outcome == KILLED]
        assert [one.mutation.function for one in found] == seen, name


@pytest.mark.slow
def test_tests_that_fail_without_a_fault_kill_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such tests are named and left out; without other tests the run ends."""
    blind = "from faust_assigner.room.it import less\ndef test_never(): assert less(2, 1)\n"
    root = tree(tmp_path / "one", blind)
    with pytest.raises(RedAnyway, match="test_never"):
        list(judged(root, mutations(IT, LESS)))
    root = tree(tmp_path / "two", blind + "def test_less(): assert less(1, 2)\n")
    [verdict] = judged(root, mutations(IT, LESS))
    assert verdict.outcome == SURVIVED
    assert (
        "it fails without any fault: tests/unit/room/test_it.py::test_never"
        in capsys.readouterr().err
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tests_of_two_fast_modules_kill_most_faults() -> None:
    """The tests kill at least 7 of 10 faults drawn with a fixed seed."""
    files = ("faust_assigner/settings/known.py", "faust_assigner/settings/schema.py")
    candidates = [
        fault for file in files for fault in mutations(file, (ROOT / file).read_text("utf-8"))
    ]
    chosen = drawn(candidates, 10, seed=1, without={one.key for one in EQUIVALENT})
    survivors = [one for one in judged(ROOT, chosen) if one.outcome == SURVIVED]
    assert len(chosen) == 10
    assert len(survivors) <= 3, "\n".join(map(told, survivors))


@pytest.mark.parametrize(
    ("body", "old", "new"),
    [
        ("return a in b", "return a in b", "return (a not in b)"),
        ("return a is b", "return a is b", "return (a is not b)"),
        ("return a and b", "return a and b", "return (a or b)"),
        ("return a and b", "return a and b", "return (b)"),
        ("return not a", "return not a", "return (a)"),
        ("return 1 if a() else c", "return 1 if a() else c", "return 1 if (not a()) else c"),
        ("return [a for a in b if c(a)]", *(f"return [a for a in b if {x}]" for x in ("c(a)", "(not c(a))"))),
        ("return b[-1]", "return b[-1]", "return b[-2]"),
        ("return a + b", "return a + b", "return (a - b)"),
        ("a += b", "a += b", "a -= b"),
        ("return min(a, b)", "return min(a, b)", "return max(a, b)"),
        ("return a(b=True)", "return a(b=True)", "return a(b=False)"),
        ("return a(b=c)", "return a(b=c)", "return a()"),
        ("return a, b", "return a, b", "return (b, a)"),
        ("b.discard(a)", "b.discard(a)", "pass"),
        ("await a.stop()", "await a.stop()", "pass"),
        ("a.b = c", "a.b = c", "pass"),
        ("del a[b]", "del a[b]", "pass"),
        ("if a:\n    return b\nreturn c", "return b", "pass"),
        ("for a in b:\n    continue", "continue", "pass"),
        ("if a:\n    raise b", "raise b", "pass"),
        ("try:\n    a()\nexcept b:\n    c()\n    a()", "c() a()", "pass"),
        ("try:\n    a()\nfinally:\n    c()\n    a()", "c() a()", "pass"),
        ("await a()\nb.c = 1", "await a() b.c = 1", "b.c = 1 await a()"),
        ("for a in b:\n    c(a)", "for a in b:", "for a in list(b)[:1]:"),
        ("return [c(a) for a in b]", *(f"return [c(a) for a in {x}]" for x in ("b", "list(b)[:-1]"))),
        ("return a is None", "return a is None", "return (not a)"),
        ("return a is not None", "return a is not None", "return bool(a)"),
        ("return a or b", "return a or b", "return (b if a is None else a)"),
        ("a += b", "a += b", "a = b"),
        ("a.setdefault(b, c)", "a.setdefault(b, c)", "(a.update({b: c}), a[b])[1]"),
        ("a[b] = c", "a[b] = c", "a.setdefault(b, c)"),
        ("try:\n    a()\nexcept (b, c):\n    a(b)", "except (b, c):", "except (b,):"),
        ("try:\n    a()\nfinally:\n    c()", "try: a() finally: c()", "a() c()"),
        ("return a.startswith(b)", "return a.startswith(b)", "return a.endswith(b)"),
        ("return sorted(a)", "return sorted(a)", "return list(a)"),
        ("return a if b else c", "return a if b else c", "return c if b else a"),
        ("for a in b:\n    break", "break", "continue"),
        ("return {**a, 'b': c}", "return {**a, 'b': c}", "return {'b': c, **a}"),
        ("return a | b", "return a | b", "return (a & b)"),
        ("return a(b, c)", "return a(b, c)", "return a(c, b)"),
    ],
)  # fmt: skip
def test_operators(body: str, old: str, new: str) -> None:
    """Each kind of operator is mutated."""
    assert (old, new) in pairs(body)


@pytest.mark.parametrize(
    "body",
    [
        '"""Of 1 < 2."""',
        'self.logger.warning("%d of %d", a + 1, len(b), exc_info=True)',
        'logger.info("%s", a is not None)',
        "assert isinstance(a, int) and b < 1",
        "a: tuple[int, str]",
        "def within(a: tuple[int, str]) -> tuple[int, str]: ...",
        "if TYPE_CHECKING:\n    a.b = 1",
        'raise a(f"{b + 1} of {c}")',
        "return isinstance(a, (b, c))",
        "return zip(a, b, strict=True)",
        "b = await asyncio.sleep(0)",
    ],
)
def test_no_fault_is_made_in_types_texts_and_assertions(body: str) -> None:
    """They would survive, and no test should be written for them."""
    assert pairs(body) == set()


def test_no_fault_outside_functions() -> None:
    """Constants and ``__all__`` are not mutated; methods and nested functions are."""
    constants = '__all__ = ["a", "b"]\nN = 1 + 1\n'
    source = constants + "class A:\n    n = 1 < 2\n    def b(self):\n        return 1 < 2\n"
    assert {one.function for one in mutations(IT, source)} == {"A.b"}


@pytest.mark.slow
def test_every_fault_of_the_package_can_be_compiled() -> None:
    """A fault with a syntax error would be killed by every test; the case compiles one room."""
    for file in files_of(ROOT, "app/rebalance"):
        for one in mutations(file, (ROOT / file).read_text(encoding="utf-8")):
            compile(one.source, file, "exec")


def fault(operator: str, n: int) -> Mutation:
    """Return a fault to draw from; the fault is never planted."""
    return Mutation(IT, "it", n, operator, str(n), "pass", "")


def test_a_seed_draws_the_same_faults_and_rare_operators_among_them() -> None:
    """Plain chance would draw one of the 4 order faults among 400 in 1 draw of 100."""
    candidates = [fault("number", n) for n in range(400)]
    candidates += [fault("order", n) for n in range(400, 404)]
    chosen = drawn(candidates, 30, seed=7)
    assert chosen == drawn(candidates, 30, seed=7) != drawn(candidates, 30, seed=8)
    assert len(set(chosen)) == 30
    assert {one.operator for one in chosen} == {"number", "order"}


def test_faults_that_are_listed_as_equivalent_are_not_drawn() -> None:
    """A listed fault is recognised by its line at any place."""
    candidates = [fault("number", 1), fault("number", 2)]
    moved = Mutation(IT, "it", 99, "number", "1", "pass", "")
    assert drawn(candidates, 30, 7, without={moved.key}) == [candidates[1]]


def test_every_listed_equivalent_can_still_be_made() -> None:
    """A list entry is stale once its code is removed."""
    sources = {one.file: (ROOT / one.file).read_text(encoding="utf-8") for one in EQUIVALENT}
    made = {fault.key for file, source in sources.items() for fault in mutations(file, source)}
    assert [one for one in EQUIVALENT if one.key not in made] == []


def test_the_tests_of_a_file() -> None:
    """The tests are those of the module's room, of the nearest room above, or of its level."""
    assert room_tests(ROOT, "faust_assigner/app/recovery/restore_throttle.py") == (
        "tests/unit/app/lives",
        "tests/unit/app/recovery",
    )
    assert room_tests(ROOT, "faust_assigner/app/host/duties/table.py") == ("tests/unit/app/host",)
    assert "tests/unit/app/test_assignor.py" in room_tests(ROOT, "faust_assigner/app/assignor.py")
    assert "tests/unit/test_planner.py" in room_tests(ROOT, "faust_assigner/planner.py")
    below = room_tests(ROOT, "faust_assigner/coordinator/assignors/uniform.py")
    assert "tests/unit/coordinator" in below
    assert "tests/unit" not in room_tests(ROOT, "faust_assigner/views/report.py")
    assert any(
        test.endswith("[faust_assigner.clients.group_views]")
        for test in room_tests(ROOT, "faust_assigner/clients/group_views.py")
    )
    for file in files_of(ROOT, "."):
        named = {test.partition("::")[0] for test in room_tests(ROOT, file)}
        assert all((ROOT / test).exists() for test in named)


@pytest.mark.parametrize(
    ("file", "stories"),
    [
        ("app/tables/disk.py", ("tests/integration/app/tables",)),
        ("app/membership/leave.py", ("tests/integration/app/membership",)),
        ("app/fixup.py", LIVE["app"]),
        ("broker/serving/listener.py", ("tests/integration/broker",)),
        ("coordinator/classic.py", LIVE["coordinator"]),
        ("pipeline/history/job.py", ("tests/integration/spark",)),
        ("planner.py", LIVE["app/rebalance"][:3]),
    ],
)
def test_the_stories_of_a_file(file: str, stories: tuple[str, ...]) -> None:
    """Stories come from the module's room, the nearest room above, or the planner."""
    assert live_tests(ROOT, f"faust_assigner/{file}") == stories


def test_the_stories_of_the_table_are_there() -> None:
    """All story files of the table and their rooms exist."""
    for room, stories in LIVE.items():
        assert (ROOT / "faust_assigner" / room).exists(), room
        assert all((ROOT / story).exists() for story in stories), stories


def test_the_tests_of_the_table_are_there() -> None:
    """A moved test file would judge no fault."""
    assert [one for named in BESIDES.values() for one in named if not (ROOT / one).exists()] == []


def test_files_changed_since_a_revision(tmp_path: Path) -> None:
    """Only existing Python files of the package are returned."""
    root = tree(tmp_path, SEES)
    (root / "faust_assigner/gone.py").touch()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], cwd=root, check=True)
    (root / IT).write_text(LESS + "\n")
    (root / "faust_assigner/gone.py").unlink()
    (root / "tests/unit/room/test_it.py").write_text("")
    assert changed_since(root, "HEAD") == [IT]
