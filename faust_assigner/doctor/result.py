"""The doctor's result: findings and impossible checks, with its JSON and exit code."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from faust_assigner.doctor.codes import BY_CODE, ERROR, LEVELS, WARNING, Finding

#: The version of the JSON; a later version only adds keys.
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Result:
    """The doctor's findings.

    ``looked_at`` names the checked app or group. ``unchecked`` has a sentence about each check that
    was not possible.
    """

    looked_at: tuple[str, ...]
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...] = ()

    def without(self, codes: Collection[str]) -> Result:
        """Return the result without the findings that have one of ``codes``."""
        kept = tuple(found for found in self.findings if found.code not in codes)
        return Result(looked_at=self.looked_at, findings=kept, unchecked=self.unchecked)

    def exit_code(self, *, fail_on: str) -> int:
        """Return 1 for a finding of level ``fail_on`` or worse, else 0."""
        worst = LEVELS.index(fail_on)
        return int(any(LEVELS.index(found.level) <= worst for found in self.findings))

    def as_json(self) -> dict[str, object]:
        """Return the result with title, reason and fix of each code."""
        return {
            "version": VERSION,
            "looked_at": list(self.looked_at),
            "findings": [
                {
                    "code": found.code,
                    "level": found.level,
                    "title": BY_CODE[found.code].title,
                    "subject": found.subject,
                    "text": found.text,
                    "why": BY_CODE[found.code].why,
                    "fix": BY_CODE[found.code].fix,
                }
                for found in self.findings
            ],
            "unchecked": list(self.unchecked),
            "errors": self.count(ERROR),
            "warnings": self.count(WARNING),
        }

    def count(self, level: str) -> int:
        """Return the number of findings of a level."""
        return sum(found.level == level for found in self.findings)


def result(
    looked_at: Sequence[str], findings: Sequence[Finding], unchecked: Sequence[str]
) -> Result:
    """Make a result; sort findings by level (the worst first) and code, and merge duplicates."""
    ordered = sorted(
        dict.fromkeys(findings),
        key=lambda found: (LEVELS.index(found.level), found.code, found.subject, found.text),
    )
    return Result(
        looked_at=tuple(looked_at),
        findings=tuple(ordered),
        unchecked=tuple(dict.fromkeys(unchecked)),
    )
