"""The page docs/reference/doctor.md, from the codes of the findings."""

from __future__ import annotations

from faust_assigner.doctor.codes import APP, CODES, GROUP, Code

HEAD = """\
# The doctor's findings

This page is generated from `faust_assigner/doctor/codes.toml`: `python -m docs.generate`.
[How to run the doctor](../how-to/doctor.md).

Codes are stable. An *error* breaks the group now or at the next rebalance, a *warning* may, a *note* is
informative and fails no run. `faust-assigner doctor --explain CODE` prints an entry.

| code | level | problem | checked in |
| --- | --- | --- | --- |
"""
_WHERE = {APP: "the app (`-A`)", GROUP: "a running group (`--group`)"}


def page() -> str:
    """Return the text of the page."""
    rows = "".join(
        f"| [{code.code}](#{code.code.lower()}) | {code.level} | {code.title} | {_looks_at(code)} |\n"
        for code in CODES
    )
    return HEAD + rows + "".join(f"\n{entry(code)}" for code in CODES)


def entry(code: Code) -> str:
    """Return one code as a section of the page."""
    return (
        f"## {code.code}\n\n**{code.title}** ({code.level}; checked in {_looks_at(code)}).\n\n"
        f"{code.why}\n\n*Fix:* {code.fix}\n"
    )


def _looks_at(code: Code) -> str:
    return " and ".join(_WHERE[place] for place in code.looks_at)
