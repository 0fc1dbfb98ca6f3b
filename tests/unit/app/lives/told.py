"""The transcript of a life: a line for each observable step, with its virtual time and its worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import groupby
from typing import Any, NamedTuple

import faust

#: The name of the worker whose code runs.
WORKER: ContextVar[str] = ContextVar("worker", default="-")
LOGGERS = ("faust_assigner", "faust", "mode")


class Line(NamedTuple):
    """A step of a worker at a virtual time."""

    at: float
    worker: str
    kind: str
    text: str


class Told:
    """The lines of a life; ``scrub`` replaces parts of lines that change from run to run."""

    def __init__(self, clock: Callable[[], float], scrub: Callable[[str], str]) -> None:
        self._clock, self._began, self._scrub = clock, clock(), scrub
        self.lines: list[Line] = []
        #: The workers that are not told.
        self.muted: set[str] = set()

    def say(self, kind: str, text: str) -> None:
        """Add a line of the current worker."""
        if WORKER.get() in self.muted:
            return
        at = self._clock() - self._began
        self.lines.append(Line(at, WORKER.get(), kind, self._scrub(text)))

    def text(self) -> str:
        """Return the transcript. The order of a run of equal calls for several partitions is not told.

        It is that of a set, which differs from run to run. Nor is the order of calls to several
        transactional producers told.
        """
        found = list[str]()
        for (kind, *_), run in groupby(self._in_lanes(), _run_of):
            lines = [line._replace(at=round(line.at, 2)) for line in run]
            if kind == "step":
                found += ["", *(f"== {line.text}" for line in lines)]
                continue
            if kind == "client":
                lines.sort()
            if kind == "producer":
                lines.sort(key=lambda line: line.text.split(" ")[0])
            found += [f"{at:7.2f} {who} {kind:<9}{said}".rstrip() for at, who, _, said in lines]
        return "\n".join(found).lstrip("\n") + "\n"

    def _in_lanes(self) -> Iterator[Line]:
        """Yield the lines; of a moment within a step, the lines of each worker together.

        Timers that are due at the same time run in any order.
        """
        for _, lines in groupby(self.lines, lambda line: (line.kind == "step", line.at)):
            yield from sorted(lines, key=lambda line: line.worker)


def _run_of(line: Line) -> tuple[object, ...]:
    """Return the same value for lines whose order depends on a set."""
    first = line.text.split(" ")[0]
    if line.kind == "client" and first in ("seek", "position"):
        return line.kind, line.worker, first
    if line.kind == "producer" and first.startswith("shop-"):
        return line.kind, line.worker, "transaction"
    return line.kind, line.worker, id(line)


class Lines(logging.Handler):
    """Tells each log line."""

    def __init__(self, told: Told) -> None:
        super().__init__(logging.INFO)
        self.told = told

    def emit(self, record: logging.LogRecord) -> None:
        """Tell the line with the type of its error, if any."""
        if record.levelno < logging.WARNING and not record.name.startswith("faust_assigner"):
            return
        text = record.getMessage().replace("\n", " | ")
        if text.endswith(("]: Starting...", "]: Stopping...")):
            return  # the services of the app start in any order
        if record.exc_info and record.exc_info[1] is not None:
            text += f" -- {record.exc_info[1]!r}"
        self.told.say("log", f"{record.levelname.lower()} {record.name.rpartition('.')[2]}: {text}")


@contextmanager
def told_logs(told: Told) -> Iterator[None]:
    """Tell the lines of the packages' loggers during the block."""
    handler, levels = Lines(told), {}
    for name in LOGGERS:
        logger = logging.getLogger(name)
        levels[logger] = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.removeHandler(handler)
            logger.setLevel(level)


def tps(found: Iterable[Any]) -> str:
    """Return partitions as text, in their order, a topic's numbers together."""
    by_topic = groupby(sorted((tp[0], tp[1]) for tp in found), lambda tp: tp[0])
    return (
        " ".join(f"{topic}-{','.join(str(p) for _, p in run)}" for topic, run in by_topic) or "none"
    )


class Sensed(faust.Sensor):
    """Tells the calls of a sensor."""

    def __init__(self, told: Told) -> None:
        super().__init__()
        self.told = told

    def _tell(self, text: str) -> str:
        self.told.say("sensor", text)
        return text

    def on_message_in(self, tp: Any, offset: int, message: Any) -> None:
        """Tell the record."""
        self._tell(f"message_in {tps([tp])}@{offset}")

    def on_stream_event_in(self, tp: Any, offset: int, stream: Any, event: Any) -> Any:
        """Tell the event."""
        return {"text": self._tell(f"event_in {tps([tp])}@{offset}")}

    def on_stream_event_out(
        self, tp: Any, offset: int, stream: Any, event: Any, state: Any = None
    ) -> None:
        """Tell the event, and whether the state is that of its beginning."""
        own = state is not None and state.get("text") == f"event_in {tps([tp])}@{offset}"
        self._tell(f"event_out {tps([tp])}@{offset}" + " without its state" * (not own))

    def on_message_out(self, tp: Any, offset: int, message: Any) -> None:
        """Tell the record."""
        self._tell(f"message_out {tps([tp])}@{offset}")

    def on_topic_buffer_full(self, tp: Any) -> None:
        """Tell the partition."""
        self._tell(f"buffer_full {tps([tp])}")

    def on_table_set(self, table: Any, key: Any, value: Any) -> None:
        """Tell the row."""
        self._tell(f"table_set {table.name}[{key!r}] = {value!r}")

    def on_table_del(self, table: Any, key: Any) -> None:
        """Tell the row."""
        self._tell(f"table_del {table.name}[{key!r}]")

    def on_commit_initiated(self, consumer: Any) -> Any:
        """Tell the commit."""
        return self._tell("commit_initiated")

    def on_commit_completed(self, consumer: Any, state: Any) -> None:
        """Tell the commit."""
        self._tell(f"commit_completed of {state}")

    def on_send_error(self, producer: Any, exc: BaseException, state: Any) -> None:
        """Tell the error."""
        self._tell(f"send_error {exc!r}")

    def on_assignment_start(self, assignor: Any) -> Any:
        """Tell the assignment."""
        return {"text": self._tell("assignment_start")}

    def on_assignment_error(self, assignor: Any, state: Any, exc: BaseException) -> None:
        """Tell the error."""
        self._tell(f"assignment_error of {state['text']}: {exc!r}")

    def on_assignment_completed(self, assignor: Any, state: Any) -> None:
        """Tell the assignment."""
        self._tell(f"assignment_completed of {state['text']}")

    def on_rebalance_start(self, app: Any) -> Any:
        """Tell the round."""
        return {"text": self._tell("rebalance_start")}

    def on_rebalance_return(self, app: Any, state: Any) -> None:
        """Tell the round."""
        self._tell(f"rebalance_return of {state['text']}")

    def on_rebalance_end(self, app: Any, state: Any) -> None:
        """Tell the round."""
        self._tell(f"rebalance_end of {state['text']}")
