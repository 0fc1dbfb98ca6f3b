"""Draws faults at random from the functions of a room and looks whether the tests of that room see them.

    python -m tests.mutants.generated --room app/recovery --count 30 --seed 7
    python -m tests.mutants.generated --room planner.py --room standbys
    python -m tests.mutants.generated --changed main~5        # files that differ from that revision
    python -m tests.mutants.generated --room app --live       # the stories too

A fault is ``killed`` when a test of its room fails or does not end, and ``SURVIVED`` when all of them pass. Only
the tests that call the function of a fault are run, in a fork of one collected run (``forked.py``). With
``--live`` a fault that survived meets all other tests of its room: the stories in tests/integration on real
processes, the embedded broker, Apache Kafka and Spark, and all examples of the properties. The short tests
come before the slow tests; ten minutes is the limit for one fault. A story counts that fails with the fault
(twice, where it starts processes) and passes without it.
``tests/mutants/equivalent.py`` lists the faults that change nothing; they are not drawn. Exit code 1 when one
survived, 2 when the tests fail without any fault.

mutmut 3 and cosmic-ray make no fault out of a forgotten statement, a lost ``return`` or the order of two side
effects, and mutmut's trampolines hide the functions' signatures from the checks of the host's methods.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.mutants import forked
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.operators import Mutation, mutations
from tests.mutants.run import KILLED, LIMIT_S, ROOT, SURVIVED, copy, run, scratch

PACKAGE = "faust_assigner"
#: The plans of whole lives of groups, line by line.
RECORD = "tests/scenarios/test_plans_of_record.py"
#: Tests of planning as a whole, which its modules share.
PLANNING = (
    "tests/unit/test_planner.py",
    "tests/scenarios/test_churn.py",
    "tests/scenarios/test_counter_examples.py",
    RECORD,
    "tests/scenarios/test_sticky_specs.py",
    "tests/property/test_state_machine.py",
)
#: Tests of warm-ups, and of tasks that return to their former owner.
WARM = (RECORD, "tests/property/test_warmth.py", "tests/property/warm")
STANDBYS = (
    "tests/unit/test_standby.py",
    RECORD,
    "tests/scenarios/test_standbys.py",
    "tests/property/test_standby_objective.py",
)
CLI = (
    "tests/unit/clients",
    "tests/unit/deploy/test_command.py",
    "tests/unit/doctor",
    "tests/unit/pipeline/history",
    "tests/unit/pipeline/simulate",
    "tests/unit/pipeline/weights",
    "tests/unit/scaler/test_command.py",
    "tests/unit/service/test_options.py",
    "tests/unit/status",
    "tests/unit/story/test_command.py",
    "tests/unit/test_commands.py",
)
#: Lives of whole workers, for the rooms whose code runs in each round.
LIVES = "tests/unit/app/lives"
#: Tests of a room or module that are not below tests/unit/ROOM or in tests/unit/test_MODULE*.py.
BESIDES = {
    "actives": (
        *PLANNING,
        "tests/property/test_exactness.py",
        "tests/property/test_optimality.py",
        "tests/property/warm/test_homing.py",
    ),
    "app/assignor.py": ("tests/unit/app/rebalance", LIVES),
    "app/consumer": (LIVES,),
    "app/membership": (LIVES,),
    "app/rebalance": (LIVES,),
    "app/recovery": (LIVES,),
    "app/tables": ("tests/property/test_overlay.py", LIVES),
    "app/transactions": (LIVES,),
    "app/tables/disk.py": ("tests/unit/app/rebalance/test_positions.py",),
    "assignment.py": PLANNING,
    "checks": ("tests/property/test_promotions.py", "tests/unit/test_previous.py"),
    "cli": CLI,
    "coordinator": ("tests/scenarios/test_consumer_groups.py",),
    "followers.py": (RECORD,),
    "grouper.py": (RECORD,),
    "model.py": PLANNING,
    "checks/optimality.py": ("tests/property/test_optimality.py",),
    "planner.py": (*PLANNING, *WARM),
    "previous.py": (RECORD,),
    "promotion.py": (
        *PLANNING,
        "tests/unit/actives/test_promotion.py",
        "tests/property/test_promotions.py",
    ),
    "standby.py": ("tests/unit/standbys", *STANDBYS),
    "standbys": STANDBYS,
    "sticky.py": (*PLANNING, *WARM),
    "views": (*PLANNING, "tests/property/test_words.py"),
    "warmup.py": WARM,
    "scaler": ("tests/property/test_scaler.py", "tests/scenarios/test_scaling.py"),
    "settings/service.py": ("tests/unit/service/test_options.py",),
    "weights": ("tests/property/test_weighted.py", "tests/unit/test_weightless.py"),
    "wire": ("tests/property/test_fuzz_userdata.py",),
}
_APP = "tests/integration/app/"
_PLACED = (f"{_APP}test_assignor_wire.py", f"{_APP}test_warmups.py", f"{_APP}test_real_workers.py")
#: Stories of a room or module that are not below tests/integration/ROOM; the entry of the longest name counts.
LIVE = {
    "app": tuple(f"{_APP}test_{name}.py" for name in ("warmups", "real_workers", "stop_all")),
    "app/assignor.py": (*_PLACED, f"{_APP}test_assignor_static.py", f"{_APP}test_stop_all.py"),
    "app/host": (f"{_APP}consumer", f"{_APP}membership", f"{_APP}test_metrics.py"),
    "app/ledger": (f"{_APP}test_ledger_worker.py", f"{_APP}test_why.py"),
    "app/metrics": (f"{_APP}test_metrics.py", f"{_APP}test_status_command.py"),
    "app/recovery": (f"{_APP}recovery",),
    "app/rebalance": (*_PLACED, f"{_APP}test_mixed_group.py", f"{_APP}test_stop_all.py"),
    "app/weights": (f"{_APP}test_weights_group.py",),
    "cli": (f"{_APP}test_status_command.py", f"{_APP}test_why.py", "tests/integration/clients"),
    "coordinator": ("tests/integration/broker", "tests/integration/clients"),
    "deploy": (f"{_APP}test_deploy_check.py",),
    "doctor": (f"{_APP}test_doctor_command.py",),
    "pipeline": ("tests/integration/spark",),
    "scaler": (f"{_APP}test_scaler_command.py",),
    "service": ("tests/integration/service", "tests/integration/served"),
    "snapshots": ("tests/integration/snapshots",),
    "status": (f"{_APP}test_status_command.py", "tests/integration/page"),
    "story": (f"{_APP}test_why.py",),
    "weights": (f"{_APP}test_weights_group.py",),
}
#: Seconds for the stories of one fault.
LIVE_S = 600.0
EXAMPLES = "tests/unit/docs/test_docstrings.py::test_examples_in_docstrings_are_true"
#: As in `make test`, ended by the first failure; a test that hangs is one that failed.
WITHOUT_A_FAULT = ("-p", "no:randomly", "-m", "not slow and not kafka and not spark")
OPTIONS = ("-x", "--timeout=60", *WITHOUT_A_FAULT)
#: The rest of a room's tests: first the short ones, then all that `make test-all` has beside them.
STORIES = tuple(
    ("-p", "no:randomly", "-m", f"not browser and {kind}")
    for kind in ("not (slow or kafka)", "(slow or kafka)")
)
#: The name of tests.mutants.forked in a copy of the tree.
PLUGIN = "forked_judge"
#: The tests of a fault may take this many times what they take without one, and this many seconds more.
PATIENCE, MORE_S = 5.0, 60.0


class RedAnyway(Exception):
    """All tests fail without any fault; they would kill everything."""


class Verdict(NamedTuple):
    """What became of one fault; ``detail`` is the test that saw it, or how else its tests ended."""

    mutation: Mutation
    outcome: str
    seconds: float
    detail: str = ""


def files_of(root: Path, room: str) -> list[str]:
    """The Python files of a folder or module of the package that people wrote, from the repository's root."""
    inside = root / PACKAGE / room
    found = [inside] if inside.is_file() else sorted(inside.rglob("*.py"))
    return [str(file.relative_to(root)) for file in found if "_pb2" not in file.name]


