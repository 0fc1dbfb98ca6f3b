"""The read position in each ledger, also for files that rotate and topics that are recreated.

A state is the read position in each file and topic, as plain JSON. A visit reads the bytes and offsets
between two states. The history's manifest contains the state and names the rows that were read, so both
change in one step.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.ledgers.chunks import Chunk, cut, is_packed, last_line_start, read_head
from faust_assigner.pipeline.ledgers.files import LedgerFile, LedgerPathError, absolute, find_files
from faust_assigner.pipeline.ledgers.period import SLACK, Period
from faust_assigner.pipeline.ledgers.topic_source import (
    TopicSource,
    offsets_since,
    split_sources,
    topic_now,
)
from faust_assigner.wire.documents import of_json

HEAD_BYTES = 512


@dataclass(frozen=True, slots=True)
class FilePosition:
    """The read position in one file.

    ``at`` is the start of the unfinished line at ``size``, where the next visit begins. ``lines`` is the
    number of lines before ``at``. ``head`` is a digest of the first ``head_bytes`` bytes: it
    distinguishes a file that grew from a new file under the same name. Together, ``head`` and ``inode``
    find a rotated file under its new name.
    """

    at: int
    size: int
    head: str
    head_bytes: int
    modified: str
    inode: int = 0
    lines: int = 0


@dataclass(frozen=True)
class OffsetSpan:
    """Offsets [start, end) of a topic's partition."""

    source: TopicSource
    partition: int
    start: int
    end: int


@dataclass
class Visit:
    """The bytes and offsets that one run reads, and the state of the ledgers after the run."""

    chunks: list[Chunk] = field(default_factory=list)
    spans: list[OffsetSpan] = field(default_factory=list)
    files: dict[str, FilePosition] = field(default_factory=dict)
    topics: dict[str, dict[str, int]] = field(default_factory=dict)
    #: Lines of each file before the first byte that is read.
    lines_before: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether the visit reads any bytes or offsets."""
        return bool(self.chunks or self.spans)

    def state(self, lines: Mapping[str, int]) -> dict[str, object]:
        """Return the state after the visit; ``lines``: file -> lines found, with an unfinished last line."""
        files = {}
        for name, progress in sorted(self.files.items()):
            count = self.lines_before.get(name, progress.lines) + lines.get(name, 0)
            if name in lines and progress.at < progress.size:
                count -= 1  # the next visit reads the unfinished line again
            files[name] = asdict(replace(progress, lines=count))
        return {"files": files, "topics": self.topics}


def plan_full_visit(ledgers: Sequence[str], period: Period, properties: Mapping[str, str]) -> Visit:
    """Plan a visit of all bytes and offsets in ``ledgers``, except files without lines of ``period``.

    Raises LedgerPathError for a missing path, and SnapshotError for a missing or unreachable topic.
    """
    paths, topics = split_sources(ledgers, properties)
    visit = Visit()
    for file in period.files(find_files([absolute(path) for path in paths])):
        visit.chunks += cut(file.name, 0, file.size, inode=file.inode)
    for topic in topics:
        _topic(visit, topic, {}, period.since)
    return visit


def news(ledgers: Sequence[str], before: Mapping[str, Any], properties: Mapping[str, str]) -> Visit:
    """Plan a visit of the bytes and offsets that were added to ``ledgers`` after the state ``before``.

    The state of a removed file is kept until a visit can list all paths and finds unread lines.
    """
    paths, topics = split_sources(ledgers, properties)
    known, offsets = _read_state(before)
    visit = Visit()
    files, all_answered = _listed(paths)
    for file in files:
        try:
            _file(visit, file, known)
        except FileNotFoundError:  # rotated or removed since the listing: left to the next visit
            if file.name in known:
                visit.files[file.name] = known[file.name]
    for topic in topics:
        _topic(visit, topic, offsets)
    if not (all_answered and visit):
        visit.files = {**known, **visit.files}
    return visit


def _read_state(
    state: Mapping[str, Any],
) -> tuple[dict[str, FilePosition], Mapping[str, dict[str, int]]]:
    """Return the read positions by file, and by topic and partition. Raises ConfigError if damaged."""
    try:
        files = {name: of_json(FilePosition, at) for name, at in state.get("files", {}).items()}
        topics = of_json(_Topics, {"topics": state.get("topics", {})}).topics
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"the positions in the history's manifest are damaged: {error}") from None
    return files, topics


@dataclass(frozen=True)
class _Topics:
    topics: dict[str, dict[str, int]]


def _listed(paths: Sequence[str]) -> tuple[list[LedgerFile], bool]:
    """Return (the existing files, whether all paths could be listed)."""
    found: list[LedgerFile] = []
    answered = 0
    for path in paths:
        with contextlib.suppress(LedgerPathError):
            found += find_files([absolute(path)])
            answered += 1
    return sorted(set(found)), answered == len(paths)


def _file(visit: Visit, file: LedgerFile, known: Mapping[str, FilePosition]) -> None:
    """Add the unread bytes of a file. Raises FileNotFoundError if its name is not this file's any more."""
    before = known.get(file.name)
    if before is not None and (before.size, before.modified) == (file.size, file.modified):
        visit.files[file.name] = before
        return
    same = _continued(file, before, known)
    start = 0 if same is None else same.at
    head, at = read_head(file.name, HEAD_BYTES), last_line_start(file.name, start, file.size)
    if file.inode and os.stat(file.name).st_ino != file.inode:
        raise FileNotFoundError(file.name)  # head and position may be those of a new file
    visit.files[file.name] = FilePosition(
        at=at,
        size=file.size,
        head=_digest(head),
        head_bytes=len(head),
        modified=file.modified,
        inode=file.inode,
    )
    visit.lines_before[file.name] = 0 if same is None else same.lines
    if same is not None and same.size == file.size:
        return
    if is_packed(file.name):
        visit.lines_before[file.name] = 0
    visit.chunks += cut(file.name, start, file.size, inode=file.inode)


