"""Close providers of weights with the test that started them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import pytest

from faust_assigner.app.weights.provider import WeightsProvider


@pytest.fixture(autouse=True)
def close_providers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close all providers: an app that was never started never stops, so no app closes them."""
    started: weakref.WeakSet[WeightsProvider] = weakref.WeakSet()
    start = WeightsProvider.start

    def noted(provider: WeightsProvider) -> None:
        started.add(provider)
        start(provider)

    monkeypatch.setattr(WeightsProvider, "start", noted)
    yield
    for provider in list(started):
        provider.close()
