"""The benchmark of a day's load runs and prints."""

from __future__ import annotations

import pytest

from benchmarks.scaling.__main__ import RIVALS, main


@pytest.mark.slow
def test_each_arm_has_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    """Half an hour, one seed: a row for the seed, a row for the medians, a comparison per rival."""
    main(["--seeds", "1", "--hours", "0.5", "--why"])
    shown = capsys.readouterr().out
    assert shown.count("lag-only 0.5 s, 300 s") == 3
    assert shown.count("  ours, spare=1") == 2
    assert shown.count("lag-only") >= 3 * len(RIVALS)
