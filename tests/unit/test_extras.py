"""Each room imports with only its own extra's packages; without them the error names the extra."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from faust_assigner.settings.extras import EXTRAS

ROOT = Path(__file__).parents[2]
OURS = "faust-assigner"
#: The extras of an installation -> its rooms, and the modules of these rooms needing more packages.
ROOMS: Mapping[tuple[str, ...], tuple[Sequence[str], str]] = {
    (): (("cli", "planner", "simulation", "views"), "-"),
    ("broker",): (
        ("broker", "coordinator", "testing"),
        r"broker\.metrics|testing\.(apps|clock|fleet|in_process|log|moves|rest|turns|worker)",
    ),
    ("clients",): (("clients", "page", "status", "story"), r"page\.(asgi|mount|thread)"),
    ("service",): (("scaler", "service"), "-"),
    ("faust",): (("app", "deploy", "doctor", "page", "snapshots"), r"app\.metrics\.exporters"),
    ("spark",): (("pipeline", "snapshots"), "-"),
}
#: The rooms whose imports take the shortest time; `make test` imports them alone.
SHORT = ()
IMPORT = """
import importlib, json, pkgutil, re, sys
rooms, left_out, blocked = json.loads(sys.argv[1])

class Gate:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Gate())
for room in rooms:
    found = importlib.import_module(f"faust_assigner.{room}")
    for module in pkgutil.walk_packages(getattr(found, "__path__", ()), f"{found.__name__}."):
        name = module.name
        if not name.endswith("__main__") and not re.fullmatch(rf"faust_assigner\\.({left_out})", name):
            importlib.import_module(name)
"""


def requirements(extras: Iterable[str]) -> Iterator[Requirement]:
    """Yield the requirements in setup.cfg: the common core and these extras."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    texts = [settings["options"]["install_requires"]]
    texts += [settings["options.extras_require"][extra] for extra in extras]
    for line in "\n".join(texts).splitlines():
        if line and not line.startswith("#"):
            yield Requirement(line)


def closure(extras: Iterable[str]) -> set[str]:
    """Return the normalized names of all distributions installed with these extras."""
    found: set[tuple[str, str]] = set()
    waiting = list(requirements(extras))
    while waiting:
        wanted = waiting.pop()
        name = normal(wanted.name)
        for extra in ("", *wanted.extras):
            if (name, extra) in found:
                continue
            found.add((name, extra))
            if name == OURS:
                waiting += requirements([extra] if extra else [])
                continue
            try:
                texts = requires(name) or []
            except PackageNotFoundError:
                continue
            more = [Requirement(text) for text in texts]
            waiting += [r for r in more if r.marker is None or r.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def normal(name: str) -> str:
    """Return the name in the normalized form of package registries."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def named() -> Mapping[str, set[str]]:
    """Return import name -> the normalized names of its distributions."""
    return {m: {normal(name) for name in by} for m, by in packages_distributions().items()}


def modules(extras: Iterable[str]) -> set[str]:
    """Return the import names of the distributions, without this package."""
    inside = closure(extras) - {OURS}
    return {module for module, by in named().items() if by & inside}


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the code in a new Python process, in which no module is loaded yet."""
    command = [sys.executable, "-c", code, json.dumps(arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize(
    "extras",
    [
        pytest.param(one, id=one[0] if one else "none", marks=[pytest.mark.slow] * (one != SHORT))
        for one in ROOMS
    ],
)
def test_rooms_import_with_their_extra_alone(extras: tuple[str, ...]) -> None:
    """No module of the rooms imports a package installed only by an extra of other rooms."""
    blocked = modules(chain.from_iterable(ROOMS)) - modules(extras)
    assert blocked
    rooms, left_out = ROOMS[extras]
    done = run_python(IMPORT, rooms, left_out, sorted(blocked))
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_broker_installs_neither_faust_nor_a_client_nor_spark() -> None:
    """The case follows the requirements of all requirements."""
    inside = closure(["broker"])
    assert {"kio", "rocksdict", "uvloop"} <= inside
    assert not inside & {
        "faust-streaming",
        "mode-streaming",
        "aiokafka",
        "pyspark",
        "grpcio",
        "pyarrow",
    }


@pytest.mark.parametrize(
    ("statement", "missing", "sentence"),
    [
        (
            "from faust_assigner import PartitionAssignor",
            "mode",
            "mode is not installed: pip install 'faust-assigner[faust]'",
        ),
        (
            "import faust_assigner.app.assignor",
            "mode",
            "mode is not installed: pip install 'faust-assigner[faust]'",
        ),
        (
            "import faust_assigner.broker.server",
            "kio",
            "kio is not installed: pip install 'faust-assigner[broker]'",
        ),
        (
            "import faust_assigner.broker",
            "rocksdict",
            "rocksdict is not installed: pip install 'faust-assigner[broker]'",
        ),
        (
            "import faust_assigner.clients",
            "aiokafka",
            "aiokafka is not installed: pip install 'faust-assigner[clients]'",
        ),
        (
            "import faust_assigner.service.client",
            "grpc",
            "grpc is not installed: pip install 'faust-assigner[service]'",
        ),
    ],
)
def test_an_import_without_its_extra_names_the_extra(
    statement: str, missing: str, sentence: str
) -> None:
    """The last line of the traceback is the instruction."""
    done = run_python(f"import sys; sys.modules[{missing!r}] = None; {statement}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"faust_assigner.errors.MissingExtra: {sentence}"


@pytest.mark.parametrize(
    ("words", "missing", "extra"),
    [
        (("broker",), "kio", "broker"),
        (("groups", "list"), "aiokafka", "clients"),
        (("broker", "--port", "0", "--metrics-port", "0"), "prometheus_client", "metrics"),
        (("history", "--no-spark", "--ledger", "nowhere", "--out", "out"), "pyarrow", "ledger"),
    ],
)
def test_a_command_without_its_extra_is_one_line(
    words: tuple[str, ...], missing: str, extra: str
) -> None:
    """The line names the extra; the exit code is 1."""
    block = f"import sys; sys.modules[{missing!r}] = None; sys.argv[1:] = {list(words)}"
    block += "; from faust_assigner.cli import main; main()"
    done = run_python(block)
    print(done.stderr)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        f"faust-assigner: {missing} is not installed: pip install 'faust-assigner[{extra}]'",
    )


def test_a_fault_of_our_own_is_not_a_missing_extra() -> None:
    """A missing module of this package raises Python's own error."""
    done = run_python(
        "from faust_assigner.settings.extras import needs\n"
        "with needs('broker'):\n    import faust_assigner.nowhere"
    )
    assert "ModuleNotFoundError: No module named 'faust_assigner.nowhere'" in done.stderr


def test_every_extra_that_an_error_names_exists() -> None:
    """The extra exists and installs the missing package."""
    for module, extra in EXTRAS.items():
        assert module in modules([extra]), (module, extra)
