"""The app with a page of metrics: ``faust -A examples.orders.measured worker`` serves ``/metrics``."""

from __future__ import annotations

from faust.sensors.prometheus import setup_prometheus_sensors

from examples.orders.app import app

setup_prometheus_sensors(app, pattern="/metrics")

if __name__ == "__main__":
    app.main()