def changed_since(root: Path, revision: str) -> list[str]:
    """The files of the package that differ from a revision."""
    command = ["git", "diff", "--name-only", "--diff-filter=d", revision, "--", PACKAGE]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.splitlines() if name.endswith(".py")]


def room_tests(root: Path, file: str) -> tuple[str, ...]:
    """The tests of a file's room: those below its folder in tests/unit, or the nearest above, and BESIDES."""
    path = Path(file).relative_to(PACKAGE)
    unit = root / "tests/unit"
    places: list[Path] = sorted((unit / path.parent).glob(f"test_{path.stem}*.py"))
    if path.parent != Path() and (unit / path.parent).is_dir():
        # A module of its own right beside other rooms (app/assignor.py) has the tests beside them.
        has_rooms = any(
            (child / "__init__.py").exists() for child in (unit / path.parent).iterdir()
        )
        flat = sorted((unit / path.parent).glob("test_*.py"))
        places = flat if has_rooms and flat else [unit / path.parent]
    besides = {
        test
        for name in (str(path), *map(str, path.parents))
        for test in BESIDES.get(name, ())
        if (root / test).exists()
    }
    if not places and path.parent != Path():
        above = next(one for one in (unit / path.parent).parents if one.is_dir())
        places = [] if above == unit and besides else [above]
    return tuple(
        sorted({str(place.relative_to(root)) for place in places} | besides | _examples(root, file))
    )


