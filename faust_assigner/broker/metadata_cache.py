"""Encoded answers to metadata requests, kept until a topic changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from faust_assigner.broker import limits


class MetadataCache:
    """At most 32 MiB of answers by request, valid for one version of the catalogue."""

    def __init__(self, version: Callable[[], int]) -> None:
        self._version = version
        self._kept_version = -1
        self._frames: dict[object, bytes] = {}
        self._jobs: dict[object, asyncio.Future[bytes | None]] = {}
        self._bytes = 0

    async def get(self, key: object, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return the answer of ``key``; call ``make`` if the answer is not cached.

        Concurrent requests for the same key wait for one result. If the request that makes the result is
        cancelled, a waiting request makes the result.
        """
        version = self._version()
        if self._kept_version != version:
            self._frames.clear()
            self._jobs = {}
            self._kept_version, self._bytes = version, 0
        found = self._frames.get(key)
        if found is not None:
            return found
        job = self._jobs.get(key)
        if job is not None:
            made = await asyncio.shield(job)
            return made if made is not None else await self.get(key, make)
        job = self._jobs[key] = asyncio.get_running_loop().create_future()
        try:
            frame = await make()
        except Exception as error:
            job.set_exception(error)
            job.exception()  # avoids asyncio's warning if no request waits for the job
            raise
        except BaseException:  # the client has disconnected
            job.set_result(None)
            raise
        finally:
            if self._jobs.get(key) is job:
                del self._jobs[key]
        job.set_result(frame)
        if self._version() == version:
            self._keep(key, frame)
        return frame

    def _keep(self, key: object, frame: bytes) -> None:
        if self._bytes + len(frame) > limits.CACHED_METADATA_BYTES:
            self._frames.clear()
            self._bytes = 0
        self._frames[key] = frame
        self._bytes += len(frame)
