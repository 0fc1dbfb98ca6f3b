"""What the code, README and docs point at exists: pages, sections, files, decisions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.pages import PAGES, ROOT, anchors, prose

CODE = sorted(path for folder in ("faust_assigner", "examples", "benchmarks", "tests")
              for path in (ROOT / folder).rglob("*.py"))
DECISIONS = ROOT / "docs/explanation/decisions"
#: A mention of the docs in code, with the section if it names one.
MENTION = re.compile(r"\bdocs/(?:tutorial|how-to|reference|explanation|glossary)[\w./-]*(?:#[\w-]+)?")
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)\s]+)\)")
#: A file of ours between backticks: with its folder from the root, from the package, or a test.
FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|cfg|yml|html|xml))`")

#: A test file between backticks without its folder.
BARE_TEST = re.compile(r"`(test_\w+\.py)`")


def exists(place: Path, section: str) -> bool:
    """Whether the file is there, and the section in it if one is named."""
    return place.exists() and (not section or section in anchors(place))


def test_mentions_of_the_docs_in_code_name_a_page_and_a_section_that_exist() -> None:
    """``docs/explanation`` alone is no place to look something up."""
    dead = []
    for path in CODE:
        for mention in MENTION.findall(path.read_text()):
            page, _, section = mention.rstrip(".").partition("#")
            place = ROOT / page
            is_place = place.exists() if "tests" in path.parts else place.is_file()
            if not is_place or not exists(place, section):
                dead.append(f"{path.relative_to(ROOT)}: {mention}")
    assert not dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """Files and sections, also where MkDocs does not look: README, CONTRIBUTING, SECURITY."""
    dead = []
    for link in LINK.findall(prose(page)):
        target, _, section = link.partition("#")
        place = (page.parent / target).resolve() if target else page
        if not exists(place, section if place.suffix == ".md" else ""):
            dead.append(link)
    assert not dead


@pytest.mark.parametrize("page", [p for p in PAGES if DECISIONS not in p.parents],
                         ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_named_in_running_text_exist(page: Path) -> None:
    """A file that was renamed takes its mentions along. Decisions are of their day and stay as they are."""
    roots = (ROOT, ROOT / "faust_assigner", page.parent)
    generated = ("sim/", "history/report", "build/")  # what commands write
    dead = [name for name in FILE.findall(prose(page))
            if not name.startswith(generated) and not any((root / name).exists() for root in roots)]
    assert not dead


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent.name in ("reference", "explanation")],
                         ids=lambda page: page.relative_to(ROOT).as_posix())
def test_test_files_named_without_a_folder_exist(page: Path) -> None:
    """A test file that was renamed or moved into another name takes its mentions along."""
    ours = {path.name for path in CODE}
    assert not [name for name in BARE_TEST.findall(prose(page)) if name not in ours]


# Decisions ------------------------------------------------------------------------------------------


def test_decisions_are_numbered_without_a_hole_and_indexed() -> None:
    """Each has its line in the index, with the same title."""
    pages = sorted(DECISIONS.glob("[0-9]*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    index = (DECISIONS / "index.md").read_text()
    for page in pages:
        title = page.read_text().splitlines()[0].removeprefix(f"# {page.name[:4]}. ")
        assert f"| [{page.name[:4]}]({page.name}) | {title} |" in index


@pytest.mark.parametrize("page", sorted(DECISIONS.glob("[0-9]*.md")), ids=lambda page: page.stem)
def test_a_decision_has_date_status_and_its_four_headings(page: Path) -> None:
    """One that is superseded names its successor, which names it."""
    text = page.read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "Context", "Decision", "Alternatives considered", "Consequences"]
    status = text.splitlines()[2]
    assert re.match(r"\d{4}-\d{2}-\d{2}, (accepted|superseded by)", status)
    if found := re.search(r"superseded by \[\d{4}\]\(([^)]*)\)", status):
        assert f"supersedes [{page.name[:4]}]({page.name})" in (DECISIONS / found[1]).read_text()
