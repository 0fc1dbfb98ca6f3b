"""What is said while an app is set up is told when it starts: ``faust worker`` opens its log in between."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

PACKAGE = logging.getLogger(__name__.partition(".")[0])


class _Keeps(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def kept_until_start(app: Any) -> Iterator[None]:
    """Keep what the package says meanwhile where nobody listens yet; ``app`` tells it with its consumer."""
    if PACKAGE.hasHandlers():
        yield
        return
    keeps, level = _Keeps(), PACKAGE.level
    PACKAGE.addHandler(keeps)
    PACKAGE.setLevel(level or logging.INFO)
    try:
        yield
    finally:
        PACKAGE.removeHandler(keeps)
        PACKAGE.setLevel(level)
    if keeps.records:
        app._new_consumer = partial(_new_consumer, keeps.records, app._new_consumer)


def _new_consumer(records: list[logging.LogRecord], create: Callable[[], Any]) -> Any:
    while records:
        record = records.pop(0)
        logger = logging.getLogger(record.name)
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)
    return create()
