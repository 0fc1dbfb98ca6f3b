"""The lease of a snapshot run: while one is valid, ``gc`` removes nothing of the topic.

A run writes files long before the manifests that make them snapshots, and may take over the files of
the previous snapshot. Its lease is a file in the topic's folder; the file names the time until which it
is valid and is renewed while the run lives. The lease of a killed run ends by itself.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable
from datetime import datetime

from faust_assigner.snapshots.manifest import format_time_ms
from faust_assigner.snapshots.storage import Storage

logger = logging.getLogger(__name__)

#: How long a lease is valid, and how often a run renews it, in seconds: it may miss nine times.
LEASE_S, RENEW_S = 600.0, 60.0
_PREFIX, _SUFFIX = "run-", ".lease"


class Lease:
    """Held by one run; a context manager. ``now_ms`` is the wall clock, which other machines must share."""

    def __init__(
        self,
        storage: Storage,
        topic: str,
        now_ms: Callable[[], int],
        *,
        lease_s: float = LEASE_S,
        renew_s: float = RENEW_S,
    ) -> None:
        self._storage, self._now_ms = storage, now_ms
        self._lease_s, self._renew_s = lease_s, renew_s
        self._path = f"{topic}/{_PREFIX}{uuid.uuid4().hex}{_SUFFIX}"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="snapshot-lease", daemon=True)

    def __enter__(self) -> Lease:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(self._renew_s)
        try:
            self._storage.delete(self._path)
        except OSError as error:
            logger.warning("The lease %s ends by itself: %s", self._path, error)

    def _keep(self) -> None:
        while not self._over.wait(self._renew_s):
            try:
                self._write()
            except Exception as error:  # drivers of object stores raise what they like
                logger.warning("Could not renew the lease %s, retrying: %s", self._path, error)

    def _write(self) -> None:
        until = format_time_ms(self._now_ms() + round(self._lease_s * 1000))
        self._storage.write(self._path, json.dumps({"until": until}).encode())


def leased_until(storage: Storage, topic: str, now_ms: int) -> str | None:
    """Until when a run of this topic holds a lease, ISO 8601; None where none does."""
    found = [until for path in lease_paths(storage, topic) if (until := _until(storage, path))]
    # One format and one zone: the texts sort like the times.
    latest = max(found, default="")
    return latest if latest > format_time_ms(now_ms) else None


def lease_paths(storage: Storage, topic: str) -> list[str]:
    """The leases of a topic, valid or not."""
    return [
        f"{topic}/{entry.name}"
        for entry in storage.list(topic)
        if not entry.is_folder and entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX)
    ]


def _until(storage: Storage, path: str) -> str | None:
    """None where the lease is gone by now or damaged."""
    try:
        until = str(json.loads(storage.read(path))["until"])
        datetime.fromisoformat(until)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return until
