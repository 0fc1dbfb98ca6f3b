"""Errors as one line and an exit code."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import NoReturn

import click


def fail(message: object, code: int) -> NoReturn:
    """Say what is wrong on stderr and leave: 2 for what was asked, 1 for what went wrong."""
    click.echo(f"faust-assigner: {message}", err=True)
    raise SystemExit(code)


@contextlib.contextmanager
def spoken_errors() -> Iterator[None]:
    """Errors of ours and of Spark as one line and an exit code, never as a traceback."""
    from faust_assigner.errors import FaustAssignerError

    try:
        yield
    except ModuleNotFoundError as error:
        fail(f"{error.name} is not installed: pip install 'faust-assigner[spark]'", 1)
    except FaustAssignerError as error:
        fail(error, 2)
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        fail(f"Spark: {_last_words(str(error))}", 1)


def _last_words(text: str) -> str:
    """The line of a Spark error that says why: the innermost Python or Java error, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"(Caused by: |[\w.]*(Error|Exception|Refused)\b)", line)]
    return (telling or lines or ["no reason given"])[-1 if telling else 0]
