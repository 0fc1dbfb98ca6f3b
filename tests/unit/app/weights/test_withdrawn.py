"""Deleted weights are out of force and stay so as time passes; a topic is read as the app reads."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from types import SimpleNamespace

import faust
from yarl import URL

from faust_assigner.app.weights.provider import WeightSettings, WeightsProvider, connection_of
from faust_assigner.app.weights.sources import FileSource, NoWeights
from tests.unit.app.weights.test_provider import NOW, document


def test_a_file_deleted_after_a_good_one_stays_out_of_force(tmp_path: Path) -> None:
    """Later polls without news do not bring back the stored document."""
    provider = WeightsProvider(
        "shop", WeightSettings(FileSource(str(tmp_path / "none"))), clock=lambda: NOW
    )
    provider.take(document(1, 1.0, 2.0))
    assert provider.current.version == 1
    for round_ in range(2):
        provider.take(NoWeights("gone"))
        provider.take(None)
        assert (provider.current.code, provider.current.version) == ("missing", None), round_


async def test_a_file_that_comes_back_unchanged_is_in_force_again(tmp_path: Path) -> None:
    """After a move away and back the size, time and inode equal the last seen values."""
    path, aside = tmp_path / "weights.json", tmp_path / "aside"
    path.write_bytes(document(1, 1.0, 2.0))
    async with contextlib.aclosing(FileSource(str(path)).follow(0.0)) as looks:
        first = await anext(looks)
        path.rename(aside)
        gone = await anext(looks)
        aside.rename(path)
        assert isinstance(first, bytes)
        assert isinstance(gone, NoWeights)
        assert await anext(looks) == first


def test_a_topic_is_read_over_the_app_s_own_tls() -> None:
    """The context is the app's, whether it has credentials or not."""
    context = ssl.create_default_context()
    for credentials, protocol in ((None, "SSL"), (faust.SSLCredentials(context), "SSL")):
        app = SimpleNamespace(
            transport=SimpleNamespace(url=[URL("kafka://a:1")], default_port=77),
            conf=SimpleNamespace(broker_credentials=credentials, ssl_context=context),
        )
        found = connection_of(app)
        assert found["bootstrap_servers"] == ["a:1"]
        assert (found["security_protocol"], found["ssl_context"]) == (protocol, context)
