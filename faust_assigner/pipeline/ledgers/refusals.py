"""The limits for refused lines and for empty ledgers, beyond which a command fails."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from faust_assigner.errors import ConfigError, FaustAssignerError

REASON_CHARACTERS = 300


class TooManyRefused(FaustAssignerError, ValueError):
    """More lines were refused than the caller accepts; the command wrote no output."""


class EmptyLedger(FaustAssignerError, ValueError):
    """The ledgers hold no accepted line; the command wrote no output."""


@dataclass
class Refused:
    """The number of accepted and refused lines so far, and the place and reason of the first refusal."""

    accepted: int = 0
    lines: int = 0
    first: str | None = None
    #: (file, line, reason) of the first ``keep`` refused lines.
    kept: list[tuple[str, int, str]] = field(default_factory=list)
    keep: int = 0

    def refuse(self, file: str, line: int, reason: str) -> None:
        """Count one refused line."""
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
    """The limit for refused lines: ``most`` lines or a ``share`` of all lines; no limit if both are None."""

    most: int | None = None
    share: float | None = None

    @classmethod
    def parse(cls, text: str | None) -> Tolerance:
        """Parse ``100`` or ``0.5%``; raises ConfigError for any other text.

        >>> Tolerance.parse("100"), Tolerance.parse("0.5%").share
        (Tolerance(most=100, share=None), 0.005)
        """
        if text is None:
            return cls()
        found = re.fullmatch(r"(\d{1,15})|(\d{1,3}(?:\.\d+)?)%", text.strip())
        if found is None or float(found[2] or 0) > 100:
            raise ConfigError(
                f"--max-refused {text!r}: expected a number of lines or a share like 0.5%"
            )
        return cls(most=int(found[1])) if found[1] else cls(share=float(found[2]) / 100)

    def check(self, refused: Refused) -> None:
        """Raise TooManyRefused if ``refused`` exceeds the tolerance."""
        most = self.most
        if self.share is not None:
            most = int(self.share * (refused.accepted + refused.lines))
        if most is not None and refused.lines > most:
            raise TooManyRefused(f"{refused}; at most {most:,} may be refused (--max-refused)")


def refuse_empty(refused: Refused, *, wanted: bool | None, replaces: str | None) -> None:
    """Raise EmptyLedger for a ledger without an accepted line, depending on ``wanted``.

    With True the function always raises, with False never. With None it raises if the ledger holds refused
    lines, or if the empty result would replace the earlier result at the URL ``replaces``.
    """
    if refused.accepted or wanted is False:
        return
    if wanted or replaces or refused.lines:
        kept = f"; {replaces} stays as it was" if replaces else ""
        raise EmptyLedger(
            f"no line of the ledgers is accepted: {refused}{kept} (--allow-empty permits this)"
        )
