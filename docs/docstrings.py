"""Docstrings as the code writes them, made Markdown: roles, doctests, and a list for each table of fields."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([^`]+)`")
#: A page of the docs; the pages that read docstrings lie in reference/api, two folders down.
_PAGE = re.compile(r"\bdocs/([\w/-]+)\.md(#[\w-]+)?")
#: A row of a table begins with the field's name; in the first one two blanks or more follow it.
_ROW = re.compile(r"``[\w-]+``")
_TABLE = re.compile(r"``[\w-]+``(, ``[\w-]+``)*\s{2,}\S")


class Plain(griffe.Extension):
    """Rewrites every docstring once, when it has been read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """``:class:`X``` becomes code, a paragraph of ``>>>`` a fenced block, a table of fields a list."""
    text = _PAGE.sub(lambda page: f"[{page[1]}](../../{page[1]}.md{page[2] or ''})", _ROLE.sub(r"`\1`", text))
    lines = text.splitlines()
    groups = groupby(lines, key=lambda line: not line.strip())
    paragraphs = [list(part) for blank, part in groups if not blank]
    return "\n\n".join("\n".join(_paragraph(part)) for part in paragraphs)


def _paragraph(lines: list[str]) -> list[str]:
    if lines[0].lstrip().startswith(">>>"):
        return ["```pycon", *lines, "```"]
    if any(line.lstrip().startswith(("|- ", "`- ")) for line in lines):
        return ["```text", *lines, "```"]
    if not any(_TABLE.match(line) for line in lines):
        return lines
    return [("- " if _ROW.match(line) else "  ") + " ".join(line.split()) for line in lines]
