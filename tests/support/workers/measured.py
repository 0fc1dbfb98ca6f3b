"""The worker process under test with Faust's Prometheus page: ``/metrics`` beside our probes."""

from __future__ import annotations

from faust.sensors.prometheus import setup_prometheus_sensors

from tests.support.workers.app import app

setup_prometheus_sensors(app)

if __name__ == "__main__":
    app.main()
