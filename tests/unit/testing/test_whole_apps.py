"""Paths of apps that are nearly right, and the modules that a copy of an app has of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from faust_assigner.testing import apps

#: Modules beside the app ``kit_near.app``, and whether each copy of the app has its own.
BESIDE = {
    "kit_near.app_more": True,
    "kit_near.testimony": True,
    "kit_near.latest": True,
    "kit_near.conftest": False,
    "kit_near.test_orders": False,
    "kit_near.tests": False,
    "kit_nearby": False,
    "kit_near_more": False,
}


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write the app and the modules beside it, and a module without a package."""
    (tmp_path / "kit_near").mkdir()
    (tmp_path / "kit_near" / "__init__.py").touch()
    for name in (*BESIDE, "kit_alone_more"):
        (tmp_path / (name.replace(".", "/") + ".py")).write_text("made = object()\n")
    (tmp_path / "kit_near" / "app.py").write_text(
        "".join(f"import {name}\n" for name in BESIDE)
        + f"import faust, sys\napp = faust.App('kit-near')\n"
        f"app.parts = [sys.modules[name].made for name in {list(BESIDE)}]\n"
    )
    (tmp_path / "kit_alone.py").write_text(
        "import faust, kit_alone_more\napp = faust.App('kit-alone')\n"
        "app.parts = [kit_alone_more.made]\n"
    )
    (tmp_path / "kit_wrong.py").write_text(
        "from types import SimpleNamespace\napp = 3\nnone = None\n"
        "looks_like_one = SimpleNamespace(conf=None)\n"
    )
    (tmp_path / "kit_broken").mkdir()
    (tmp_path / "kit_broken" / "__init__.py").write_text("raise ImportError('no driver')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for module in [one for one in sys.modules if one.startswith("kit_")]:
        del sys.modules[module]


def test_a_copy_has_its_own_modules_of_the_app_and_shares_all_others(written: Path) -> None:
    """Tests are recognised by whole names, and packages by their whole names, too."""
    first, second = (apps.load_copy("kit_near.app").parts for _ in range(2))
    own = {name: a is not b for name, a, b in zip(BESIDE, first, second, strict=True)}
    assert own == BESIDE
    one, other = (apps.load_copy("kit_alone").parts for _ in range(2))
    assert one[0] is other[0]
    assert "kit_alone" not in sys.modules


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("kit_wrong", "kit_wrong:app is not a faust.App but a int"),
        ("kit_wrong:none", "kit_wrong:none is not a faust.App but a NoneType"),
        (
            "kit_wrong:looks_like_one",
            "kit_wrong:looks_like_one is not a faust.App but a SimpleNamespace",
        ),
        (
            "kit_void.app:one",
            "fleet('kit_void.app:one'): cannot import 'kit_void.app': No module named 'kit_void'",
        ),
        ("kit_broken.app", "fleet('kit_broken.app'): cannot import 'kit_broken.app': no driver"),
        (
            "kit_specless",
            "fleet('kit_specless'): cannot import 'kit_specless': kit_specless.__spec__ is None",
        ),
        (
            "kit_near.void:app",
            "fleet('kit_near.void:app'): no module 'kit_near.void' on sys.path; write the path of "
            "the app's module with dots, as in `faust -A kit_near.void worker`",
        ),
    ],
)
def test_the_error_of_a_path_names_the_module_and_the_cause(
    written: Path, monkeypatch: pytest.MonkeyPatch, path: str, text: str
) -> None:
    """The whole text of each error."""
    specless = ModuleType("kit_specless")
    specless.__spec__ = None
    monkeypatch.setitem(sys.modules, "kit_specless", specless)
    with pytest.raises(apps.AppNotFound) as failure:
        apps.load(path)
    assert str(failure.value) == text


def test_a_function_is_named_with_its_class() -> None:
    """A callable without a name is shown as it is."""

    class Shop:
        @staticmethod
        def make() -> Any:
            return SimpleNamespace(conf=1)

        def __call__(self) -> int:
            return 7

        def __str__(self) -> str:
            return "the shop"

    where = f"{test_a_function_is_named_with_its_class.__name__}.<locals>.Shop.make()"
    for source, text in (
        (Shop.make, f"{where} is not a faust.App but a SimpleNamespace"),
        (Shop(), "the shop() is not a faust.App but a int"),
    ):
        with pytest.raises(apps.AppNotFound) as failure:
            apps.load(source)
        assert str(failure.value) == text


def test_an_empty_variable_of_the_caller_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays empty during the block and after it."""
    for name in apps.ENVIRONMENT:
        monkeypatch.setenv(name, "")
    with apps.environment():
        assert [os.environ[name] for name in apps.ENVIRONMENT] == ["", ""]
    assert [os.environ[name] for name in apps.ENVIRONMENT] == ["", ""]
