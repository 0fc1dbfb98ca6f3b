"""The extra of each optional package, and the error if a package is not installed.

>>> with needs("broker"):
...     import a_wire_format
Traceback (most recent call last):
faust_assigner.errors.MissingExtra: a_wire_format is not installed: pip install 'faust-assigner[broker]'
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from faust_assigner.errors import MissingExtra

#: The extra that installs a package, by the package's import name. For an import inside
#: :func:`needs`, the argument of ``needs`` counts instead.
EXTRAS: Final = {
    "aiohttp": "clients",
    "aiokafka": "clients",
    "cramjam": "broker",
    "crc32c": "broker",
    "faust": "faust",
    "fsspec": "clients",
    "google": "service",
    "grpc": "service",
    "grpc_health": "service",
    "grpc_reflection": "service",
    "kio": "clients",
    "matplotlib": "ledger",
    "mode": "faust",
    "opentelemetry": "otel",
    "pandas": "spark",
    "prometheus_client": "metrics",
    "py4j": "spark",
    "pyarrow": "ledger",
    "pyspark": "spark",
    "re2": "broker",
    "rocksdict": "faust",
    "scramp": "broker",
    "uvloop": "broker",
}


def missing_extra(error: ModuleNotFoundError, extra: str | None = None) -> MissingExtra | None:
    """Convert ``error`` to an error that names ``extra``, by default the extra in :data:`EXTRAS`.

    Returns None for a package that no extra installs.
    """
    if isinstance(error, MissingExtra):
        return error
    package = (error.name or "").partition(".")[0]
    found = extra or EXTRAS.get(package)
    if not package or package == "faust_assigner" or found is None:
        return None
    return MissingExtra(package, found)


@contextlib.contextmanager
def needs(extra: str) -> Iterator[None]:
    """Raise MissingExtra with ``extra`` if an import in the block does not find a package."""
    try:
        yield
    except ModuleNotFoundError as error:
        found = missing_extra(error, extra)
        if found is None:
            raise
        raise found from None
