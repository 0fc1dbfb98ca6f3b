"""The number of generated examples of a property: all in `make test-all`, a slice in `make test`."""

from __future__ import annotations

import os

#: `make test-all` sets this variable.
FULL = os.environ.get("FULL") == "1"


def examples(all_of_them: int, slice_: int | None = None) -> int:
    """Return ``all_of_them`` in a full run; else ``slice_``, by default a fifth and at least 10."""
    if FULL:
        return all_of_them
    return min(all_of_them, max(10, all_of_them // 5)) if slice_ is None else slice_
