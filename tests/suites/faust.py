"""Fetches Faust's own tests and runs them with our assignor, for ``make faust-suite``.

    python -m tests.suites.faust [--stock] [pytest arguments ...]

The sdist of faust-streaming 0.15.3 is fetched once from the package index into the cache folder
(``$FAUST_ASSIGNER_CACHE`` or ``~/.cache/faust-assigner``). The tests run in a separate environment,
because they need an older pytest than ours. All other packages come from the environment of this process.
``--stock`` runs the tests with Faust's own assignor,
for comparison. Tests that need a broker or Redis at a fixed port, or a free-threaded Python, skip
themselves with a message.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

from faust_assigner.pipeline.maven import cache_dir

VERSION = "0.15.3"
NAME = f"faust_streaming-{VERSION}"
ROOT = Path(__file__).parents[2]
PLUGINS = Path(__file__).with_name("plugins")

#: Plugins of our tests that refuse the older pytest, or are not for Faust's tests.
WITHOUT = ("rerunfailures", "timeout", "xdist")
#: The requirements of Faust's tests, from its requirements/test.txt and extras.
REQUIREMENTS = (
    f"faust-streaming=={VERSION}",
    "pytest<8",
    "pytest-asyncio<0.24",
    "pytest-aiofiles",
    "pytest-aiohttp",
    "pytest-cov",
    "pytest-forked",
    "pytest-random-order",
    "pytest-run-parallel",
    "hypothesis",
    "freezegun",
    "python-dateutil",
    "pytz",
    "intervaltree",
    "confluent-kafka",
    "datadog",
    "opentelemetry-api",
    "opentelemetry-sdk",
    "opentracing",
    "redis",
    "statsd",
    "pyyaml",
    "prometheus_client",
    "uvicorn",
    "setuptools",
    "cython",
)
FOLDERS = ("unit", "functional", "integration", "meticulous", "regression")


def cache_folder() -> Path:
    """Return the cache folder for the tests and their environments."""
    return cache_dir() / "faust-suite"


def fetch(folder: Path) -> Path:
    """Return the folder of the unpacked tests, without Faust's sources.

    The sources are removed, so that the tests import the installed package.
    """
    tree = folder / NAME
    if not (tree / "tests").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        archive = folder / f"{NAME}.tar.gz"
        if not archive.exists():
            print(f"Fetching {archive.name}", flush=True)
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "pip",
                    "download",
                    "-q",
                    "--no-deps",
                    "--no-binary",
                    "faust-streaming",
                    "-d",
                    folder,
                    f"faust-streaming=={VERSION}",
                ],
                check=True,
            )
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        shutil.rmtree(tree / "faust")
    return tree


def environment(folder: Path) -> Path:
    """Return a Python with Faust, this checkout and the tests' requirements; build it once.

    The packages of this process's environment come after its own, so it installs only the others.
    """
    beside, ours = sysconfig.get_path("purelib"), (ROOT / "setup.cfg").read_text()
    made_of = "\n".join((*REQUIREMENTS, ours, beside, str(ROOT), sys.version))
    venv = folder / f"venv-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
    python = venv / "bin" / "python"
    if not (venv / "ready").exists():
        print(f"Building {venv}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        own = Path(sysconfig.get_path("purelib", "venv", {"base": str(venv)}))
        own.mkdir(parents=True, exist_ok=True)
        (own / "beside.pth").write_text(f"import site; site.addsitedir({beside!r})\n")
        subprocess.run([python, "-m", "pip", "install", "-q", *REQUIREMENTS], check=True)
        (venv / "ready").touch()
    return python


def main(arguments: list[str]) -> int:
    """Run the tests; return pytest's exit code."""
    stock = "--stock" in arguments
    chosen = [a for a in arguments if a != "--stock"] or [f"tests/{name}" for name in FOLDERS]
    folder = cache_folder()
    tree, python = fetch(folder), environment(folder)
    plugin = [] if stock else ["-p", "suite_faust"]
    path = [str(PLUGINS), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [
            python,
            "-m",
            "pytest",
            "-q",
            "-rs",
            "-o",
            "addopts=",
            "-p",
            "no:cacheprovider",
            *(f"-pno:{name}" for name in WITHOUT),
            *plugin,
            *chosen,
        ],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONWARNINGS": "ignore"},
        check=False,
    )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
