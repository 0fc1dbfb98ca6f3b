"""Worker processes with a web server on loopback: metrics, probes and status over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from faust_assigner.app.metrics.figure import PREFIX
from faust_assigner.testing.ports import free_port
from faust_assigner.testing.processes import on_loopback
from tests.support.workers.fleet import Fleet


@dataclass
class Measured(Fleet):
    """Workers with a web server on loopback."""

    module: str = "tests.support.workers.measured"
    ports: dict[str, int] = field(default_factory=dict)
    broker: Any = None

    def web_options(self, name: str) -> Sequence[str]:
        """Choose a new port for each run."""
        self.ports[name] = free_port()
        return on_loopback(self.ports[name])

    def url(self, name: str) -> str:
        """Return the address of a worker's web server."""
        return f"http://127.0.0.1:{self.ports[name]}"

    def get(self, name: str, path: str) -> tuple[int, str]:
        """Return (status, text); 0 if no server answers within two seconds."""
        try:
            with urllib.request.urlopen(f"{self.url(name)}{path}", timeout=2) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def scrape(self, name: str) -> dict[str, dict[tuple[str, ...], float]]:
        """Return our metrics by name without prefix: the labels' values -> the value."""
        _, text = self.get(name, "/metrics")
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.startswith(PREFIX):
                    assert sample.labels.pop("app") == self.app_id
                    labels = tuple(value for _, value in sorted(sample.labels.items()))
                    found.setdefault(sample.name.removeprefix(PREFIX), {})[labels] = sample.value
        return found

    def value(self, name: str, metric: str, *labels: str) -> float:
        """Return the value of a series; -1 if it is absent."""
        return self.scrape(name).get(metric, {}).get(labels, -1.0)

    def status(self, name: str, probe: str) -> tuple[int, list[str]]:
        """(status, reasons) of a probe."""
        status, text = self.get(name, f"/assignor/{probe}")
        return status, json.loads(text)["reasons"] if text else []
