"""The parts of Delta and Iceberg: packages, names, writers, checks, and written days."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.history import lakehouse
from faust_assigner.pipeline.history.lakehouse import (
    DELTA,
    ICEBERG,
    Delta,
    Iceberg,
    LakehouseTables,
    settings_of,
)
from faust_assigner.pipeline.history.on_spark import _days
from faust_assigner.pipeline.history.store import PENDING, TABLES, Day, Manifest, Store
from tests.unit.pipeline.history.test_lakehouse import CATALOG, Session


class Calls:
    """Any chain of calls, which ends in a list of the calls."""

    def __init__(self, into: list[Any], *calls: Any) -> None:
        self.into, self.calls = into, calls

    def __getattr__(self, name: str) -> Any:
        if name == "write":
            return Calls(self.into, *self.calls, name)

        def call(*given: Any) -> Calls:
            made = Calls(self.into, *self.calls, (name, *given))
            if name in ("save", "createOrReplace", "overwrite"):
                self.into.append(made.calls)
            return made

        return call


def test_packages_have_the_versions_of_spark_and_scala_in_their_names() -> None:
    """Delta has such names only from Spark 4.1 on."""
    spark: Any = Session()
    delta, iceberg = Delta(spark, "/out"), Iceberg(spark, "/out")
    names = [delta.package(version, "2.13") for version in ("3.5", "4.0", "4.1", "4.10", "10.0")]
    assert names == [
        "io.delta:delta-spark_2.13",
        "io.delta:delta-spark_2.13",
        "io.delta:delta-spark_4.1_2.13",
        "io.delta:delta-spark_4.10_2.13",
        "io.delta:delta-spark_10.0_2.13",
    ]
    assert iceberg.package("3.5", "2.12") == "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12"


def test_a_delta_table_is_named_by_its_folder() -> None:
    """A backtick in the folder is doubled; all tables share the folder."""
    spark: Any = Session()
    made = Delta(spark, "/o`ut")
    assert (made.name("moves"), made.place) == ("delta.`/o``ut/moves`", "/o`ut")
    assert made.is_shared is False


def test_a_folders_catalog_has_its_settings_and_the_sessions_own_catalog_keeps_its() -> None:
    """Without a namespace of its own the tables are in ``history``."""
    session = Session()
    spark: Any = session
    made = Iceberg(spark, "/out")
    (catalog,) = [name for name in session.settings if name.count(".") == 3]
    assert session.settings == {
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": "/out",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
    }
    short = catalog.rpartition(".")[2]
    assert made.place == f"`{short}`.`history`"
    assert (made.name("moves"), made.is_shared) == (f"`{short}`.`history`.moves", False)
    made.prepare()
    assert session.statements == [f"CREATE NAMESPACE IF NOT EXISTS `{short}`.`history`"]
    shared: Any = Session({CATALOG: "x"})
    assert Iceberg(shared, "/out").place == "`faust_assigner`.`history`"
    assert Iceberg(shared, "/out").is_shared is True


@pytest.mark.parametrize(("by", "partitioned"), [(("dt",), True), ((), False)])
def test_a_whole_table_is_replaced_in_one_commit(
    monkeypatch: pytest.MonkeyPatch, by: tuple[str, ...], partitioned: bool
) -> None:
    """The table may have days or not."""
    done: list[Any] = []
    rows: Any = Calls(done)
    spark: Any = Session()
    monkeypatch.setattr("pyspark.sql.functions.col", lambda name: f"col {name}")
    Delta(spark, "/out").replace(rows, "moves", by)
    iceberg = Iceberg(spark, "/out")
    iceberg.replace(rows, "moves", by)
    assert done == [
        (
            "write",
            ("format", "delta"),
            ("mode", "overwrite"),
            ("option", "overwriteSchema", "true"),
            *([("partitionBy", "dt")] if partitioned else []),
            ("save", "/out/moves"),
        ),
        (
            ("writeTo", iceberg.name("moves")),
            ("using", "iceberg"),
            *([("partitionedBy", "col dt")] if partitioned else []),
            ("createOrReplace",),
        ),
    ]


def test_a_session_gets_the_settings_of_its_format_at_its_start() -> None:
    """Parquet and Iceberg need no settings; Delta's last setting shows a prepared session."""
    assert settings_of("parquet") == settings_of(ICEBERG) == {}
    assert settings_of(DELTA) == Delta.settings
    assert [*Delta.settings][-1] == "spark.sql.catalog.spark_catalog"


