"""Numbers and lists as text in a finding."""

from __future__ import annotations

from collections.abc import Sequence


def size(count: float) -> str:
    """Format bytes in a readable unit.

    >>> [size(count) for count in (900, 2048, 3.5 * 2**30)]
    ['900 B', '2.0 KiB', '3.5 GiB']
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Format the first names; further names are counted."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
