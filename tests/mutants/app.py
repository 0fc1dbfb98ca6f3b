"""Planted bugs of the room that knows Faust."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        story="a consumer's last acknowledged offsets are forgotten before the final commit",
        file="faust_assigner/app/repairs/commits.py",
        old="            await tell_app(revoked)\n",
        new="            self._forget(revoked)\n            await tell_app(revoked)\n",
        red=("tests/integration/app/test_nothing_lost.py::test_the_final_commit_reaches_the_broker",),
    ),
)
