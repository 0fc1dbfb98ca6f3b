"""Makes the answer for a path of the page, for any web server: Faust's, aiohttp's and ASGI's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from faust_assigner.page.paths import PATHS, STATIC
from faust_assigner.page.watch import Watch

#: The headers of every answer. The browser may load scripts, styles and pictures only from files
#: of this server, and no other page may frame this page.
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
EVENT_HEADERS: Final[Mapping[str, str]] = {
    **HEADERS,
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}
_HTML: Final = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Answer:
    """An answer to a GET."""

    status: int
    body: bytes
    headers: Mapping[str, str]


async def answer(
    watch: Watch, path: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> Answer:
    """Return the answer for ``path``, which is relative to the page's address.

    ``headers`` are the request's headers, with names in lower case.
    """
    if path in STATIC:
        return _new_answer(_static_file(path), STATIC[path])
    if path == "story":
        watch.touch()
        is_part = bool(query.get("part"))
        found = watch.story(query.get("t", ""), is_part=is_part)
        if found is None:
            return _new_answer(b"There is no such task now.", "text/plain; charset=utf-8", 404)
        return _new_answer(found.encode(), _HTML)
    if path not in PATHS:
        return _new_answer(b"There is no such page.", "text/plain; charset=utf-8", 404)
    shown = await watch.first()
    if headers.get("if-none-match") == shown.tag:
        return Answer(304, b"", {**HEADERS, "ETag": shown.tag})
    plain, packed, kind = (
        (shown.page, shown.packed[0], _HTML)
        if path == ""
        else (shown.document, shown.packed[1], "application/json")
    )
    more = {"ETag": shown.tag, "Vary": "Accept-Encoding"}
    if "gzip" in headers.get("accept-encoding", ""):
        return _new_answer(packed, kind, more={**more, "Content-Encoding": "gzip"})
    return _new_answer(plain, kind, more=more)


def _new_answer(
    body: bytes, kind: str, status: int = 200, more: Mapping[str, str] | None = None
) -> Answer:
    return Answer(status, body, {**HEADERS, "Content-Type": kind, **(more or {})})


@cache
def _static_file(name: str) -> bytes:
    return files("faust_assigner.page").joinpath("static", name).read_bytes()
