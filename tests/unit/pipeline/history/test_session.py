"""The jars in the session of ``history``."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.pipeline.history import job
from faust_assigner.pipeline.history.job import session_for
from faust_assigner.pipeline.history.options import HistoryOptions


@pytest.mark.parametrize(
    ("ledgers", "connector", "jars"),
    [
        (("kafka://h:9/t",), "auto", ["k.jar"]),
        (("/files", "kafka://h:9/t"), "spark", ["k.jar"]),
        (("kafka://h:9/t",), "python", []),
        (("/files",), "auto", []),
        (("/files",), "python", []),
    ],
)
def test_the_connectors_jars_come_where_spark_reads_a_topic(
    monkeypatch: pytest.MonkeyPatch, ledgers: tuple[str, ...], connector: str, jars: list[str]
) -> None:
    """Files and topics read by Python need no jars; packages are passed on from the user."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr(job, "cached_connector_jars", lambda: ["k.jar"])
    monkeypatch.setattr(
        job, "spark_session", lambda master, name, **more: asked.update(master=master, **more)
    )
    options = HistoryOptions(ledgers, "out", connector=connector, packages=("a:b:1",))
    session_for(options, "local[2]")
    wanted = {"master": "local[2]", "jars": jars, "packages": ("a:b:1",), "settings": {}}
    assert asked == wanted
