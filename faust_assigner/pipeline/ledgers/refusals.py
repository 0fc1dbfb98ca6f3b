"""How much of a ledger may be refused, or missing, before a command would rather fail than go on."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from faust_assigner.errors import ConfigError, FaustAssignerError

REASON_CHARACTERS = 300


class TooManyRefused(FaustAssignerError, ValueError):
    """More lines were refused than the caller takes; nothing was written."""


class EmptyLedger(FaustAssignerError, ValueError):
    """The ledgers hold no line that a table takes; nothing was written."""


@dataclass
class Refused:
    """How many lines tables took and refused so far, and the first reason there was."""

    accepted: int = 0
    lines: int = 0
    first: str | None = None
    #: (file, line, reason) of the first ``keep`` of them.
    kept: list[tuple[str, int, str]] = field(default_factory=list)
    keep: int = 0

    def refuse(self, file: str, line: int, reason: str) -> None:
        """One more line that no table took."""
        self.lines += 1
        self.first = self.first or f"{file}:{line}: {reason}"
        if len(self.kept) < self.keep:
            self.kept.append((file, line, reason[:REASON_CHARACTERS]))

    def __str__(self) -> str:
        return f"{self.lines:,} of {self.accepted + self.lines:,} lines refused" + (
            f", the first: {self.first}" if self.first else ""
        )


@dataclass(frozen=True)
class Tolerance:
    """``most`` lines, or this ``share`` of all; both None: any number may be refused."""

    most: int | None = None
    share: float | None = None

    @classmethod
    def parse(cls, text: str | None) -> Tolerance:
        """``100`` or ``0.5%``; ConfigError for anything else.

        >>> Tolerance.parse("100"), Tolerance.parse("0.5%").share
        (Tolerance(most=100, share=None), 0.005)
        """
        if text is None:
            return cls()
        found = re.fullmatch(r"(\d{1,15})|(\d{1,3}(?:\.\d+)?)%", text.strip())
        if found is None or float(found[2] or 0) > 100:
            raise ConfigError(f"--max-refused {text!r}: a number of lines or a share like 0.5%")
        return cls(most=int(found[1])) if found[1] else cls(share=float(found[2]) / 100)

    def check(self, refused: Refused) -> None:
        """Raises TooManyRefused."""
        most = self.most
        if self.share is not None:
            most = int(self.share * (refused.accepted + refused.lines))
        if most is not None and refused.lines > most:
            raise TooManyRefused(f"{refused}; at most {most:,} are taken (--max-refused)")


def refuse_empty(refused: Refused, *, wanted: bool | None, replaces: str | None) -> None:
    """Raises EmptyLedger for a ledger without an accepted line, unless that is fine.

    ``wanted``: whether the caller asked for that error; None: where it would replace something good (whose
    URL is ``replaces``), and where lines there were, none of them fit.
    """
    if refused.accepted or wanted is False:
        return
    if wanted or replaces or refused.lines:
        kept = f"; {replaces} stays as it was" if replaces else ""
        raise EmptyLedger(f"the ledgers say nothing: {refused}{kept} (--allow-empty takes that)")
