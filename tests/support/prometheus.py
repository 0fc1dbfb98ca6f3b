"""A real Prometheus on loopback, and its promtool.

The programs on PATH are used. Otherwise ``apt-get download`` fetches Debian's package once and
unpacks it in the cache folder; it is not installed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from faust_assigner.pipeline.maven import cache_dir
from faust_assigner.testing.ports import free_port


def why_not() -> str | None:
    """Return the reason why Prometheus is missing and cannot be fetched, or None."""
    if shutil.which("prometheus") and shutil.which("promtool"):
        return None
    if _unpacked().is_dir() or (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return None
    return "prometheus is not on PATH, and there is no apt-get"


def _unpacked() -> Path:
    return cache_dir() / "prometheus"


def prometheus_tool(name: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``. Raises RuntimeError if the fetch fails."""
    found = shutil.which(name)
    if found is not None:
        return found
    folder = _unpacked()
    if not folder.is_dir():
        _fetch(folder)
    return str(folder / "usr" / "bin" / name)


def _fetch(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        done = _download(folder)
        if done.returncode:  # a new machine has no list of packages yet
            subprocess.run(["apt-get", "update"], capture_output=True, timeout=300, check=False)
            done = _download(folder)
        if done.returncode:
            raise RuntimeError(f"apt-get download prometheus: {done.stderr[-500:]}")
        (package,) = Path(folder).glob("*.deb")
        unpacked = Path(folder) / "unpacked"
        subprocess.run(["dpkg-deb", "-x", str(package), str(unpacked)], check=True, timeout=120)
        with contextlib.suppress(OSError):  # another process was faster
            os.rename(unpacked, target)


def _download(folder: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["apt-get", "download", "prometheus"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@dataclass
class Prometheus:
    """A running server."""

    url: str

    def ask(self, path: str, **query: str) -> Any:
        """Return the data of an answer of the HTTP API."""
        asked = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return json.load(answer)["data"]

    def values(self, expression: str) -> list[float]:
        """Return the current values of all series of an expression."""
        found = self.ask("query", query=expression)["result"]
        return sorted(float(series["value"][1]) for series in found)

    def firing(self, alert: str) -> list[str]:
        """Return the instances for which an alert fires."""
        return sorted(
            one["labels"].get("instance", "")
            for one in self.ask("alerts")["alerts"]
            if one["labels"]["alertname"] == alert and one["state"] == "firing"
        )


@contextlib.contextmanager
def prometheus_server(targets: Sequence[str], rules: Path, folder: Path) -> Iterator[Prometheus]:
    """Run a server that scrapes ``targets`` (``host:port``) once a second and evaluates ``rules``."""
    port = free_port()
    config = folder / "prometheus.yml"
    config.write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(rules)],
                "scrape_configs": [
                    {"job_name": "workers", "static_configs": [{"targets": list(targets)}]}
                ],
            }
        )
    )
    server = Prometheus(f"http://127.0.0.1:{port}")
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                prometheus_tool("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'prometheus'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_until_ready(server, process, folder / "prometheus.log")
            yield server
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(server: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 90
    while True:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{server.url}/-/ready", timeout=5).close()
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Prometheus did not become ready:\n{log.read_text()[-2000:]}")
        time.sleep(0.2)
