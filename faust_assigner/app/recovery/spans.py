"""The tracing spans of recoveries: as in Faust, one span for actives and one span for standbys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from faust.utils.tracing import finish_span

if TYPE_CHECKING:
    from faust.app import App
    from faust.types.app import AppT
    from faust.types.tuples import TP


class RecoverySpans:
    """The spans of one recovery service; ``parent`` is always the span of the last eager round."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._actives: Any = None
        self._standbys: Any = None

    @property
    def has_standbys(self) -> bool:
        """Whether the span of standbys has begun and is not finished."""
        return self._standbys is not None

    @contextmanager
    def actives(self, parent: Any) -> Iterator[None]:
        """Trace the block, which restores actives, as Faust traces its own recovery."""
        self._actives = span = self._begin("actives", parent)
        try:
            yield
        except BaseException as error:
            finish_span(span, error=error)
            raise
        else:
            if span is not None:
                span.set_tag("Actives-Ready", True)
            finish_span(span)
        finally:
            self._actives = None

    def tag_actives(self, stats: Mapping[TP, object]) -> None:
        """Tag the span of actives, if there is one, with the records that each partition lacks."""
        if self._actives is not None:
            self._actives.set_tag("Active-Stats", stats)

    def begin_standbys(self, parent: Any, stats: Mapping[TP, object]) -> None:
        """Begin the span of the followed standbys; ``stats`` are the records that they lack."""
        finish_span(self._standbys)
        self._standbys = span = self._begin("standbys", parent)
        if span is not None:
            span.set_tag("Standby-Stats", stats)

    def end_standbys(self) -> None:
        """Finish the span of standbys, because no standby lacks records."""
        finish_span(self._standbys)
        self._standbys = None

    def _begin(self, name: str, parent: Any) -> Any:
        """Begin a span below ``parent``; None without a tracer."""
        if self._app.tracer is None:
            return None
        tracer = self._app.tracer.get_tracer("_faust")
        span = tracer.start_span(f"recovery-{name}", child_of=parent)
        add_default_tags(self._app, span)
        return span


def add_default_tags(app: AppT, span: Any) -> None:
    """Add the tags that each span of Faust has."""
    span.set_tag("faust_app", app.conf.name)
    span.set_tag("faust_id", app.conf.id)
