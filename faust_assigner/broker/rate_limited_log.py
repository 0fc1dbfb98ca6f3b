"""Log lines about peers, limited per kind: the first few lines, then the number of omitted lines.

Peers choose the names in these lines, so each line is escaped and cut after 2,000 characters.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

logger = logging.getLogger(__name__)
LINES_PER_INTERVAL: Final = 10
INTERVAL_S: Final = 60.0
LINE_CHARS: Final = 2_000


class RateLimitedLog:
    """At most ten lines a minute for each kind; then the number of omitted lines."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._logged: Counter[str] = Counter()

    def log(
        self,
        kind: str,
        now: float,
        message: str,
        *details: object,
        level: int = logging.INFO,
        trace: BaseException | None = None,
    ) -> None:
        """Log one line, unless its kind had too many in this minute (``now`` in seconds)."""
        if now - self._since.setdefault(kind, now) > INTERVAL_S:
            self._close(kind)
            self._since[kind] = now
        self._logged[kind] += 1
        if self._logged[kind] <= LINES_PER_INTERVAL:
            line = escaped_line(message % details)
            logger.log(level, "%s", line, exc_info=trace)
        elif self._logged[kind] == LINES_PER_INTERVAL + 1:
            logger.info(
                "more lines about %s: they are counted, and the count is logged in a minute", kind
            )

    def sweep(self, now: float) -> None:
        """Log the number of omitted lines for the minutes that have ended."""
        for kind, since in list(self._since.items()):
            if now - since > INTERVAL_S:
                self._close(kind)
                del self._since[kind]

    def _close(self, kind: str) -> None:
        left_out = self._logged.pop(kind, 0) - LINES_PER_INTERVAL
        if left_out > 0:
            logger.info("%s: %d more lines within a minute were left out", kind, left_out)


def escaped_line(text: str) -> str:
    r"""Escape characters that are not printable, such as a new line, and omit the end of a long text.

    >>> escaped_line("group g\nERROR")
    'group g\\nERROR'
    """
    if len(text) > LINE_CHARS:
        text = f"{text[:LINE_CHARS]}... ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