class Checked(Session):
    """A session with a reader that raises an error."""

    def __init__(self, error: Exception, settings: Any = None, version: str = "4.0.1") -> None:
        super().__init__(settings)
        self.error, self.version = error, version

    def load(self, path: str) -> Any:
        """Raise the error."""
        self.path = path
        raise self.error


def tables(folder: Path, spark: Any, kind: str = DELTA) -> LakehouseTables:
    """Return the tables of a store."""
    return LakehouseTables(spark, Store(str(folder)), kind)


def test_tables_in_an_object_store_have_hadoops_name() -> None:
    """Spark knows no ``s3://``."""
    found = LakehouseTables(Session(), Store("s3://shop/history"), DELTA)  # type: ignore[arg-type]
    assert (found.format.place, found.format.name("days")) == (
        "s3a://shop/history/delta",
        "delta.`s3a://shop/history/delta/days`",
    )


@pytest.mark.parametrize(
    ("error", "version", "text"),
    [
        (
            AnalysisException("[DATA_SOURCE_NOT_FOUND] no source"),
            "4.0.1",
            "--format delta: this session of Spark 4.0.1 has no such format; start it with --packages "
            "io.delta:delta-spark_2.13:VERSION, a release for Spark 4.0",
        ),
        (
            RuntimeError("Cannot find catalog plugin class for x"),
            "3.5.6",
            "--format delta: this session of Spark 3.5.6 has no such format; start it with --packages "
            "io.delta:delta-spark_2.12:VERSION, a release for Spark 3.5",
        ),
        (
            RuntimeError("x\njava.lang.NoSuchMethodError: old"),
            "4.1.0",
            "--format delta: this session of Spark 4.1.0 cannot load it: java.lang.NoSuchMethodError: "
            "old; start it with --packages io.delta:delta-spark_4.1_2.13:VERSION, a release for Spark 4.1",
        ),
    ],
)
def test_a_session_without_the_format_is_told_which_package_to_load(
    tmp_path: Path, error: Exception, version: str, text: str
) -> None:
    """The check precedes reading; the package fits the running Spark and Scala."""
    spark = Checked(error, Delta.settings, version)
    with pytest.raises(ConfigError) as refused:
        tables(tmp_path, spark).check()
    assert str(refused.value) == text
    assert spark.path == f"{tmp_path}/delta/_none"


def test_a_session_without_the_settings_of_its_start_is_told_them(tmp_path: Path) -> None:
    """A session with the settings passes; the last one shows whether it has them."""
    missing = AnalysisException("[PATH_NOT_FOUND] no table")
    tables(tmp_path, Checked(missing, Delta.settings)).check()
    tables(tmp_path, Checked(missing), ICEBERG).check()
    wanted = " ".join(f"--conf {name}={value}" for name, value in Delta.settings.items())
    *others, last = Delta.settings.items()
    for settings in ({}, dict(others), {last[0]: ""}):
        with pytest.raises(ConfigError) as refused:
            tables(tmp_path, Checked(missing, settings)).check()
        assert str(refused.value) == f"--format delta: the session was started without {wanted}"
    tables(tmp_path, Checked(missing, dict([last]))).check()


# -- the rows of a table --------------------------------------------------------------------------