def _continued(
    file: LedgerFile, before: FilePosition | None, known: Mapping[str, FilePosition]
) -> FilePosition | None:
    """Return the last state of the same file, under this name or, after a rotation, under its former name."""
    candidates = [before] if before is not None else []
    if file.inode:
        candidates += [each for each in known.values() if each.inode == file.inode]
    for each in candidates:
        if file.size >= each.size and _digest(read_head(file.name, each.head_bytes)) == each.head:
            return each
    return None


def _topic(
    visit: Visit,
    source: TopicSource,
    known: Mapping[str, dict[str, int]],
    since: datetime | None = None,
) -> None:
    """Add the unread offsets of a topic, identified by its id if the broker has ids, else by its name.

    The state does not depend on the bootstrap list. If a lagging broker reports a lower end than the state,
    the state keeps the higher offset.
    """
    log = topic_now(source)
    name = source.topic if log.topic_id is None else f"{source.topic}:{log.topic_id}"
    before = known.get(name, {})
    ends = {str(number): extent.end for number, extent in log.extents.items()}
    if log.topic_id is None and any(end < before.get(number, 0) for number, end in ends.items()):
        before = {}  # the topic was recreated on a broker without topic ids
    first = {} if since is None else offsets_since(source, log, since - SLACK)
    for number, extent in sorted(log.extents.items()):
        start = max(before.get(str(number), 0), first.get(number, extent.start), extent.start)
        if extent.end > start:
            visit.spans.append(OffsetSpan(source, number, start, extent.end))
    visit.topics[name] = {
        number: max(end, before.get(number, 0)) for number, end in sorted(ends.items())
    }


def _digest(head: bytes) -> str:
    return hashlib.sha256(head).hexdigest()[:16]
