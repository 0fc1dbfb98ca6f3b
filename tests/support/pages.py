"""README and docs for the tests: fenced blocks, the reasons why some are not run, anchors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = tuple(
    sorted(
        [
            ROOT / "README.md",
            ROOT / "CONTRIBUTING.md",
            ROOT / "SECURITY.md",
            *(ROOT / "docs").rglob("*.md"),
        ]
    )
)
#: Allowed language of a fence -> whether a test runs it.
IS_RUN = {
    "python": True,
    "pycon": True,
    "sh": True,
    "console": True,
    "text": False,
    "json": False,
    "yaml": False,
}

_FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_REASON = re.compile(r"<!-- not run: ([^\n]*?) -->\n\s*\Z")
_HEADING = re.compile(r"^#{1,6} (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block; ``reason`` is why it is not run, "" if it is run."""

    page: str
    line: int
    language: str
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The commands of a shell block, one per line, without comments; of a console the ``$`` lines."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        return [command for line in lines if (command := re.sub(r"(^|\s+)# .*", "", line).strip())]


def blocks(page: Path) -> list[Block]:
    """Return all fenced blocks of a page, in order."""
    text = page.read_text()
    found = []
    for match in _FENCE.finditer(text):
        reason = _REASON.search(text[: match.start()])
        found.append(
            Block(
                page.relative_to(ROOT).as_posix(),
                text.count("\n", 0, match.start()) + 1,
                match[1],
                match[2],
                reason[1] if reason else "",
            )
        )
    return found


def prose(page: Path) -> str:
    """Return the page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as MkDocs makes them."""
    from markdown.extensions.toc import slugify

    return {slugify(re.sub(r"[`*]", "", heading), "-") for heading in _HEADING.findall(prose(page))}


ALL = tuple(block for page in PAGES for block in blocks(page))
