"""Reports errors as one line and an exit code."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import NoReturn

import click

from faust_assigner.wire.documents import printable


def fail(message: object, code: int) -> NoReturn:
    """Print an error on stderr and exit; the codes are listed in ``pipeline/failure.py``.

    Unprintable characters are replaced, because names of members or from a ledger are untrusted.
    """
    text = "\n".join(printable(line) for line in str(message).splitlines())
    click.echo(f"faust-assigner: {text}", err=True)
    raise SystemExit(code)


@contextlib.contextmanager
def quiet_kafka() -> Iterator[None]:
    """Silence aiokafka's log of failed connections: the command reports such failures itself."""
    logger = logging.getLogger("aiokafka")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextlib.contextmanager
def reported_errors() -> Iterator[None]:
    """Report errors of this package, Spark, Kafka and storage as a line and an exit code, not a traceback.

    If the standard output is closed (``| head``), no error is reported: click ends the command.
    """
    from faust_assigner.pipeline.failure import verdict

    try:
        yield
    except (click.ClickException, click.exceptions.Exit, BrokenPipeError):
        raise
    except Exception as error:
        found = verdict(error)
        if found is None:
            raise
        fail(*found)