class Reader(Session):
    """A session that records the files read and the empty frames made."""

    def __init__(self) -> None:
        super().__init__({**Delta.settings})
        self.steps: list[Any] = []

    def schema(self, schema: Any) -> Reader:
        """Record the columns to read."""
        self.steps.append(("schema", schema.names))
        return self

    def option(self, name: str, value: str) -> Reader:
        """Record an option of the reader."""
        self.steps.append((name, value))
        return self

    def parquet(self, *paths: str) -> Reader:
        """Record the files."""
        self.steps.append(("parquet", *paths))
        return self

    def select(self, *names: str) -> str:
        """Record the columns in order."""
        self.steps.append(("select", names))
        return "rows"

    def createDataFrame(self, rows: Any, schema: Any) -> str:  # noqa: N802 - Spark's name
        """Record an empty frame."""
        self.steps.append(("empty", rows, schema.names))
        return "nothing"


def test_the_files_of_days_are_read_in_their_order_with_their_day(tmp_path: Path) -> None:
    """The folder's name has the day; the pages are checked; a table without rows has its columns."""
    spark = Reader()
    made = tables(tmp_path, spark)
    found = made._rows("decisions", {"2026-11-02": "b", "2026-11-01": "a"})
    names = lakehouse._schema("decisions").names
    assert found == "rows"  # type: ignore[comparison-overlap]
    assert names[0] == "dt"
    base = f"{tmp_path}/decisions"
    assert spark.steps == [
        ("schema", names),
        ("basePath", base),
        ("parquet.page.verify-checksum.enabled", "true"),
        ("parquet", f"{base}/dt=2026-11-01/a.parquet", f"{base}/dt=2026-11-02/b.parquet"),
        ("select", tuple(names)),
    ]
    spark.steps.clear()
    assert made._rows("moves", {}) == "nothing"  # type: ignore[comparison-overlap]
    assert spark.steps == [("empty", [], lakehouse._schema("moves").names)]
    spark.steps.clear()
    made._rows("quarantine", {"all": "q"})
    assert spark.steps[3] == ("parquet", f"{tmp_path}/quarantine/q.parquet")


def test_a_table_has_its_day_once_and_the_refused_lines_have_none() -> None:
    """Facts get a day column in front; a daily table has its own."""
    for table, columns in TABLES.items():
        names = lakehouse._schema(table).names
        assert names.count("dt") == 1
        assert set(names) == {"dt", *(column.name for column in columns)}
    assert lakehouse._schema("quarantine").names == ["file", "line", "reason"]


def test_the_parts_of_a_table_are_its_days_with_rows() -> None:
    """Pending rows have no day; the refused lines form a single part."""
    manifest = Manifest(
        days={
            "2026-11-02": Day("b", {"decisions": 1, "moves": 0}),
            "2026-11-01": Day("a", {"decisions": 2, "moves": 4}),
            PENDING: Day("p", {"decisions": 9}),
        },
        quarantine="q",
    )
    assert lakehouse._parts(manifest, "decisions") == {"2026-11-01": "a", "2026-11-02": "b"}
    assert lakehouse._parts(manifest, "moves") == {"2026-11-01": "a"}
    assert lakehouse._parts(manifest, "samples") == {}
    assert lakehouse._parts(manifest, "quarantine") == {"all": "q"}
    assert lakehouse._parts(Manifest(), "quarantine") == {}


OLD = {"2026-11-01": "a", "2026-11-02": "b", "2026-11-03": "c"}
NEW = {"2026-11-01": "a", "2026-11-02": "B", "2026-11-04": "d"}


