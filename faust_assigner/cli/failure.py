"""Errors as one line and an exit code."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import NoReturn

import click


def fail(message: object, code: int) -> NoReturn:
    """Say what is wrong on stderr and leave; the codes are those of ``pipeline/failure.py``."""
    click.echo(f"faust-assigner: {message}", err=True)
    raise SystemExit(code)


@contextlib.contextmanager
def quiet_kafka() -> Iterator[None]:
    """Without aiokafka's log of each connection that fails: the command itself says what matters."""
    logger = logging.getLogger("aiokafka")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextlib.contextmanager
def spoken_errors() -> Iterator[None]:
    """Errors of ours, of Spark, Kafka and storage as one line and an exit code, never as a traceback."""
    from faust_assigner.pipeline.failure import verdict

    try:
        yield
    except (click.ClickException, click.exceptions.Exit):
        raise
    except Exception as error:
        found = verdict(error)
        if found is None:
            raise
        fail(*found)
