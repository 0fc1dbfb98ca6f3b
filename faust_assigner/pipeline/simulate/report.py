"""The report of a simulation: distributions, recommended settings, and predictions of the recorded time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from faust_assigner.pipeline.simulate.advice import overall_verdict, recommend_change
from faust_assigner.pipeline.simulate.events import EventRow, event_rows
from faust_assigner.pipeline.simulate.facts import Facts
from faust_assigner.pipeline.simulate.recorded import Week
from faust_assigner.pipeline.simulate.request import Request
from faust_assigner.pipeline.simulate.run import Run, replayed
from faust_assigner.pipeline.simulate.scenarios import Shape
from faust_assigner.pipeline.simulate.settings import Recommendation, recommend
from faust_assigner.pipeline.simulate.what_if import Change
from faust_assigner.simulation.fleet import Costs

#: Returns the summaries of all scenarios (None), or of the scenarios that choose settings (0) or that
#: evaluate the chosen settings (1).
Summaries = Callable[[int | None], list[dict[str, Any]]]

#: With fewer scenarios in a part, the same scenarios choose and evaluate the settings.
LEAST_OF_A_PART = 10


def report_of(
    request: Request, run: Run, measured: Sequence[str], summaries: Summaries, facts: Facts | None
) -> dict[str, Any]:
    """Return the content of report.json; ``measured`` names the costs measured from the ledger."""
    policy = request.policies[0].partition("+")[0]
    everywhere = summaries(None)
    lines = _recommended(request, run, policy, everywhere, summaries)
    replay: list[dict[str, Any]] = []
    events: list[EventRow] = []
    told: list[dict[str, object]] = []
    if facts is not None:
        mine = facts.of_group(request.group_id)
        replay = _replay(run, mine)
        events = event_rows(run, mine, policy)
        over_all_fleets = lines[0]
        told = recommend_change(
            run, mine, policy, (over_all_fleets.policy, over_all_fleets.standbys)
        )
    if told:
        # Many scenarios drawn from few weeks give intervals that are too narrow, so the weeks' verdict
        # counts.
        lines = [line._replace(verdict=overall_verdict(told)) for line in lines]
    scores = {(each["policy"], each["standbys"]): each for each in replay}
    return {
        "options": _options(request, run, measured),
        "sim_summary": everywhere,
        "sim_settings": [
            {**line._asdict(), "replay": scores.get((line.policy, line.standbys))} for line in lines
        ],
        "replay": replay,
        "events": events,
        "advice": told,
    }


def _recommended(
    request: Request, run: Run, policy: str, everywhere: list[dict[str, Any]], summaries: Summaries
) -> list[Recommendation]:
    """Return the settings table; with enough scenarios, different scenarios choose and evaluate settings."""
    parts = [run.source.split_of(number) for number in range(request.scenarios)]
    if min(parts.count(0), parts.count(1)) >= LEAST_OF_A_PART:
        return recommend(summaries(0), policy=policy, judged=summaries(1))
    return recommend(everywhere, policy=policy)


def _options(request: Request, run: Run, measured: Sequence[str]) -> dict[str, object]:
    return {
        "scenarios": request.scenarios,
        "seed": request.seed,
        "policies": list(request.policies),
        "replicas": list(request.replicas),
        "ledgers": list(request.ledgers),
        "shape": None if request.ledgers else plain(request.shape),
        "costs": plain(run.costs),
        "measured_costs": list(measured),
    }


def _replay(run: Run, facts: Facts) -> list[dict[str, Any]]:
    """Return each arm's prediction for the recorded time, and the recorded figures."""
    assert isinstance(run.source, Week)
    recorded = facts.recorded()
    return [{**each, "recorded": recorded} for each in replayed(run, len(run.source.recordings))]


def plain(settings: Change | Shape | Costs) -> dict[str, object]:
    """Return the fields of ``settings`` as plain data."""
    return {
        name: dict(value) if isinstance(value, dict) else value
        for name, value in vars(settings).items()
    }
