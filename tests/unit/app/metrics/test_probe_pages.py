"""The whole answer of each page of the worker's web server: status, headers, body, and the question."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.ledger.install import MARK as LEDGER_MARK
from faust_assigner.app.metrics.probes import (
    CURSOR_CHARS,
    MARK,
    LedgerLines,
    Live,
    PeersPage,
    Ready,
    RoundsPage,
    Status,
)
from faust_assigner.wire.worker_status import (
    LedgerPage,
    Peer,
    Peers,
    Rounds,
    RoundTold,
    encode_document,
    encode_ledger,
)

JSON = {"Content-Type": "application/json", "Cache-Control": "no-store"}
LINES = {"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"}


class Web:
    """A web server whose answers are what it was given."""

    def json(self, value: Any, *, status: int, headers: Any, **_: Any) -> Any:
        """A JSON answer."""
        return "json", value, status, headers

    def bytes(self, value: Any, *, status: int, headers: Any, **_: Any) -> Any:
        """An answer of bytes."""
        return "bytes", value, status, headers


async def answer_of(page: Any, app: Any, **query: str) -> Any:
    """The page's answer to a request with this query."""
    return await page(app, Web()).get(SimpleNamespace(query=query))


def app_of(**parts: Any) -> Any:
    """An app that is well, with these attributes."""
    return SimpleNamespace(
        **{
            "crashed": False,
            "conf": SimpleNamespace(id="shop"),
            "tables": SimpleNamespace(problems=list),
            **parts,
        }
    )


def peers(app: str) -> Peers:
    """The members of one round."""
    found = (Peer(url="http://w1", instance_id="i1", actives={"orders": (3, 5)}),)
    return Peers(app=app, generation=7, peers=found)


@pytest.mark.parametrize(
    ("problems", "crashed", "expected"),
    [
        ([], False, ({"status": "live", "reasons": []}, 200)),
        (
            [("b", "stuck"), ("a", "late")],
            False,
            ({"status": "not live", "reasons": ["stuck", "late"]}, 503),
        ),
        ([("b", "x")], True, ({"status": "not live", "reasons": ["the app has crashed"]}, 503)),
    ],
)
async def test_live_answers_503_with_the_reasons(
    problems: Any, crashed: bool, expected: Any
) -> None:
    """A crashed app names no other problem."""
    app = app_of(crashed=crashed, tables=SimpleNamespace(problems=lambda: problems))
    assert await answer_of(Live, app) == ("json", *expected, None)


async def test_an_app_without_a_watchdog_is_live() -> None:
    """Its tables report no problems."""
    app = app_of(tables=SimpleNamespace())
    assert await answer_of(Live, app) == ("json", {"status": "live", "reasons": []}, 200, None)


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        ([], ({"status": "ready", "reasons": []}, 200)),
        (["late", "alone"], ({"status": "not ready", "reasons": ["late", "alone"]}, 503)),
    ],
)
async def test_ready_answers_with_the_metrics_reasons(reasons: Any, expected: Any) -> None:
    """All reasons come in their order."""
    app = app_of(**{MARK: SimpleNamespace(not_ready=lambda: reasons)})
    assert await answer_of(Ready, app) == ("json", *expected, None)


async def test_documents_are_json_that_no_proxy_keeps() -> None:
    """Status waits for its document; peers and rounds have theirs at once."""
    here, there = peers("here"), peers("there")
    rounds = Rounds(app="shop", rounds=(RoundTold(generation=3), RoundTold(generation=4)))

    async def document() -> Any:
        return here

    app = app_of(
        **{MARK: SimpleNamespace(document=document, peers=lambda: there, rounds=lambda: rounds)}
    )
    for page, shown in ((Status, here), (PeersPage, there), (RoundsPage, rounds)):
        assert await answer_of(page, app) == ("bytes", encode_document(shown), 200, JSON)


@pytest.mark.parametrize(
    ("query", "cursor"),
    [({}, ""), ({"before": "12:9"}, "12:9"), ({"before": "7" * 99}, "7" * CURSOR_CHARS)],
)
async def test_the_ledger_answers_with_the_page_before_the_cursor(
    query: dict[str, str], cursor: str
) -> None:
    """The app's own group is asked for; a cursor that no page gives is cut."""
    found = LedgerPage(app="shop", lines=(b'{"a":1}', b'{"b":2}'), cursor="12:5")
    asked: list[Any] = []

    def page(*question: str) -> LedgerPage:
        asked.append(question)
        return found

    app = app_of(**{LEDGER_MARK: SimpleNamespace(writer=SimpleNamespace(page=page))})
    answer = await answer_of(LedgerLines, app, **query)
    assert answer == ("bytes", encode_ledger(found), 200, LINES)
    assert asked == [("shop", cursor)]


async def test_without_a_ledger_its_page_is_404() -> None:
    """The answer names the setting."""
    answer = await answer_of(LedgerLines, app_of())
    assert answer == ("json", {"status": "FAUST_ASSIGNER_LEDGER is off"}, 404, None)
