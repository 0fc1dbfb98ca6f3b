"""Installs requests for keys in one app: setting ``STALE_READS`` of :mod:`faust_assigner.settings.table`."""

from __future__ import annotations

from functools import partial
from typing import Any

from faust_assigner.app.host.mixing import mixed
from faust_assigner.app.queries.reading import table_route
from faust_assigner.app.queries.router import MARK, ReadsRouter
from faust_assigner.app.queries.standing import Standing
from faust_assigner.app.settings import read_or_default
from faust_assigner.settings.table import REPAIRS, STALE_READS


def install(app: Any) -> None:
    """Have ``app`` answer for keys with care; after the careful router, before its router is first used.

    Without the repairs it is not known which table is restored: then requests are routed as before.
    """
    chosen = object.__getattribute__(app.conf, "Router")
    if issubclass(chosen, ReadsRouter) or not read_or_default(app, REPAIRS):
        return
    standing = Standing(app, read_or_default(app, STALE_READS))
    setattr(app, MARK, standing)
    app.conf.Router = mixed(ReadsRouter, into=chosen)
    app.table_route = partial(table_route, app.table_route)
    if standing.bound_s > 0:
        app._extra_services.append(standing)
