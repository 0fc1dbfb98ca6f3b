"""The files around the code agree: what CI, a commit and `make check` run is one thing."""

from __future__ import annotations

import re

import yaml

from tests.support.pages import ROOT

#: `ruff check .`: a hook is given the files instead of the dot.
FLAGS_OF_HOOKS = {"--force-exclude", "."}


def words(command: str) -> tuple[str, ...]:
    """A command without its folder and without what only hooks need."""
    tool, *rest = command.split()
    return (tool.rpartition("/")[2], *(word for word in rest if word not in FLAGS_OF_HOOKS))


def test_a_commit_runs_the_tools_of_make_check() -> None:
    """Command by command; one that is added to either must be in the other."""
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe
    checked = {words(re.sub(r"^@?\$\((?:BIN|RUN)\)/", "", line.strip())) for line in recipe[1].splitlines()}
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert {words(hook["entry"]) for hook in hooks} == checked


def test_the_workflow_runs_what_a_developer_runs() -> None:
    """One step of its own: `.ci/run`."""
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    assert [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step] == [".ci/run"]
    assert (ROOT / ".ci/run").stat().st_mode & 0o111


def test_the_docs_ask_nothing_of_other_hosts() -> None:
    """Fonts, search and highlighting are built in; no script, style or picture comes from elsewhere."""
    theme = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert theme["theme"]["font"] is False
    assert "extra_javascript" not in theme
    for style in theme["extra_css"]:
        assert not re.search(r"url\(|@import", (ROOT / "docs" / style).read_text()), style
    fetched = re.compile(r"!\[[^\]]*\]\(https?:|<(?:script|link|img)\b|```mermaid")
    for page in (ROOT / "docs").rglob("*.md"):
        assert not fetched.search(page.read_text()), page