def live_tests(root: Path, file: str) -> tuple[str, ...]:
    """The stories of a file's room, of the nearest room above that has any; those of planning for the core."""
    path = Path(file).relative_to(PACKAGE)
    for name in map(str, (path, *path.parents)):
        folder = root / "tests/integration" / name
        found = LIVE.get(name) or ((f"tests/integration/{name}",) if folder.is_dir() else ())
        if found and name != ".":
            return tuple(story for story in found if (root / story).exists())
    return tuple(story for story in _PLACED if (root / story).exists())


def _examples(root: Path, file: str) -> set[str]:
    """The test of the examples in its docstrings, if there are any."""
    if (root / EXAMPLES.partition("::")[0]).exists() and ">>> " in (root / file).read_text("utf-8"):
        module = ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")
        return {f"{EXAMPLES}[{module}]"}
    return set()


def drawn(
    candidates: Iterable[Mutation],
    count: int,
    seed: int,
    *,
    without: Collection[tuple[str, str, str, str]] = (),
) -> list[Mutation]:
    """At most ``count`` of them, the same for one seed.

    The chance of an operator is the root of the number of its faults: all appear, frequent ones more often.
    """
    generator = random.Random(seed)
    by_operator: dict[str, list[Mutation]] = defaultdict(list)
    for mutation in candidates:
        if mutation.key not in without:
            by_operator[mutation.operator].append(mutation)
    chosen: list[Mutation] = []
    while by_operator and len(chosen) < count:
        names = sorted(by_operator)
        chances = [math.sqrt(len(by_operator[name])) for name in names]
        left = by_operator[(name := generator.choices(names, chances)[0])]
        chosen.append(left.pop(generator.randrange(len(left))))
        if not left:
            del by_operator[name]
    return chosen


