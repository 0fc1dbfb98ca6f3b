"""A stream goes on with the topics, the connector and the very topic that its checkpoint is of."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.errors import ConfigError

pytest.importorskip("pyspark")

from faust_assigner.pipeline.history import stream

TOPIC = "kafka://a:1/ledger"


class Files:
    """The two calls of a results folder that keep what a stream reads."""

    def __init__(self, folder: Path) -> None:
        self.url = str(folder)

    def path(self, name: str) -> str:
        """Where it is."""
        return f"{self.url}/{name}"

    def exists(self, name: str) -> bool:
        """Whether it was written."""
        return Path(self.path(name)).exists()

    def read(self, name: str) -> bytes:
        """What was written."""
        return Path(self.path(name)).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Keep it."""
        Path(self.path(name)).parent.mkdir(exist_ok=True)
        Path(self.path(name)).write_bytes(content)


class Visits:
    """Visits of a stream, less Spark: ``taken`` holds the connector of each."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder: Any = Files(folder)
        self.has_jars, self.topic_id, self.taken = False, "id-1", []
        monkeypatch.setattr(stream, "has_connector", lambda _: self.has_jars)
        monkeypatch.setattr(stream, "topic_now", lambda _: SimpleNamespace(topic_id=self.topic_id))
        monkeypatch.setattr(stream, "stream_ledger", self._take)

    def _take(self, *_: Any, connector: str, **__: Any) -> None:
        self.taken.append(connector)

    def visit(self, connector: str = "auto", ledger: str = TOPIC) -> None:
        """One."""
        spark: Any = None
        stream._frame(spark, [ledger], self.folder, connector, {})


@pytest.fixture
def visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Visits:
    """None so far."""
    return Visits(tmp_path, monkeypatch)


@pytest.mark.parametrize("jars_first", [False, True])
def test_a_stream_keeps_its_connector_when_jars_come_or_go(
    visits: Visits, jars_first: bool
) -> None:
    """As they do when somebody fetches what ``spark doctor`` advises."""
    for has_jars in (jars_first, not jars_first, not jars_first):
        visits.has_jars = has_jars
        visits.visit()
    assert visits.taken == ["spark" if jars_first else "python"] * 3


def test_another_connector_that_is_asked_for_is_refused(visits: Visits) -> None:
    """The checkpoint has the offsets of the one it was begun with."""
    visits.visit()
    with pytest.raises(ConfigError, match="begun with --connector python, not spark"):
        visits.visit("spark")
    visits.visit("python")
    assert visits.taken == ["python", "python"]


@pytest.mark.parametrize(("connector", "goes_on"), [("python", True), ("spark", False)])
def test_a_topic_that_was_created_again_is_never_passed_over_in_silence(
    visits: Visits, connector: str, goes_on: bool
) -> None:
    """Our reader begins it anew; Spark's would go on at the old offset, so the run names the topic."""
    visits.visit(connector)
    visits.topic_id = "id-2"
    for _ in range(2):  # the refusal does not settle anything
        if goes_on:
            visits.visit(connector)
        else:
            with pytest.raises(ConfigError, match=f"{TOPIC} was deleted and created again"):
                visits.visit(connector)


def test_a_stream_from_before_connectors_were_kept_takes_the_one_there_is(
    visits: Visits,
) -> None:
    """And keeps it from then on."""
    visits.folder.write(stream.SOURCES, json.dumps({"files": False, "topics": [TOPIC]}).encode())
    visits.has_jars = True
    visits.visit()
    visits.has_jars = False
    visits.visit()
    assert visits.taken == ["spark", "spark"]
