"""The end of a lost registration, and the check of a pair without a question for its password."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faust_assigner.service import certificates
from faust_assigner.service.records import Ended
from tests.unit.service import session_stage as sessions


def test_a_lost_registration_leaves_no_renewals() -> None:
    """Its stream ends, and the instance counts no stream any more."""

    async def story(s: sessions.Stage) -> None:
        stream = await s.register(sessions.B)
        assert list(s.sessions._keeping) == [stream]
        await s.store.revoke(await s.lease("b"))
        await s.clock.sleep(10.0)
        assert (stream.ended, s.sessions._keeping) == (Ended.LEASE_LOST, {})
        assert s.metrics[-1] == ("streams", 0)

    sessions.staged(story)


def test_a_pair_is_checked_without_asking_for_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL would ask for the password of an encrypted key at the terminal."""
    calls: list[Any] = []

    class Context:
        def __init__(self, protocol: Any) -> None:
            """Make a context."""

        def load_cert_chain(self, *files: Path, password: str | None) -> None:
            calls.append((*files, password))

    monkeypatch.setattr(certificates.ssl, "SSLContext", Context)
    certificates.check_pair(Path("/cert"), Path("/key"), "--pair")
    assert calls == [(Path("/cert"), Path("/key"), "")]
