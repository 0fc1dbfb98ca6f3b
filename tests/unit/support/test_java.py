"""Java's options in tests name the archive of Kafka's classes as soon as the archive exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import java


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(java, "cache_dir", lambda: tmp_path)


def test_only_an_archive_that_exists_is_named() -> None:
    """Without an archive, Java loads the classes from the jars."""
    assert java.options() == java.JAVA
    java.archive().parent.mkdir()
    java.archive().touch()
    assert f'-XX:SharedArchiveFile="{java.archive()}"' in java.options()


def test_an_archive_that_exists_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Kafka is started, and the environment stays."""
    java.archive().parent.mkdir()
    java.archive().touch()
    monkeypatch.setattr(java, "kafka_server", lambda: pytest.fail("a Kafka was started"))
    java.write_archive()
