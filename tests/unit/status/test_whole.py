"""One look at a group in which every value differs: the whole report, and the whole text of it.

``python -m tests.unit.status.test_whole`` writes the two files anew, after a change that is meant.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from faust_assigner.status.build import build
from faust_assigner.status.described import DescribedGroup, DescribedMember
from faust_assigner.status.evidence import Evidence, Heard
from faust_assigner.status.render import render
from faust_assigner.status.report import ANSWERED, SILENT, UNREADABLE
from faust_assigner.wire import join
from faust_assigner.wire.answer import Answer
from faust_assigner.wire.documents import dumps
from faust_assigner.wire.join import JoinData
from faust_assigner.wire.outcome import Outcome
from faust_assigner.wire.runs import Runs
from faust_assigner.wire.worker_status import CopyLag, Standstill, WaitUnderWay, WorkerStatus

RATES, TOTALS = "shop-rates-changelog", "shop-totals-changelog"
OUTCOME = Outcome(
    trigger="join+leave",
    members=3,
    tasks=21,
    moved=5,
    cold=2,
    off_target=4,
    warming=1,
    decided_at=1_000_000,
    leads=True,
    joined=("http://b:6066/", "http://new:1"),
    left=("http://gone:2",),
)


def runs(**claims: Any) -> dict[str, Runs]:
    """Map topics to runs."""
    return {topic: Runs.of(numbers) for topic, numbers in claims.items()}


def look() -> Evidence:
    """Four members: a leads and restores, b is static and silent, c is stock Faust, d leaves."""
    common: dict[str, Any] = {"changelogs": frozenset({RATES, TOTALS}), "cooperative": True}
    a = DescribedMember(
        member_id="m-a",
        client_id="ca",
        address="10.0.0.1",
        topics=frozenset({"orders", RATES, TOTALS}),
        said=JoinData("http://a:6066", software="1.2", capacity=2.0, rack_id="r1", **common),
        given=Answer(
            runs(orders=[0, 1, 4], **{TOTALS: [0, 1, 4], RATES: [0]}),
            runs(**{RATES: [2]}),
            generation=9,
            decision_id="id-9",
            outcome=OUTCOME,
        ),
    )
    b = DescribedMember(
        member_id="m-b",
        client_id="cb",
        address="10.0.0.2",
        instance_id="shop-b",
        topics=frozenset({"orders", RATES, TOTALS}),
        said=JoinData(
            "http://b:6066",
            software="1.3",
            capacity=0.5,
            positions={TOTALS: {0: 70, 1: 81}, RATES: {0: 5}},
            **{**common, "cooperative": False},
        ),
        given=Answer(
            runs(orders=[2], **{TOTALS: [2], RATES: [1, 2]}),
            runs(**{TOTALS: [0, 1], RATES: [0]}),
            generation=8,
            awaited=runs(**{TOTALS: [1]}),
            promised=runs(orders=[3, 4]),
        ),
    )
    c = DescribedMember(
        member_id="m-c",
        client_id="cc",
        address="10.0.0.3",
        topics=frozenset({"clicks"}),
        said=JoinData("http://c:6066", version=join.STOCK),
        given=Answer(runs(clicks=[0, 1]), {}),
        problem="half of it is unreadable",
    )
    d = DescribedMember(
        member_id="m-d",
        client_id="cd",
        address="10.0.0.4",
        topics=frozenset({"orders"}),
        said=JoinData("http://d:6066", software="1.2", rack_id="r2", **common),
        given=Answer(runs(orders=[3], **{TOTALS: [3]}), {}, generation=7),
    )
    settings = {"broker_session_timeout": "45", "FAUST_ASSIGNER_STALE_READS_S": "3"}
    heard = {
        "http://a:6066": Heard(
            answer=ANSWERED,
            status=WorkerStatus(
                app="shop",
                member_id="m-a",
                host="pod-a",
                software="1.2",
                python="3.11.4",
                generation=10,
                not_ready=("2 tables restore", "later"),
                standing=(
                    Standstill(topic="orders", partition=1, reason="restoring", seconds=61.0),
                    Standstill(topic="orders", partition=0, reason="restoring", seconds=125.0),
                    Standstill(topic="orders", partition=4, reason="paused", seconds=7.0),
                ),
                copies=(CopyLag(topic=RATES, partition=2, records=1234, seconds=3725.0),),
                waits=(WaitUnderWay(what="The commit", step="the flush", seconds=2.5),),
                restore_remaining_records=5000,
                restore_remaining_s=90.0,
                disk_free_bytes=111,
                disk_size_bytes=222,
                settings=settings,
            ),
        ),
        "http://b:6066": Heard(answer=SILENT, detail="b is silent"),
        "http://c:6066": Heard(answer=UNREADABLE, detail="c has no status"),
        "http://d:6066": Heard(
            answer=ANSWERED,
            status=WorkerStatus(
                app="shop",
                member_id="m-d",
                host="pod-d",
                software="1.2",
                python="3.12.1",
                generation=6,
                is_leaving=True,
                settings={**settings, "FAUST_ASSIGNER_STALE_READS_S": ""},
            ),
        ),
    }
    return Evidence(
        group=DescribedGroup(
            group_id="shop",
            state="Stable",
            protocol_type="consumer",
            protocol=join.COOPERATIVE,
            coordinator="k:9092",
            members=(a, b, c, d),
        ),
        heard=heard,
        committed={**{("orders", n): 10 * n for n in range(4)}, ("clicks", 0): 500, ("gone", 6): 3},
        ends={
            **{("orders", n): 1_000 + n for n in range(6)},
            **{(TOTALS, n): 100 + n for n in range(5)},
            **{(RATES, n): 9 for n in range(2)},
            ("clicks", 0): 499,
            ("clicks", 1): 0,
        },
        taken_at=1_000_075.0,
        problems=("a topic is missing",),
    )


HERE = Path(__file__).parent


def report_of() -> str:
    """The report as JSON, with a line per member or partition."""
    parts = []
    for key, value in json.loads(dumps(build(look()))).items():
        rows = value if isinstance(value, list) and value and isinstance(value[0], dict) else None
        lines = ",\n  ".join(map(json.dumps, rows or ()))
        shown = json.dumps(value) if rows is None else f"[\n  {lines}\n ]"
        parts.append(f" {json.dumps(key)}: {shown}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def text_of() -> str:
    """The report as text, with all partitions."""
    console = Console(file=io.StringIO(), width=200, highlight=False, emoji=False)
    console.print(render(build(look()), with_partitions=True))
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def test_every_value_of_a_look_has_its_place_in_the_report() -> None:
    """Members are sorted by name, partitions by topic and number; the group's waits come first."""
    assert report_of() == (HERE / "whole.json").read_text(encoding="utf-8")


def test_every_value_of_a_report_has_its_place_in_the_text() -> None:
    """The text has columns for differing properties, all partitions, waits, differences and problems."""
    assert text_of() == (HERE / "whole.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    (HERE / "whole.json").write_text(report_of(), encoding="utf-8")
    (HERE / "whole.txt").write_text(text_of(), encoding="utf-8")
