"""The Delta and Iceberg tables of a visit, and the tables' days."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.errors import AnalysisException

from faust_assigner.cli import main
from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.history import lakehouse
from faust_assigner.pipeline.history.lakehouse import DELTA, ICEBERG, LakehouseTables
from faust_assigner.pipeline.history.store import PENDING, TABLES, Day, Manifest, Store


class Session:
    """A session with settings as ``spark.conf``, its statements, and the existing ``tables``."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.settings = dict(settings or {})
        self.conf, self.read = self, self
        self.tables: Sequence[str] = ()
        self.statements: list[str] = []

    def get(self, name: str, default: str) -> str:
        """Return a setting."""
        return self.settings.get(name, default)

    def set(self, name: str, value: str) -> None:
        """Change a setting."""
        self.settings[name] = value

    def sql(self, statement: str) -> None:
        """Record a statement."""
        self.statements.append(statement)

    def format(self, kind: str) -> Session:
        """Return the reader of a format."""
        return self

    def load(self, path: str) -> Any:
        """Fail: no folder is a table."""
        raise AnalysisException(f"no table {path}")

    def table(self, name: str) -> Any:
        """Return a table, or raise Spark's error."""
        if name not in self.tables:
            raise AnalysisException(f"no table {name}")
        return SimpleNamespace(columns=[])


class Recorded(LakehouseTables):
    """Tables that record each write, and fail at the table ``fails_at``."""

    def __init__(
        self, folder: Path, fails_at: str = "", kind: str = DELTA, session: Session | None = None
    ) -> None:
        super().__init__(session or Session(), Store(str(folder)), kind)  # type: ignore[arg-type]
        self.fails_at = fails_at
        self.written: list[tuple[str, Any, Any]] = []

    def _replace_changed_days(
        self, table: str, stands: Mapping[str, str], wanted: Mapping[str, str]
    ) -> None:
        if table == self.fails_at:
            raise ConnectionError(table)
        self.written.append((table, dict(stands), dict(wanted)))


CATALOG = "spark.sql.catalog.faust_assigner"
FIRST = Manifest(
    days={
        "2026-01-01": Day("a", {"decisions": 1, "moves": 2}),
        PENDING: Day("p", {"placements": 1}),
    },
    quarantine="q",
)
SECOND = Manifest(days={**FIRST.days, "2026-01-02": Day("b", {"decisions": 1})}, quarantine="q")


def test_only_tables_whose_days_changed_are_written_again(tmp_path: Path) -> None:
    """The second visit adds only decisions of a new day; the third has no new lines."""
    first, second, third = (Recorded(tmp_path) for _ in range(3))
    first.publish(FIRST)
    second.publish(SECOND)
    third.publish(SECOND)
    by_table = {table: wanted for table, _, wanted in first.written}
    assert by_table["moves"] == by_table["decisions"] == {"2026-01-01": "a"}
    assert (by_table["placements"], by_table["quarantine"]) == ({}, {"all": "q"})
    before, after = {"2026-01-01": "a"}, {"2026-01-01": "a", "2026-01-02": "b"}
    assert second.written == [("decisions", before, after)]
    assert third.written == []


def test_a_day_without_rows_any_more_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has only days of the history; unchanged days are not written."""
    written: list[tuple[dict[str, str], list[date]]] = []

    class Dropped(LakehouseTables):
        def _columns(self, table: str) -> list[str]:
            return lakehouse._schema(table).names

        def _rows(self, table: str, parts: Any) -> Any:
            overwrite = partial(lambda parts, days: written.append((parts, days)), dict(parts))
            return SimpleNamespace(writeTo=lambda name: SimpleNamespace(overwrite=overwrite))

    monkeypatch.setattr(
        "pyspark.sql.functions.col", lambda name: SimpleNamespace(isin=lambda days: days)
    )
    tables = Dropped.__new__(Dropped)
    tables.format = SimpleNamespace(name=str)  # type: ignore[assignment]
    tables._replace_changed_days(
        "decisions", {"2026-01-01": "a", "2026-01-02": "b"}, {"2026-01-01": "a"}
    )
    assert written == [({}, [date(2026, 1, 2)])]


def test_the_next_visit_completes_an_interrupted_one(tmp_path: Path) -> None:
    """Tables before the failure are written once, the others afterwards."""
    whole, broken, next_one = (
        Recorded(tmp_path / "whole"),
        Recorded(tmp_path / "out", fails_at="moves"),
        Recorded(tmp_path / "out"),
    )
    whole.publish(FIRST)
    with pytest.raises(ConnectionError):
        broken.publish(FIRST)
    next_one.publish(FIRST)
    assert broken.written
    assert next_one.written[0][0] == "moves"
    assert broken.written + next_one.written == whole.written


def test_each_format_has_its_own_record_of_written_tables(tmp_path: Path) -> None:
    """A visit with a second format writes all its tables; the first format's record stays."""
    for kind in (DELTA, ICEBERG):
        first, second = (Recorded(tmp_path, kind=kind) for _ in range(2))
        first.publish(FIRST)
        second.publish(FIRST)
        assert {table for table, _, _ in first.written} == {*TABLES, "quarantine"}
        assert second.written == []
    again = Recorded(tmp_path, kind=DELTA)
    again.publish(FIRST)
    assert again.written == []


def test_each_folder_of_iceberg_tables_has_its_own_catalog(tmp_path: Path) -> None:
    """Spark identifies a catalog by name, so two histories in a session need two names."""
    session = Session()
    one, two = (Recorded(tmp_path / name, kind=ICEBERG, session=session) for name in ("a", "b"))
    assert one.format.name("moves") != two.format.name("moves")
    warehouses = {value for key, value in session.settings.items() if key.endswith(".warehouse")}
    assert warehouses == {f"{tmp_path}/a/iceberg", f"{tmp_path}/b/iceberg"}


def test_the_sessions_own_catalog_holds_the_iceberg_tables(tmp_path: Path) -> None:
    """The tables are in the default namespace, created by the first visit."""
    settings = {CATALOG: "org.example.Catalog", f"{CATALOG}.default-namespace": "shop.history"}
    session = Session(settings)
    tables = Recorded(tmp_path, kind=ICEBERG, session=session)
    tables.check()
    tables.publish(FIRST)
    assert tables.format.name("moves") == "`faust_assigner`.`shop`.`history`.moves"
    assert session.statements == [
        "CREATE NAMESPACE IF NOT EXISTS `faust_assigner`.`shop`.`history`"
    ]
    assert session.settings == settings


def test_tables_of_another_history_are_not_replaced(tmp_path: Path) -> None:
    """The same history may rewrite a catalog's tables; any other history is refused."""
    session = Session({CATALOG: "org.example.Catalog"})
    own, other = (Recorded(tmp_path / n, kind=ICEBERG, session=session) for n in ("own", "other"))
    own.publish(FIRST)
    session.tables = ["`faust_assigner`.`history`.decisions"]
    own.check()
    with pytest.raises(ConfigError, match="another history"):
        other.check()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_format_is_refused_without_spark(tmp_path: Path, kind: str) -> None:
    """A process without Spark cannot write these tables."""
    asked = ["history", "--ledger", str(tmp_path), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, [*asked, "--no-spark", "--format", kind])
    assert done.exit_code == 2
    assert f"--format {kind} needs Spark" in done.output
    assert not (tmp_path / "out").exists()
