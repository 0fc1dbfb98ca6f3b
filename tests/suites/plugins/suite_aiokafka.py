"""Replace aiokafka's Docker fixtures by a running broker (SUITE_BOOTSTRAP).

The suite's own fixtures take precedence over a plug-in's fixtures, so the plug-in sets their
values.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


class NoListener:
    """A placeholder for features of the Docker image; any use fails with the feature's name."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"the broker has one plain listener: no {name}")

    def cleanup(self) -> None:
        """Do nothing."""


def _server(request: pytest.FixtureRequest) -> Any:
    host, port = os.environ["SUITE_BOOTSTRAP"].split(":")
    conftest = next(
        p for p in request.config.pluginmanager.get_plugins() if hasattr(p, "KafkaServer")
    )
    return conftest.KafkaServer(host, int(port), 1, 1, 1, None)


ANSWERS = {
    "docker": lambda request: None,
    "kafka_image": lambda request: request.config.getoption("--docker-image"),
    "ssl_folder": lambda request: Path("no-certificates"),
    "acl_manager": lambda request: NoListener(),
    "kafka_config": lambda request: NoListener(),
    "kerberos_utils": lambda request: NoListener(),
    "kafka_server": _server,
}


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> Any:
    """Set the value of a replaced fixture; return None for all other fixtures."""
    if fixturedef.argname not in ANSWERS:
        return None
    value = ANSWERS[fixturedef.argname](request)
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return value if value is not None else False
