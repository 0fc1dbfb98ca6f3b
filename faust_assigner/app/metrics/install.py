"""Installs the metrics and the probes in one app."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from faust_assigner.app.metrics.probes import MARK, PREFIX, blueprint
from faust_assigner.app.metrics.sensor import MetricsSensor

if TYPE_CHECKING:
    from faust.app import App
    from faust.types.app import AppT
    from faust.web.base import Web

#: The attribute of the app with the functions that add pages to its web server.
PAGES = "_faust_assigner_pages"


def install(app: App) -> MetricsSensor:
    """Add the metrics' sensor to ``app``, and the probes' pages to the app's web server, if any.

    Call it before the web server starts; a second call has no effect.
    """
    present: MetricsSensor | None = getattr(app, MARK, None)
    if present is not None:
        return present
    sensor = MetricsSensor(app)
    setattr(app, MARK, sensor)
    app.sensors.add(sensor)
    setattr(app, PAGES, [_add_probes])
    # Add the pages later: an access to the web server creates it, and the command line may disable
    # it.
    app.on_webserver_init = partial(_add_pages, app.on_webserver_init)
    return sensor


def add_pages(app: AppT, add: Callable[[object], object]) -> None:
    """Call ``add(server)`` when the app's web server is set up, in addition to the probes."""
    getattr(app, PAGES).append(add)


def _add_pages(init: Callable[[object], None], server: Web) -> None:
    """Set up the web server with Faust's pages and ours; called again for a mounted server."""
    init(server)
    if not any(str(path).startswith(f"{PREFIX}/") for path in server.views):
        for add in getattr(server.app, PAGES):
            add(server)


def _add_probes(server: Web) -> None:
    blueprint.register(server.app, url_prefix=PREFIX)
