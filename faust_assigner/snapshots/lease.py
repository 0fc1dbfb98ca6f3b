"""The lease of a snapshot run: while a lease is valid, ``gc`` removes no file of the topic.

A run writes files long before the manifests that make them snapshots, and may reuse the files of
the previous snapshot. Its lease is a file in the topic's folder. The file contains its expiry time
and is renewed while the run lives; the lease of a killed run expires.
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

#: The validity of a lease and the renewal interval, in seconds: nine renewals in a row may fail.
LEASE_S, RENEW_S = 600.0, 60.0
_PREFIX, _SUFFIX = "run-", ".lease"


class Lease:
    """A context manager for a run. ``now_ms`` is the wall clock, which all machines must share."""

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
        except Exception as error:  # any error, as in _keep; the run's result counts
            logger.warning("Could not delete the lease %s; it expires later: %s", self._path, error)

    def _keep(self) -> None:
        while not self._over.wait(self._renew_s):
            try:
                self._write()
            except Exception as error:  # object stores' drivers raise many types
                logger.warning("Could not renew the lease %s, retrying: %s", self._path, error)

    def _write(self) -> None:
        until = format_time_ms(self._now_ms() + round(self._lease_s * 1000))
        self._storage.write(self._path, json.dumps({"until": until}).encode())


def leased_until(storage: Storage, topic: str, now_ms: int) -> str | None:
    """Return the expiry of a valid lease for this topic, ISO 8601; None without a lease."""
    found = [until for path in lease_paths(storage, topic) if (until := _expiry_of(storage, path))]
    # All texts have one format and one time zone, so they sort like the times.
    latest = max(found, default="")
    return latest if latest > format_time_ms(now_ms) else None


def lease_paths(storage: Storage, topic: str) -> list[str]:
    """The leases of a topic, valid or not."""
    return [
        f"{topic}/{entry.name}"
        for entry in storage.list(topic)
        if not entry.is_folder and entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX)
    ]


def _expiry_of(storage: Storage, path: str) -> str | None:
    """Return the expiry of a lease; None if the lease is gone or damaged."""
    try:
        until = str(json.loads(storage.read(path))["until"])
        datetime.fromisoformat(until)
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return until