class Tree:
    """A copy of the repository in which one fault at a time is planted."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._folder = copy(root, folder)
        shutil.copy2(forked.__file__, folder / f"{PLUGIN}.py")
        self._written = 1_000_000_000

    def judge(self, faults: Sequence[Mutation], tests: Sequence[str]) -> Iterator[Verdict]:
        """Yield the verdict of these tests on each fault. Raises RedAnyway."""
        fields = [
            {"file": one.file, "function": one.function, "source": one.source} for one in faults
        ]
        asked = {"patience": PATIENCE, "more_s": MORE_S, "faults": fields}
        (self._folder / forked.FAULTS).write_text(json.dumps(asked), encoding="utf-8")
        verdicts = self._folder / forked.VERDICTS
        verdicts.unlink(missing_ok=True)
        _, reason = run(
            self._folder,
            tests,
            # pytest rewrites the package's asserts, as those of any plugin; forks look for the plain code.
            options=(*WITHOUT_A_FAULT, "-s", "--assert=plain", "-p", PLUGIN),
            environment={},
            limit_s=LIMIT_S * (1 + len(faults)),
        )
        if not verdicts.exists():
            raise RedAnyway(reason)
        red, *found = map(json.loads, verdicts.read_text(encoding="utf-8").splitlines())
        for name in red:
            print(f"Left out, it fails without any fault: {name}", file=sys.stderr)
        for fault, (outcome, seconds, detail) in zip(faults, found, strict=False):
            if outcome == forked.UNPLANTED:
                yield self._judge_alone(fault, tests, red)
            else:
                yield Verdict(fault, outcome, seconds, detail)
        if len(found) < len(faults):
            raise RedAnyway(reason if found else ", ".join(red) or reason)

    def _judge_alone(self, mutation: Mutation, tests: Sequence[str], red: Sequence[str]) -> Verdict:
        """Run all tests in a process of their own: the import executes the fault."""
        began, file = time.monotonic(), self._folder / mutation.file
        before = file.read_text(encoding="utf-8")
        self._write(file, mutation.source)
        try:
            options = (*OPTIONS, *(f"--deselect={name}" for name in red))
            outcomes, reason = run(self._folder, tests, options=options, environment={})
        finally:
            self._write(file, before)
        seconds = time.monotonic() - began
        if failed := sorted(name for name, bad in outcomes.items() if bad):
            return Verdict(mutation, KILLED, seconds, failed[0])
        if reason:
            return Verdict(mutation, KILLED, seconds, f"the tests could not end: {reason}")
        return Verdict(mutation, SURVIVED, seconds)

    def judge_live(self, mutation: Mutation, stories: Sequence[str]) -> Verdict:
        """Plant one fault and run stories until one fails that passes without it."""
        began, left_out = time.monotonic(), list[str]()
        file, passes = self._folder / mutation.file, list(STORIES)
        before = file.read_text(encoding="utf-8")
        while passes and (left_s := began + LIVE_S - time.monotonic()) > 0:
            skipped = [f"--deselect={name}" for name in left_out]
            self._write(file, mutation.source)
            try:
                failed = self._failed(stories, ("-x", *skipped, *passes[0]), left_s)
            finally:
                self._write(file, before)
            if not failed:
                del passes[0]
            elif self._failed(failed, passes[0], LIVE_S):
                left_out += failed
            else:
                return Verdict(mutation, KILLED, time.monotonic() - began, f"story: {failed[0]}")
        detail = "its time was over within the stories" if passes else "in the stories, too"
        return Verdict(mutation, SURVIVED, time.monotonic() - began, detail)

    def _failed(self, tests: Sequence[str], options: Sequence[str], limit_s: float) -> list[str]:
        """Those that fail; none where their time is up."""
        outcomes, _ = run(
            self._folder,
            tests,
            options=options,
            environment={"FULL": "1"},
            limit_s=limit_s,
            tries=2,
        )
        return sorted(name for name, bad in outcomes.items() if bad)

    def _write(self, file: Path, source: str) -> None:
        """With a time of its own for each content: bytecode, which is kept, is known by it."""
        file.write_text(source, encoding="utf-8")
        self._written += 10
        os.utime(file, (self._written, self._written))


def judged(root: Path, chosen: Sequence[Mutation], *, live: bool = False) -> Iterator[Verdict]:
    """A verdict for each, one set of tests after the other, as they come. Raises RedAnyway."""
    by_tests: dict[tuple[str, ...], list[Mutation]] = defaultdict(list)
    for mutation in chosen:
        by_tests[room_tests(root, mutation.file)].append(mutation)
    with scratch(root) as folder:
        tree = Tree(root, Path(folder))
        for tests, faults in by_tests.items():
            for verdict in tree.judge(faults, tests):
                if live and verdict.outcome == SURVIVED:
                    stories = (*live_tests(root, verdict.mutation.file), *tests)
                    yield tree.judge_live(verdict.mutation, stories)
                else:
                    yield verdict


def told(verdict: Verdict) -> str:
    """The lines of one verdict."""
    mutation = verdict.mutation
    head = f"{verdict.outcome:8} {verdict.seconds:6.1f} s  {mutation.file}:{mutation.line} {mutation.function}"
    lines = [f"{head}  ({mutation.operator})", f"    - {mutation.old}", f"    + {mutation.new}"]
    return "\n".join((*lines, f"    {verdict.detail}") if verdict.detail else lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each and the sum."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants.generated", description="Plant faults drawn at random."
    )
    parser.add_argument(
        "--room", action="append", default=[], help="folder or module, app/recovery"
    )
    parser.add_argument("--changed", metavar="BASE", help="files that differ from this revision")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--live", action="store_true", help="survivors meet the stories, too")
    options = parser.parse_args(arguments)
    files = {file for room in options.room for file in files_of(ROOT, room)}
    if options.changed:
        files |= set(changed_since(ROOT, options.changed))
    if not files:
        parser.error("no files: name a --room of the package, or a revision with changes")
    candidates = (
        mutation
        for file in sorted(files)
        for mutation in mutations(file, (ROOT / file).read_text(encoding="utf-8"))
    )
    chosen = drawn(candidates, options.count, options.seed, without={one.key for one in EQUIVALENT})
    tally: Counter[str] = Counter()
    try:
        for verdict in judged(ROOT, chosen, live=options.live):
            tally[verdict.outcome] += 1
            print(told(verdict), flush=True)
    except RedAnyway as exc:
        print(f"The tests fail without any fault: {exc}", file=sys.stderr)
        return 2
    print(f"killed {tally[KILLED]} of {len(chosen)} (seed {options.seed})")
    return 0 if chosen and tally[KILLED] == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