@pytest.mark.parametrize(
    ("table", "stands", "columns", "whole"),
    [
        ("decisions", OLD, None, False),
        ("decisions", {}, None, True),
        ("decisions", OLD, ["other"], True),
        ("quarantine", {"all": "q"}, None, True),
    ],
)
def test_changed_days_are_overwritten_or_the_whole_table_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    stands: dict[str, str],
    columns: list[str] | None,
    whole: bool,
) -> None:
    """A new table, a table with other columns, and the refused lines are replaced as a whole."""
    done: list[Any] = []
    made = tables(tmp_path, Session())
    there = columns or lakehouse._schema(table).names
    monkeypatch.setattr(made, "_columns", lambda _: there)
    monkeypatch.setattr(made, "_rows", lambda table, parts: Calls(done, (table, dict(parts))))
    monkeypatch.setattr(
        made.format, "replace", lambda rows, table, by: done.append((*rows.calls, table, by))
    )
    monkeypatch.setattr(
        "pyspark.sql.functions.col", lambda name: SimpleNamespace(isin=lambda days: (name, days))
    )
    made._replace_changed_days(table, stands, NEW)
    if whole:
        by = () if table == "quarantine" else ("dt",)
        assert done == [((table, NEW), table, by)]
        return
    days = [date(2026, 11, day) for day in (2, 3, 4)]
    changed = {"2026-11-02": "B", "2026-11-04": "d"}
    assert done == [
        (
            (table, changed),
            ("writeTo", f"delta.`{tmp_path}/delta/{table}`"),
            ("overwrite", ("dt", days)),
        )
    ]


def test_the_columns_of_a_missing_table_are_not_known(tmp_path: Path) -> None:
    """An existing table's columns keep their order."""
    spark = Session()
    made = tables(tmp_path, spark)
    assert made._columns("moves") is None
    spark.tables = [made.format.name("moves")]
    assert made._columns("moves") == []


def test_the_record_of_published_tables_grows_with_each_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is recorded before its first table, so the next visit may write there."""
    made = tables(tmp_path, Session())
    seen: list[Any] = []

    def bring(table: str, stands: Any, wanted: Any) -> None:
        seen.append(json.loads((tmp_path / "published.json").read_text()))
        if table == "samples":
            raise ConnectionError

    monkeypatch.setattr(made, "_replace_changed_days", bring)
    day = Day("a", dict.fromkeys(TABLES, 1))
    with pytest.raises(ConnectionError):
        made.publish(Manifest(days={"2026-11-01": day}))
    place = f"{tmp_path}/delta"
    names = list(TABLES)[: list(TABLES).index("samples") + 1]
    part = {"2026-11-01": "a"}
    assert seen == [{place: dict.fromkeys(names[:number], part)} for number in range(len(names))]


def test_a_day_that_a_dead_run_wrote_and_the_next_run_removes_is_removed_from_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decision may move to an earlier day between the two runs."""
    made = tables(tmp_path, Session())
    seen: list[tuple[str, set[str]]] = []
    dies = False

    def bring(table: str, stands: Any, wanted: Any) -> None:
        seen.append((table, lakehouse._changed(stands, wanted)))
        if dies:
            raise ConnectionError

    def of(*days: str) -> Manifest:
        return Manifest(days={day: Day(f"token {day}", {"decisions": 1}) for day in days})

    monkeypatch.setattr(made, "_replace_changed_days", bring)
    made.publish(of("2026-11-01"))
    dies = True
    with pytest.raises(ConnectionError):
        made.publish(of("2026-11-01", "2026-11-02"))
    dies = False
    made.publish(of("2026-11-01"))
    assert seen[-2:] == [("decisions", {"2026-11-02"})] * 2
    made.publish(of("2026-11-01"))
    assert len(seen) == len(TABLES) + 3


# -- a shuffle's batches --------------------------------------------------------------------------


def batch(*days: str) -> pa.RecordBatch:
    """Return numbered rows of days."""
    numbers = pa.array(range(len(days)))
    return pa.RecordBatch.from_arrays([pa.array(days, pa.string()), numbers], names=["day", "n"])


def test_sorted_batches_are_split_into_days() -> None:
    """A day may span several batches; an empty batch yields no day."""
    given = [batch("a", "a", "b"), batch(), batch("b"), batch("b", "c"), batch("d")]
    found = [
        (day, [part.column("n").to_pylist() for part in parts]) for day, parts in _days(iter(given))
    ]
    assert found == [("a", [[0, 1]]), ("b", [[2], [0], [0]]), ("c", [[1]]), ("d", [[0]])]
    assert list(_days(iter([batch()]))) == []
