"""Pages of the worker's web server: Kubernetes' probes, ``faust-assigner status``, the ledger.

``/assignor/live`` and ``/assignor/ready`` answer 200 or 503 with the reasons as JSON. A worker that
is not live should be restarted. A worker that is not ready does not do its part of the work: some
of its partitions are not processed, for a reason other than an orderly restore or hand-over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from faust import web

from faust_assigner.app.ledger.install import MARK as LEDGER_MARK
from faust_assigner.app.metrics.stalled import StalledPartition
from faust_assigner.app.tables.disk import offset_or_minus_one
from faust_assigner.wire.worker_status import (
    REASONS,
    Peers,
    Rounds,
    WorkerStatus,
    encode_document,
    encode_ledger,
)

if TYPE_CHECKING:
    from faust.types.app import AppT

MARK = "_faust_assigner_metrics"
#: The path of the pages.
PREFIX = "/assignor"
LINES = {"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"}
#: The longest cursor of a ledger's page: two numbers. Python refuses a number of thousands of digits.
CURSOR_CHARS = 64
#: Seconds without progress after which a restore counts as stalled.
STALLED_S = 60.0
#: Seconds for which a partition may be unprocessed for these reasons; 0 for other reasons. A round and
#: a hand-over may take the group's rebalance timeout. A restore may take as long as it makes
#: progress.
PATIENCE_S = {"refused": 10.0, "paused": 60.0}

blueprint = web.Blueprint("faust_assigner")


@blueprint.route("/live", name="live")
class Live(web.View):  # type: ignore[misc]
    """---
    description: Whether this worker can go on.
    produces:
    - application/json
    """

    async def get(self, request: web.Request) -> web.Response:
        """Answer 503 with the reasons if the worker should be restarted."""
        return _probe_response(self, "live", live_problems(self.app))


@blueprint.route("/ready", name="ready")
class Ready(web.View):  # type: ignore[misc]
    """---
    description: Whether this worker processes its partitions, or restores them with progress.
    produces:
    - application/json
    """

    async def get(self, request: web.Request) -> web.Response:
        """Answer 503 with the reasons if the worker is not ready."""
        return _probe_response(self, "ready", getattr(self.app, MARK).not_ready())


@blueprint.route("/status", name="status")
class Status(web.View):  # type: ignore[misc]
    """---
    description: The partitions that this worker owns, copies and awaits. For ``faust-assigner status``.
    produces:
    - application/json
    """

    async def get(self, request: web.Request) -> web.Response:
        """Answer with the document, after a request to the brokers for the lags of copies."""
        return _document_response(self, await getattr(self.app, MARK).document())


@blueprint.route("/peers", name="peers")
class PeersPage(web.View):  # type: ignore[misc]
    """---
    description: All members of the group's last round, as this worker knows them.
    produces:
    - application/json
    """

    async def get(self, request: web.Request) -> web.Response:
        """Answer with the members; none before the first assignment."""
        return _document_response(self, getattr(self.app, MARK).peers())


@blueprint.route("/rounds", name="rounds")
class RoundsPage(web.View):  # type: ignore[misc]
    """---
    description: The last rounds as this worker saw them; as a leader it names the tasks that moved.
    produces:
    - application/json
    """

    async def get(self, request: web.Request) -> web.Response:
        """Answer with the rounds; none before the first round."""
        return _document_response(self, getattr(self.app, MARK).rounds())


@blueprint.route("/ledger", name="ledger")
class LedgerLines(web.View):  # type: ignore[misc]
    """---
    description: The newest lines of this worker's ledger, or with before=CURSOR older ones. For why.
    produces:
    - application/x-ndjson
    """

    async def get(self, request: web.Request) -> web.Response:
        """Answer with a page of lines; answer 404 if the ledger is off."""
        found = await ledger_page(self.app, request.query.get("before", ""))
        if found is None:
            return self.json({"status": "FAUST_ASSIGNER_LEDGER is off"}, status=404)
        return self.bytes(found, headers=LINES)


async def ledger_page(app: AppT, cursor: str) -> bytes | None:
    """Return an encoded page of the app's ledger; None if the ledger is off. A thread reads the files."""
    ledger = getattr(app, LEDGER_MARK, None)
    if ledger is None:
        return None
    loop = asyncio.get_running_loop()
    group_id = str(app.conf.id)
    read = ledger.writer.page
    return encode_ledger(await loop.run_in_executor(None, read, group_id, cursor[:CURSOR_CHARS]))


def _document_response(view: web.View, document: WorkerStatus | Peers | Rounds) -> web.Response:
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
    return view.bytes(encode_document(document), headers=headers)


def _probe_response(view: web.View, word: str, reasons: Sequence[str]) -> web.Response:
    status = word if not reasons else f"not {word}"
    return view.json({"status": status, "reasons": list(reasons)}, status=503 if reasons else 200)


def live_problems(app: AppT) -> list[str]:
    """Return the reasons why the worker should be restarted."""
    if app.crashed:
        return ["the app has crashed"]
    problems = getattr(app.tables, "problems", tuple)
    return [text for _, text in problems()]


class Restores:
    """Tracks the progress of restores."""

    def __init__(self, app: AppT) -> None:
        self._app = app
        self._at: tuple[int, ...] = ()
        self._since = 0.0

    def stalled_s(self, now: float) -> float:
        """Return the seconds since the last restored record, downloaded block or new assignment."""
        app, recovery = self._app, self._app.tables.recovery
        progress = getattr(recovery, "progress", None)
        at = (
            0 if progress is None else progress.total + progress.blocks,
            sum(offset_or_minus_one(offset) for offset in tuple(recovery.active_offsets.values())),
            app.assignor.generation,
        )
        if at != self._at:
            self._at, self._since = at, now
        return now - self._since


def ready_problems(
    app: AppT, still: Sequence[StalledPartition], *, now: float, stalled_s: float
) -> list[str]:
    """Return the reasons why this worker is not ready; ``still`` are the partitions not processed."""
    if app.client_only or app.producer_only:
        return []
    if app.should_stop or app.assignor.leaves:
        return ["the worker stops and hands its partitions over"]
    if app.assignor.generation < 0:
        return ["the group has not given this worker an assignment yet"]
    rebalance_s = float(app.conf.broker_rebalance_timeout)
    patience = {**PATIENCE_S, "round": rebalance_s, "hand_over": rebalance_s}
    late = Counter(
        one.reason
        for one in still
        if one.reason != "restoring" and now - one.since >= patience.get(one.reason, 0.0)
    )
    found = [
        f"{_stand_still(late[reason])}: {why}" for reason, why in REASONS.items() if late[reason]
    ]
    restoring = sum(one.reason == "restoring" for one in still)
    if restoring and stalled_s >= STALLED_S:
        found.append(
            f"{_stand_still(restoring)}: the restore of their tables has made no progress "
            f"for {stalled_s:.0f} s"
        )
    return found


def _stand_still(count: int) -> str:
    return "1 partition stands still" if count == 1 else f"{count} partitions stand still"
