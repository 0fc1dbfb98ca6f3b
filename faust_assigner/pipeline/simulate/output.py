"""Write the files of a simulation: the table ``sim_result`` and reports, in a local folder or at a URL.

Local files need neither pyarrow nor fsspec.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faust_assigner.ledger import columns
from faust_assigner.pipeline.simulate.sim_result import SIM_DDL, SimRow

TABLE = "sim_result"


def put_rows(rows: Sequence[SimRow], out: str) -> None:
    """Replace ``out``/sim_result by ``rows``."""
    if "://" not in out:
        write_rows(rows, Path(out) / TABLE)
        return
    from faust_assigner.pipeline.ledgers.files import file_system

    fs, target = file_system(f"{out.rstrip('/')}/{TABLE}")
    with tempfile.TemporaryDirectory() as folder:
        write_rows(rows, Path(folder) / TABLE)
        with contextlib.suppress(FileNotFoundError):
            fs.rm(target, recursive=True)
        for path in sorted((Path(folder) / TABLE).iterdir()):
            fs.put_file(str(path), f"{target}/{path.name}")


def write_rows(rows: Sequence[SimRow], folder: Path) -> None:
    """Replace the content of ``folder`` by one file with ``rows``; a reader never sees a partial file."""
    fresh = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        lines = (json.dumps({**row._asdict(), "dt": row.dt.isoformat()}) for row in rows)
        (fresh / "part-00000.jsonl").write_text("".join(line + "\n" for line in lines))
    else:
        from faust_assigner.pipeline.schema import arrow_schema

        told = pa.Table.from_pylist([row._asdict() for row in rows], arrow_schema(columns(SIM_DDL)))
        pq.write_table(told, fresh / "part-00000.parquet")
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(fresh, folder)


def put_report(report: Mapping[str, Any], out: str, name: str) -> None:
    """Write ``report`` as the JSON file ``name`` in ``out``."""
    url, text = f"{out.rstrip('/')}/{name}", json.dumps(report, indent=1) + "\n"
    if "://" not in url:
        Path(url).parent.mkdir(parents=True, exist_ok=True)
        Path(url).write_text(text)
        return
    from faust_assigner.pipeline.ledgers.files import file_system

    fs, path = file_system(url)
    with fs.open(path, "w") as stream:
        stream.write(text)
