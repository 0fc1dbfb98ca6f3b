"""An app is repaired once, before it makes what would be repaired, and not where its settings forbid it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faust
import pytest

from faust_assigner.app import compose as module
from faust_assigner.app.compose import install, repair
from faust_assigner.app.recovery.loop import SteadyTables


def app_in(folder: Path, **options: Any) -> Any:
    """An app of plain Faust, not started; its assignor is stock's, so that nothing repairs it by itself."""
    return faust.App(
        "plain", broker="kafka://127.0.0.1:1", web_enabled=False, datadir=str(folder), **options
    )


def parts(app: Any) -> list[Any]:
    """What a repair puts in place of Faust's."""
    conf = app.conf
    return [conf.TableManager, conf.Stream, app.flow_control, app._new_consumer]


async def test_a_second_repair_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither by the fixup nor by the assignor, even once the tables are made; no warning either."""
    app = app_in(tmp_path)
    repair(app)
    once = parts(app)
    assert issubclass(once[0], SteadyTables)
    repair(app)
    assert [a is b for a, b in zip(parts(app), once, strict=True)] == [True] * 4
    assert app.tables is not None
    repair(app)
    assert "could be repaired" not in caplog.text


async def test_an_app_that_is_in_use_is_warned_about_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of the repairs would be worse than none."""
    app = app_in(tmp_path)
    assert app.tables is not None
    for _ in range(2):
        repair(app)
    lines = [one for one in caplog.records if "before it could be repaired" in one.getMessage()]
    assert len(lines) == 1
    assert not issubclass(app.conf.TableManager, SteadyTables)


@pytest.mark.parametrize("wanted", [True, False])
async def test_settings_may_forbid_the_repairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    """Then all is Faust's."""
    monkeypatch.setattr(module, "read_or_default", lambda app, setting: wanted)
    app = app_in(tmp_path)
    install(app)
    assert issubclass(app.conf.TableManager, SteadyTables) == wanted


async def test_flow_control_that_an_app_has_made_is_repaired_in_place(tmp_path: Path) -> None:
    """Whoever holds it waits at the same one."""
    app = app_in(tmp_path)
    before = app.flow_control
    repair(app)
    assert app.flow_control is before
    assert type(before) is module.FlowControl
