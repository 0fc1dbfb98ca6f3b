"""One run at a time writes to a folder of results: what it lays beside its place is its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from faust_assigner.errors import TryAgain
from faust_assigner.pipeline.ledgers.files import absolute


class FolderInUse(TryAgain):
    """Another run writes to the same folder just now."""


@contextlib.contextmanager
def only_writer(url: str) -> Iterator[None]:
    """Hold the folder ``url`` for this run inside the block; raises FolderInUse where another run has it.

    The lock is the operating system's, on the folder itself: it leaves no file, and goes with the process
    that held it, however that ends. Object stores and HDFS have none; there the caller sees to it.
    """
    folder = absolute(url).removeprefix("file://")
    if "://" in folder:
        yield
        return
    is_new = not os.path.exists(folder)
    held = _locked(folder)
    try:
        yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # a run that refused to write anything leaves nothing
        os.close(held)


def _locked(folder: str) -> int:
    """A descriptor of ``folder``, which is made where it is not there, with its lock."""
    import fcntl

    while True:
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A run that wrote nothing may have removed it between the two; then the lock is on nothing.
            if os.path.exists(folder) and os.path.samestat(os.stat(folder), os.fstat(descriptor)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise FolderInUse(f"another run writes to {folder}; one at a time") from None
        os.close(descriptor)
