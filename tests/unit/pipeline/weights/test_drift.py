"""The drift of weights since the published version, and its gate."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from faust_assigner.cli import main
from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.weights import job
from faust_assigner.pipeline.weights.drift import DriftedTooFar, check, drift, parse_share
from faust_assigner.pipeline.weights.job import LedgerSummary, Request
from faust_assigner.weights.document import WeightRow
from tests.integration.spark.ledgers import SAMPLE, Ledger, good
from tests.unit.pipeline.weights.test_reports import NOON, after, rate

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def row(partition: int, weight: float, group: str = "g") -> WeightRow:
    """Return a weight of a partition."""
    return WeightRow(
        group, "2026-11-21", 1, NOW, "t", partition, weight, 0.0, 0.0, 0.0, 0, 0.0, 9
    )  # fmt: skip


def before(*weights: float, group: str = "g") -> list[dict[str, Any]]:
    """Return the published rows of partitions 0, 1, ..."""
    return [row(number, weight, group)._asdict() for number, weight in enumerate(weights)]


def test_drift_is_the_share_of_weight_that_lies_elsewhere() -> None:
    """From 1:3 to 3:1 the drift is a half; the scale of all weights does not matter."""
    assert drift(before(1.0, 3.0), [row(0, 3.0), row(1, 1.0)]) == {"g": 0.5}
    assert drift(before(1.0, 3.0), [row(0, 2.0), row(1, 6.0)]) == {"g": 0.0}


def test_partitions_of_one_version_alone_are_no_drift() -> None:
    """A topic grew from two partitions to three, and a group is new."""
    rows = [row(0, 1.0), row(1, 3.0), row(2, 4.0), row(0, 1.0, "new")]
    assert drift(before(1.0, 3.0), rows) == {"g": 0.0}


def test_groups_are_compared_with_themselves() -> None:
    """The error names the drifted group."""
    published = [*before(1.0, 3.0), *before(3.0, 1.0, group="h")]
    found = drift(published, [row(0, 3.0), row(1, 1.0), row(0, 3.0, "h"), row(1, 1.0, "h")])
    assert found == {"g": 0.5, "h": 0.0}
    check(found, 0.5)
    with pytest.raises(DriftedTooFar, match="50% of the weight of group 'g'"):
        check(found, 0.49)


@pytest.mark.parametrize("text", ["101%", "1.5", "-1", "much", "", "50%%"])
def test_a_limit_is_a_share(text: str) -> None:
    """The largest share is the whole."""
    with pytest.raises(ConfigError, match="max-drift"):
        parse_share(text)


def learn(home: Path, loads: tuple[int, int], *options: str) -> Result:
    """Run the command over two samples with these records."""
    lines = [
        good({**SAMPLE, "partition": number, "records_in": load, "end_offset": 0})
        for number, load in enumerate(loads)
    ]
    Ledger(home / "ledger").write("w.jsonl", lines)
    folders = ("--ledger", str(home / "ledger"), "--out", str(home / "weights.json"))
    return CliRunner().invoke(
        main, ["weights", "--no-spark", "--by", "records", *folders, *options]
    )


def test_weights_that_drifted_too_far_are_not_published(tmp_path: Path) -> None:
    """The exit code is 3; the published file stays until the operator allows the change."""
    published = tmp_path / "weights.json"
    assert learn(tmp_path, (100, 300)).exit_code == 0
    first = published.read_bytes()
    refused = learn(tmp_path, (300, 100), "--max-drift", "40%")
    assert refused.exit_code == 3, refused.output
    assert "the published weights stay" in refused.output
    assert published.read_bytes() == first
    assert learn(tmp_path, (300, 100), "--max-drift", "60%").exit_code == 0
    weights = [each["weight"] for each in json.loads(published.read_bytes())["partition_weight"]]
    assert weights == [1.5, 0.5]


def test_unreadable_published_weights_are_replaced(tmp_path: Path) -> None:
    """Assignors count partitions under such a file; its successor must not be blocked."""
    (tmp_path / "weights.json").write_bytes(b"{oops")
    done = learn(tmp_path, (100, 300), "--max-drift", "0%")
    assert done.exit_code == 0, done.output


def test_the_summary_has_confidence_age_and_drift(tmp_path: Path) -> None:
    """The first version has no drift; two samples of one moment give no confidence."""
    first, second = learn(tmp_path, (100, 300)), learn(tmp_path, (300, 100))
    heads, row = (line.split() for line in second.output.splitlines()[1:3])
    assert heads[-4:] == ["median", "lowest", "oldest", "drift"]
    assert row[-5:] == ["0%", "0%", "0.0", "h", "50%"]
    assert first.output.splitlines()[2].split()[-1] == "-"


def test_one_group_that_stopped_does_not_make_the_samples_stale(tmp_path: Path) -> None:
    """The newest sample of all groups counts."""
    old = rate("t/0", group_id="old", newest=after(-9 * job.MAX_AGE_S))
    request = Request(["l"], NOON, str(tmp_path / "w.json"))
    found = job._finish(request, LedgerSummary([old, rate("t/0")], (), 0), Progress())
    assert (found["stale_samples"], found["newest_sample"]) == (False, NOON.isoformat())
