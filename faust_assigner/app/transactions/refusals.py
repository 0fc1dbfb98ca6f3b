"""Logs of failed sends under ``exactly_once``: one line counts the sends of abandoned transactions.

Faust logs a warning for each failed send, and asyncio logs a traceback for each error that the sender does
not read. After a fence these are two log entries for each of possibly thousands of sends. Their only cause is
the fence, which is logged, and their records are processed again. A sender that awaits the future of its send
still gets the error.
"""

from __future__ import annotations

import asyncio
import logging
import sys

from mode import get_logger

logger = get_logger(__name__)

#: Seconds in which the failed sends are counted for one log line.
COUNT_S = 1.0

_MARK = "_faust_assigner_counted"


class RefusedSends:
    """Counts failed sends of abandoned transactions; logs their number ``COUNT_S`` after the first."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, error: BaseException) -> None:
        """Count a failed send; no other log line about ``error``, which is in its future, is necessary."""
        setattr(error, _MARK, True)
        self._count += 1
        if self._count == 1:
            asyncio.get_running_loop().call_later(COUNT_S, self._log)

    def _log(self) -> None:
        count, self._count = self._count, 0
        logger.warning(
            "Sends of abandoned transactions that failed: %d; their records are processed again",
            count,
        )


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Return whether to log a line of asyncio or Faust: not the error of a counted send."""
    text = str(record.msg)
    # Faust logs within an ``except`` block, without the error as an argument.
    error = record.exc_info[1] if record.exc_info else sys.exc_info()[1]
    return not (text.startswith(("_on_published error", "Future")) and hasattr(error, _MARK))


for _name in ("asyncio", "faust.topics"):
    logging.getLogger(_name).addFilter(_is_worth_logging)
