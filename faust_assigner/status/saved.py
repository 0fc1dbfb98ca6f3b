"""Looks at a group that were saved to a file, to be shown when the group is gone.

Each line is an object that ``faust-assigner status --json`` printed, or what a worker answers at
``/assignor/rounds``, in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from faust_assigner.errors import ConfigError, MetadataRefused
from faust_assigner.status.report import Report
from faust_assigner.wire.bounded import read_json
from faust_assigner.wire.worker_status import Rounds, RoundTold, of_json

#: Of one line.
LINE_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Saved:
    """The looks of a file at one group, the oldest first and at least one; and rounds as workers saw them."""

    looks: tuple[Report, ...]
    rounds: tuple[RoundTold, ...] = ()

    @property
    def last(self) -> Report:
        """The newest look."""
        return self.looks[-1]


def read_saved(path: Path) -> Saved:
    """The looks that ``path`` holds. Cost: linear; all looks are kept in memory.

    A last line that was cut off is passed over. Raises :class:`ConfigError` for a file without a look,
    with looks at several groups, or with a line that is something else.
    """
    found = list(_documents(path))
    looks = [one for one in found if isinstance(one, Report)]
    rounds = [one for one in found if isinstance(one, Rounds)]
    groups = sorted({one.group for one in looks} | {one.app for one in rounds})
    if not looks:
        raise ConfigError(
            f"{path} holds no look at a group: save one with faust-assigner status --json"
        )
    if len(groups) > 1:
        raise ConfigError(f"{path} holds looks at several groups: {', '.join(groups)}")
    return Saved(
        looks=tuple(sorted(looks, key=lambda one: one.taken_at)),
        rounds=tuple(told for one in rounds for told in one.rounds),
    )


def _documents(path: Path) -> Iterator[Report | Rounds]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                document = read_json(line, limit=LINE_BYTES)
                is_report = "group" in document
                yield of_json(Report, document) if is_report else of_json(Rounds, document)
            except MetadataRefused as error:
                if number > 1 and not line.endswith(b"\n"):
                    return  # whoever wrote it was ended
                raise ConfigError(
                    f"{path}, line {number}: not what faust-assigner status --json prints ({error})"
                ) from None
