"""The errors of a table's files, raised by RocksDB or the disk: temporary errors and damage."""

from __future__ import annotations

import re

#: RocksDB's messages about damaged files. A write interrupted by a kill is no damage: RocksDB drops
#: the incomplete end of its log by itself.
_DAMAGE = re.compile(
    r"Corruption|No such file|File exists|Not a directory|Invalid argument|not implemented",
    re.IGNORECASE,
)
#: RocksDB's messages about temporary errors; they prevail over the messages above.
_PASSING = re.compile(
    r"No space|quota|lock|Too many open files|Permission denied|Read-only|memory|Input/output",
    re.IGNORECASE,
)

#: RocksDB's message about files that a different process has open.
_IN_USE = re.compile(r"While lock file: .*unavailable", re.IGNORECASE)


def storage_error_text(error: BaseException) -> str:
    """Return the error's text; for files that a different process has open, with the cause and the fix."""
    said = str(error)
    if not _IN_USE.search(said):
        return said
    return (
        f"{said}. A different process has these files open: if two workers of one machine have the same data "
        "directory, give each its own (faust --datadir)"
    )


def is_storage_error(error: BaseException) -> bool:
    """Whether RocksDB or the disk raised ``error``; rocksdict raises plain ``Exception``."""
    return (
        type(error) is Exception
        or isinstance(error, OSError)
        or type(error).__name__ == "DbClosedError"
    )


def is_damage(error: BaseException) -> bool:
    """Whether the files themselves are damaged, so that waiting does not help."""
    said = str(error)
    return "Corruption" in said or bool(_DAMAGE.search(said) and not _PASSING.search(said))
