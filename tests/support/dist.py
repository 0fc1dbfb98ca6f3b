"""The package as its users get it: sdist and wheel, checked, installed, the demo run from them.

    python -m tests.support.dist [FOLDER]

Needs a package registry for the clean environments: one with the extras of a worker and the broker,
the other with only the broker's extra. The demo's files are the sdist's ``examples``, unpacked in a
folder without the package's source, so that the demo imports the installed wheel.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

from tests.support.pages import ALL

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "faust_assigner"


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Return a command's output; raise an error with the output if it fails."""
    # With the caller's PYTHONPATH the source could replace the installed package.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """(sdist, wheel) in ``folder``; the wheel is built from the sdist, as an installer would."""
    run(sys.executable, "-m", "build", "--outdir", folder)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def missing_from(wheel: Path) -> list[str]:
    """Return the package's files (py.typed, pages, poms and all others) that the wheel lacks."""
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    ours = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / PACKAGE).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    return sorted(ours - inside)


def unpack_examples(sdist: Path, folder: Path) -> None:
    """Unpack only ``examples/`` of the sdist into ``folder``."""
    with tarfile.open(sdist) as archive:
        for member in archive.getmembers():
            _, _, name = member.name.partition("/")
            if name.startswith("examples/") and member.isfile():
                member.name = name
                archive.extract(member, folder, filter="data")


def install(wheel: Path, extras: str, folder: Path, *more: str) -> Path:
    """Return the Python of a fresh environment with the wheel, its ``extras`` and ``more``."""
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--quiet", f"{wheel}[{extras}]", *more)
    return python


def check_origin(python: Path, folder: Path) -> None:
    """Exit if the package is not imported from the environment of ``python``."""
    found = run(python, "-c", f"import {PACKAGE}; print({PACKAGE}.__file__)", cwd=folder)
    if not Path(found.strip()).is_relative_to(python.parents[1]):
        raise SystemExit(f"{PACKAGE} was imported from {found}")
    print(f"imported from {Path(found.strip()).relative_to(python.parents[2])}")


#: Packages that the broker's extra alone does not install.
NOT_THE_BROKERS = ("aiokafka", "faust", "grpc", "mode", "pyarrow", "pyspark")
START = """
import time
began = time.perf_counter()
from faust_assigner.broker import EmbeddedBroker
with EmbeddedBroker():
    print(f"first start {time.perf_counter() - began:.2f} s, {time.process_time():.2f} s of processor time")
"""


def check_broker_alone(wheel: Path, folder: Path) -> None:
    """Install the broker's extra beside pytest and confluent-kafka; run the guide's test of it.

    Raises RuntimeError if the test fails, SystemExit if a package of another extra was installed.
    """
    python = install(wheel, "broker", folder / "broker", "pytest", "confluent-kafka")
    find = "import importlib.util as u, sys; print(*(m for m in sys.argv[1:] if u.find_spec(m)))"
    if found := run(python, "-c", find, *NOT_THE_BROKERS, cwd=folder).split():
        raise SystemExit(f"the extra `broker` has installed {', '.join(found)}")
    check_origin(python, folder)
    (text,) = [block.text for block in ALL if "def test_confluent_kafka_" in block.text]
    (folder / "test_guide.py").write_text(text)
    print(run(python, "-m", "pytest", "-q", "test_guide.py", cwd=folder), end="")
    print(run(python, "-c", START, cwd=folder), end="")


def main(folder: Path) -> None:
    """Build into ``folder``, check, install in clean environments, run the demo and its last commands."""
    for old in (*folder.glob("*.tar.gz"), *folder.glob("*.whl")):
        old.unlink()
    sdist, wheel = build(folder)
    print(run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel), end="")
    if missing := missing_from(wheel):
        raise SystemExit(f"{wheel.name} lacks {', '.join(missing)}")
    check_installed(sdist, wheel)
    print(f"{sdist}\n{wheel}")


def check_installed(sdist: Path, wheel: Path) -> None:
    """Install the wheel in clean environments; run the demo of the sdist, and its last commands."""
    with tempfile.TemporaryDirectory(prefix="faust-assigner-dist-") as temporary:
        clean = Path(temporary)
        unpack_examples(sdist, clean / "outside")
        check_broker_alone(wheel, clean)
        python = install(wheel, "broker,faust", clean / "venv")
        check_origin(python, clean / "outside")
        demo = ("-m", "examples.orders.demo", "--assignor", "ours", "--orders-per-s", "60")
        said = run(python, *demo, "--ledger", "kept/ledger", cwd=clean / "outside")
        print(said, end="")
        for command in re.findall(
            r"^    (\S+faust-assigner (?:status|why) .*)", said, re.MULTILINE
        ):
            print(run(*shlex.split(command), cwd=clean / "outside"), end="")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist")
