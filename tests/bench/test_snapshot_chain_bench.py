"""The benchmark of incremental snapshots runs end to end on a small case."""

from __future__ import annotations

import re

import pytest

from benchmarks import snapshot_chain


def test_a_chain_of_snapshots_has_the_rows_of_a_whole_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A chain of three snapshots has fewer bytes than three full ones; no time is judged."""
    small = ["--records", "6000", "--keys", "3000", "--partitions", "2", "--snapshots", "3"]
    assert snapshot_chain.main(small) == 0
    said = capsys.readouterr().out
    assert said.count("rows 3,000") == 1
    assert re.findall(r"(\d) layers", said) == ["1", "2", "3"]
    [times] = re.findall(r": ([\d.]+) times", said)
    assert float(times) > 2
