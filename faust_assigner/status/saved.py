"""Reads saved statuses of a group, to show the group on another machine or after its end.

Each line is an object from ``faust-assigner status --json``, or a worker's answer at
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
from faust_assigner.wire.documents import of_json
from faust_assigner.wire.worker_status import Rounds, RoundTold

#: The size limit of a line, in bytes.
LINE_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Saved:
    """The content of a file: at least one look at a group, oldest first, and workers' rounds."""

    looks: tuple[Report, ...]
    rounds: tuple[RoundTold, ...] = ()

    @property
    def last(self) -> Report:
        """The newest saved status."""
        return self.looks[-1]


def read_saved(path: Path) -> Saved:
    """Read the saved statuses in ``path``. Cost: linear; all statuses are kept in memory.

    A truncated last line is skipped. Raises :class:`ConfigError` for a file without a status,
    with statuses of several groups, or with a different kind of line.
    """
    found = list(_read_documents(path))
    looks = [one for one in found if isinstance(one, Report)]
    rounds = [one for one in found if isinstance(one, Rounds)]
    groups = sorted({one.group for one in looks} | {one.app for one in rounds})
    if not looks:
        raise ConfigError(
            f"{path} contains no status of a group: save a status with faust-assigner status --json"
        )
    if len(groups) > 1:
        raise ConfigError(f"{path} contains the status of several groups: {', '.join(groups)}")
    return Saved(
        looks=tuple(sorted(looks, key=lambda one: one.taken_at)),
        rounds=tuple(told for one in rounds for told in one.rounds),
    )


def _read_documents(path: Path) -> Iterator[Report | Rounds]:
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
                    return  # the writer was killed before it completed the last line
                raise ConfigError(
                    f"{path}, line {number}: not an output of faust-assigner status --json "
                    f"({error})"
                ) from None
