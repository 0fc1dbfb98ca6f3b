"""The app under test: its settings, its path, and its copies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import faust
import pytest

from faust_assigner.testing import apps


def test_settings_of_the_block_hold_for_apps_that_are_configured_in_it() -> None:
    """The block's settings replace the app's own settings, only in the block."""
    with apps.configured({"broker_session_timeout": 9.5, "topic_partitions": 3}):
        inside = faust.App("inside", broker_session_timeout=70.0)
        inside.finalize()
    after = faust.App("after", broker_session_timeout=70.0)
    after.finalize()
    assert (inside.conf.broker_session_timeout, inside.conf.topic_partitions) == (9.5, 3)
    assert after.conf.broker_session_timeout == 70.0


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Write a package with an app, a module of models and a module of tests."""
    name = "kit_shop"
    folder = tmp_path / name
    (folder / "tests").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "tests" / "__init__.py").touch()
    (folder / "models.py").write_text("made = object()\n")
    (folder / "tests" / "helpers.py").write_text("made = object()\n")
    (folder / "app.py").write_text(
        "import faust\nfrom kit_shop import models\nfrom kit_shop.tests import helpers\n"
        "app = faust.App('kit-shop')\nother = faust.App('kit-other')\nnumber = 3\n"
        "parts = (models.made, helpers.made)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    for module in [one for one in sys.modules if one.partition(".")[0] == name]:
        del sys.modules[module]


def test_a_copy_of_an_app_is_new_with_its_package_and_the_imports_of_the_test_stay(
    package: str,
) -> None:
    """Modules of tests are not copied."""
    import importlib

    app = importlib.import_module(f"{package}.app")
    copies = [apps.load_copy(f"{package}.app:app") for _ in range(2)]
    assert len({id(one) for one in (app.app, *copies)}) == 3
    assert sys.modules[f"{package}.app"] is app
    assert sys.modules[package].app is app  # type: ignore[attr-defined]
    assert sys.modules[f"{package}.models"].made is app.parts[0]  # type: ignore[attr-defined]


def test_modules_that_a_copy_imported_first_are_forgotten(package: str) -> None:
    """The next copy or the test executes such modules again."""
    apps.load_copy(f"{package}.app")
    assert f"{package}.app" not in sys.modules
    assert f"{package}.models" not in sys.modules
    assert f"{package}.tests.helpers" in sys.modules


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("kit_shop.app:number", "kit_shop.app:number is not a faust.App but a int"),
        ("kit_shop.app:shop", "the module kit_shop.app has no 'shop'; its apps: app, other"),
        ("kit_shop.models", "the module kit_shop.models has no 'app'; it has no Faust app"),
        ("kit_shop.nowhere", "no module 'kit_shop.nowhere' on sys.path"),
        ("kit_nowhere.app", "cannot import 'kit_nowhere.app'"),
        (":app", "fleet(':app'): cannot import ''"),
    ],
)
def test_a_path_without_an_app_is_an_error_with_the_names_that_there_are(
    package: str, path: str, text: str
) -> None:
    """The rule also holds for a copy."""
    for load in (apps.load, apps.load_copy):
        with pytest.raises(apps.AppNotFound) as failure:
            load(path)
        assert text in str(failure.value)


def test_a_function_makes_the_app() -> None:
    """The error for another result names the function."""
    made = faust.App("kit-made")
    assert apps.load(lambda: made) is made

    def three() -> int:
        return 3

    with pytest.raises(apps.AppNotFound, match=r"three\(\) is not a faust.App but a int"):
        apps.load_copy(three)
