"""A lock on a folder of results, so that one run at a time writes to it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from faust_assigner.errors import TryAgain


class FolderInUse(TryAgain):
    """Raised if another run is writing to the same folder."""


@contextlib.contextmanager
def only_writer(url: str) -> Iterator[None]:
    """Lock the folder ``url`` inside the block; raises FolderInUse if another run has the lock.

    The lock is a lock of the operating system on the folder itself. The lock leaves no file, and the
    system releases it when the process ends. Object stores and HDFS have no such lock; on them the caller
    must avoid two runs.
    """
    folder = url.removeprefix("file://")
    if "://" in folder:
        yield
        return
    folder = os.path.abspath(folder)
    is_new = not os.path.exists(folder)
    held = _locked(folder)
    try:
        yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # a run without output leaves no empty folder
        os.close(held)


def _locked(folder: str) -> int:
    """Lock ``folder``, which is created if it is missing; return its descriptor."""
    import fcntl

    while True:
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A run without output may have removed the folder between open and lock; then try again.
            if os.path.exists(folder) and os.path.samestat(os.stat(folder), os.fstat(descriptor)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise FolderInUse(f"another run writes to {folder}; run one at a time") from None
        os.close(descriptor)
