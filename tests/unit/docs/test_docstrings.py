"""Examples in docstrings are true."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROMPT = re.compile(r"^\s*>>> ", re.MULTILINE)
WITH_EXAMPLES = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for file in (ROOT / "faust_assigner").rglob("*.py")
    if PROMPT.search(file.read_text(encoding="utf-8"))
)


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_in_docstrings_are_true(module: str) -> None:
    """Each session of ``>>>`` prints what it shows; ``...`` stands for anything."""
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_examples_are_found() -> None:
    """Modules and packages alike."""
    assert {"faust_assigner", "faust_assigner.clients.group_views"} <= set(WITH_EXAMPLES)


API_NAMES = sorted(
    name
    for page in (ROOT / "docs/reference/api").glob("*.md")
    for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
)


@pytest.fixture(scope="module")
def markdown() -> Callable[[str], str]:
    """The function that turns docstrings into the text of the pages."""
    pytest.importorskip("griffe")
    spec = importlib.util.spec_from_file_location("docstrings", ROOT / "docs/docstrings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    convert: Callable[[str], str] = module.markdown
    return convert


def _docstrings(name: str) -> Iterator[str]:
    file = ROOT / Path(*name.split("."))
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    if not file.exists():  # a class or a function: its module is the name before
        file = (ROOT / Path(*name.split(".")[:-1])).with_suffix(".py")
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("name", API_NAMES)
def test_no_columns_of_a_docstring_run_together_on_a_page(
    name: str, markdown: Callable[[str], str]
) -> None:
    """A list whose rows the generator does not know becomes one paragraph of words."""
    for text in _docstrings(name):
        plain = re.sub(r"```.*?```", "", markdown(text), flags=re.DOTALL)
        assert not re.findall(r"^(?:\S+ {2,}\S.*| *=+ .*)$", plain, re.MULTILINE)
