"""How far ledgers were read: files that grow and rotate, topics that grow and are created again.

A visit reads the bytes and offsets between two states. The state is plain JSON; the history keeps it in its
manifest, beside the rows that were read, so that both change in one step.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from faust_assigner.pipeline.ledgers.files import (
    Chunk,
    LedgerFile,
    LedgerPathError,
    absolute,
    cut,
    find_files,
    is_packed,
    last_line_start,
    read_head,
)
from faust_assigner.pipeline.ledgers.period import SLACK, Period
from faust_assigner.pipeline.ledgers.topic_source import (
    TopicSource,
    offsets_since,
    split_sources,
    topic_now,
)

HEAD_BYTES = 512


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one file was read.

    ``at`` is where the line that was open at ``size`` starts: reading resumes there. ``lines`` is the
    number of lines before it. ``head`` is a digest of the first ``head_bytes`` bytes: it tells a file
    that only grew from a new one under an old name, and with ``inode`` finds a file under its new name
    after a rotation.
    """

    at: int
    size: int
    head: str
    head_bytes: int
    modified: str
    inode: int = 0
    lines: int = 0

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True)
class Span:
    """Offsets [start, end) of a topic's partition."""

    source: TopicSource
    partition: int
    start: int
    end: int


@dataclass
class Visit:
    """What one run reads, and how far the ledgers are read after it."""

    chunks: list[Chunk] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    files: dict[str, Progress] = field(default_factory=dict)
    topics: dict[str, Any] = field(default_factory=dict)
    #: Lines of each file before the first byte that is read.
    lines_before: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is anything to read."""
        return bool(self.chunks or self.spans)

    def state(self, lines: Mapping[str, int]) -> dict[str, Any]:
        """The state after the visit, which found ``lines`` lines in each file, open ones included."""
        files = {}
        for name, progress in sorted(self.files.items()):
            count = self.lines_before.get(name, progress.lines) + lines.get(name, 0)
            if name in lines and progress.at < progress.size:
                count -= 1  # the open line is read again
            files[name] = replace(progress, lines=count).to_json()
        return {"files": files, "topics": self.topics}


def whole(ledgers: Sequence[str], period: Period, properties: Mapping[str, str]) -> Visit:
    """Everything that ``ledgers`` hold now, less files that hold nothing of ``period``.

    Raises LedgerPathError for a path that is not there, and a topic's errors.
    """
    paths, topics = split_sources(ledgers, properties)
    visit = Visit()
    for file in period.files(find_files([absolute(path) for path in paths])):
        visit.chunks += cut(file.name, 0, file.size, inode=file.inode)
    for topic in topics:
        _topic(visit, topic, {}, period.since)
    return visit


def news(ledgers: Sequence[str], before: Mapping[str, Any], properties: Mapping[str, str]) -> Visit:
    """What ``ledgers`` hold beyond the state ``before``.

    Of a path that does not answer the state is kept. Files that are gone are forgotten with the next news.
    """
    paths, topics = split_sources(ledgers, properties)
    known = {name: Progress(**entry) for name, entry in before.get("files", {}).items()}
    visit = Visit()
    files, all_answered = _listed(paths)
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            _file(visit, file, known)
    for topic in topics:
        _topic(visit, topic, before.get("topics", {}))
    if not (all_answered and visit):
        visit.files = {**known, **visit.files}
    return visit


def _listed(paths: Sequence[str]) -> tuple[list[LedgerFile], bool]:
    """(the files there are, whether every path answered)."""
    found: list[LedgerFile] = []
    answered = 0
    for path in paths:
        with contextlib.suppress(LedgerPathError):
            found += find_files([absolute(path)])
            answered += 1
    return sorted(set(found)), answered == len(paths)


def _file(visit: Visit, file: LedgerFile, known: Mapping[str, Progress]) -> None:
    before = known.get(file.name)
    if before is not None and (before.size, before.modified) == (file.size, file.modified):
        visit.files[file.name] = before
        return
    same = _continued(file, before, known)
    start = 0 if same is None else same.at
    head = read_head(file.name, min(HEAD_BYTES, file.size))
    visit.files[file.name] = Progress(
        at=last_line_start(file.name, start, file.size),
        size=file.size,
        head=_digest(head),
        head_bytes=len(head),
        modified=file.modified,
        inode=file.inode,
        lines=0 if same is None else same.lines,
    )
    visit.lines_before[file.name] = 0 if same is None else same.lines
    if same is not None and same.size == file.size:
        return
    if is_packed(file.name):
        visit.lines_before[file.name] = 0
    visit.chunks += cut(file.name, start, file.size, inode=file.inode)


def _continued(
    file: LedgerFile, before: Progress | None, known: Mapping[str, Progress]
) -> Progress | None:
    """The state of the same file when it was last read, under this name or, after a rotation, another one."""
    candidates = [before] if before is not None else []
    if file.inode:
        candidates += [each for each in known.values() if each.inode == file.inode]
    for each in candidates:
        if file.size >= each.size and _digest(read_head(file.name, each.head_bytes)) == each.head:
            return each
    return None


def _topic(
    visit: Visit, source: TopicSource, known: Mapping[str, Any], since: datetime | None = None
) -> None:
    """A topic is known by its id, where the broker has ids: another bootstrap list is the same topic.

    The end of the same topic may be lower than what was read, where a broker lags: nothing is taken back.
    """
    log = topic_now(source)
    name = source.topic if log.topic_id is None else f"{source.topic}:{log.topic_id}"
    before: dict[str, int] = known.get(name, {})
    ends = {str(number): extent.end for number, extent in log.extents.items()}
    if log.topic_id is None and any(end < before.get(number, 0) for number, end in ends.items()):
        before = {}  # created again on a broker without ids
    first = {} if since is None else offsets_since(source, log, since - SLACK)
    for number, extent in sorted(log.extents.items()):
        start = max(before.get(str(number), 0), first.get(number, extent.start), extent.start)
        if extent.end > start:
            visit.spans.append(Span(source, number, start, extent.end))
    visit.topics[name] = {
        number: max(end, before.get(number, 0)) for number, end in sorted(ends.items())
    }


def _digest(head: bytes) -> str:
    return hashlib.sha256(head).hexdigest()[:16]
