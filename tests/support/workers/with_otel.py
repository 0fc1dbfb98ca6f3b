"""The worker process under test with Faust's OpenTelemetry monitor.

The SDK's console exporter writes its metrics to the file ``<journal>.metrics``, twice a second, a
JSON document on each line.
"""

from __future__ import annotations

from pathlib import Path

from faust.sensors.otel import OpenTelemetryMonitor
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

from tests.support.workers.app import JOURNAL, app

if __name__ == "__main__":
    with Path(f"{JOURNAL}.metrics").open("a", buffering=1) as out:
        exporter = ConsoleMetricExporter(
            out=out, formatter=lambda metrics: metrics.to_json(indent=None) + "\n"
        )
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=500)
        set_meter_provider(MeterProvider(metric_readers=[reader]))
        app.monitor = OpenTelemetryMonitor()
        app.main()
