"""Queries all workers concurrently, with the same time limit, and returns an outcome for each."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

import aiohttp
from yarl import URL

from faust_assigner.errors import MetadataRefused
from faust_assigner.status.evidence import Heard
from faust_assigner.status.report import ANSWERED, SILENT, UNREACHABLE, UNREADABLE
from faust_assigner.wire.bounded import UNPACKED_BYTES, read_at_most
from faust_assigner.wire.worker_status import (
    LEDGER_PATH,
    PEERS_PATH,
    ROUNDS_PATH,
    STATUS_PATH,
    LedgerPage,
    Peers,
    Rounds,
    decode_ledger,
    decode_peers,
    decode_rounds,
    decode_status,
)

#: File descriptors for other uses than workers' sockets: Kafka's sockets, files, the terminal.
_OTHER_FILES = 64

T = TypeVar("T")


async def ask_status(urls: Iterable[str], *, deadline_s: float) -> dict[str, Heard]:
    """Return the outcome of asking each worker for its status, by URL."""
    found = await _ask_all(urls, STATUS_PATH, deadline_s=deadline_s)
    return {
        url: said if isinstance(said, Heard) else _read_status(url, said)
        for url, said in found.items()
    }


def _read_status(url: str, body: bytes) -> Heard:
    try:
        return Heard(answer=ANSWERED, status=decode_status(body))
    except MetadataRefused as error:
        return Heard(answer=UNREADABLE, detail=f"{url} returned a different document: {error}")


async def ask_peers(urls: Iterable[str], *, deadline_s: float) -> dict[str, Peers]:
    """Return each worker's list of members; workers without a list are left out."""
    return await _ask_documents(urls, PEERS_PATH, decode_peers, deadline_s)


async def ask_rounds(urls: Iterable[str], *, deadline_s: float) -> dict[str, Rounds]:
    """Return the last rounds from each worker; workers without rounds are left out."""
    return await _ask_documents(urls, ROUNDS_PATH, decode_rounds, deadline_s)


async def _ask_documents(
    urls: Iterable[str], path: str, decode: Callable[[bytes], T], deadline_s: float
) -> dict[str, T]:
    found: dict[str, T] = {}
    for url, said in (await _ask_all(urls, path, deadline_s=deadline_s)).items():
        if isinstance(said, bytes):
            with contextlib.suppress(MetadataRefused):
                found[url] = decode(said)
    return found


async def ask_ledgers(
    urls: Iterable[str], *, deadline_s: float, most_pages: int
) -> dict[str, tuple[list[bytes], str]]:
    """Return each worker's newest ledger lines, and the reason if lines are missing, else "".

    ``deadline_s`` applies to each page, about a MiB.
    """
    found: dict[str, tuple[list[bytes], str]] = {url: ([], "") for url in urls}
    cursors = dict.fromkeys(found, "")
    for _ in range(most_pages):
        answers = await _ask_all(cursors, LEDGER_PATH, deadline_s=deadline_s, before=cursors)
        cursors = {}
        for url, said in answers.items():
            lines, _ = found[url]
            try:
                page = LedgerPage(app="") if isinstance(said, Heard) else decode_ledger(said)
            except MetadataRefused as error:
                page, said = LedgerPage(app=""), Heard(answer=UNREADABLE, detail=str(error))
            lines.extend(page.lines)
            if isinstance(said, Heard):
                found[url] = (lines, f"{url} does not serve its ledger: {said.detail}")
            elif page.cursor:
                cursors[url] = page.cursor
        if not cursors:
            break
    for url in cursors:
        found[url] = (found[url][0], f"{url} has older lines that were not read")
    return found


async def _ask_all(
    urls: Iterable[str],
    path: str,
    *,
    deadline_s: float,
    before: Mapping[str, str] = MappingProxyType({}),
) -> Mapping[str, bytes | Heard]:
    """Return the body from each URL, or the reason for its absence.

    Bodies are decoded after the last answer: decoding takes time, which would delay other answers.
    """
    wanted = sorted(set(urls))
    if not wanted:
        return {}
    _allow_sockets(len(wanted))
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=deadline_s)
    ) as session:
        asked = [_ask(session, url, path, deadline_s, before.get(url, "")) for url in wanted]
        return dict(zip(wanted, await asyncio.gather(*asked), strict=True))


async def _ask(
    session: aiohttp.ClientSession, url: str, path: str, deadline_s: float, before: str
) -> bytes | Heard:
    try:
        where = URL(url).origin().with_path(path).with_query({"before": before} if before else None)
        async with session.get(where, allow_redirects=False) as answer:
            if answer.status == 404:
                what = "an older version, stock Faust, or a page of another service"
                return Heard(answer=UNREADABLE, detail=f"{where} does not exist (404): {what}")
            if answer.status != 200:
                return Heard(answer=UNREADABLE, detail=f"{where} answers {answer.status}")
            body = await read_at_most(answer.content.iter_any(), UNPACKED_BYTES)
            if body is None:
                return Heard(answer=UNREADABLE, detail=f"{where} exceeds the size limit")
            return body
    except TimeoutError:
        return Heard(answer=SILENT, detail=f"{url} did not answer within {deadline_s:g} s")
    except (aiohttp.ClientError, OSError) as error:
        return Heard(answer=UNREACHABLE, detail=f"{url} cannot be reached: {_reason(error)}")
    except ValueError as error:
        return Heard(answer=UNREADABLE, detail=f"{url} is not a URL: {error}")


def _reason(error: Exception) -> str:
    """Return only the operating system's message, if the error contains one."""
    inner = getattr(error, "os_error", None)
    return str(getattr(inner, "strerror", None) or inner or error)


def _allow_sockets(count: int) -> None:
    """Raise the process's limit of open files if ``count`` sockets would exceed the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
