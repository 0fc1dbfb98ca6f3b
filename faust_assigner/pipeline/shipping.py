"""Ship this package to the executors, or fail at once with the name of the module that they lack."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from faust_assigner.errors import FaustAssignerError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

PACKAGE = "faust_assigner"


class ExecutorsLackPackages(FaustAssignerError, RuntimeError):
    """The executors' Python lacks a module that the tasks need; the message names the module."""


def ship(spark: SparkSession) -> None:
    """Send this package to the executors if they cannot import it.

    The package's dependencies must be installed on the executors. Cost: one job of one task; two jobs
    if the package is sent.

    Raises:
        ExecutorsLackPackages: an executor lacks another module.
    """
    missing = _missing(spark)
    if missing == PACKAGE:
        _send(spark, package_zip())
        missing = _missing(spark)
    if missing:
        raise ExecutorsLackPackages(
            f"the executors' Python has no module {missing!r}: install 'faust-assigner[spark]' there, "
            "or send an environment with --archives (docs/how-to/spark.md)"
        )


def package_zip() -> Path:
    """Write this package to a zip file that Python can import; the file is removed at the process's end."""
    source = Path(__file__).parents[1]
    folder = Path(tempfile.mkdtemp(prefix="faust-assigner-ship-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / f"{PACKAGE}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(source.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(source.parent))
    return target


def _send(spark: SparkSession, archive: Path) -> None:
    if hasattr(spark, "addArtifacts"):
        spark.addArtifacts(str(archive), pyfile=True)
    else:  # a classic session of Spark 3.5
        spark.sparkContext.addPyFile(str(archive))


def _missing(spark: SparkSession) -> str:
    """Return the first module that an executor lacks for the pipeline's tasks; "" if none is missing."""

    def probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib

        import pyarrow

        lacks = ""
        try:
            importlib.import_module("faust_assigner.pipeline.history.on_spark")
        except ModuleNotFoundError as error:
            lacks = str(error.name)
        for _ in batches:
            yield pyarrow.record_batch({"lacks": [lacks]})

    # A function of __main__ is pickled by value, so the executor need not import this module.
    probe.__module__ = "__main__"
    found = spark.range(0, 1, 1, 1).mapInArrow(probe, "lacks string").collect()
    return str(found[0].lacks)
