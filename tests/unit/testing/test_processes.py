"""Requests to workers that run as processes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from faust_assigner.testing.processes import Processes


def test_an_earlier_answer_of_a_worker_is_not_taken_for_the_present_one(tmp_path: Path) -> None:
    """The old answer's file is removed before the request; ended workers get no request."""
    answer = tmp_path / "journal.totals"
    count = iter(range(9))

    def tell(_: int) -> None:
        answer.write_text(json.dumps(next(count)))

    worker = SimpleNamespace(
        name="w",
        folder=tmp_path,
        alive=True,
        process=SimpleNamespace(send_signal=tell),
        log_tail=lambda: "",
    )
    fleet: Any = SimpleNamespace(living=lambda: [worker])
    found = [list(Processes.answers(fleet, "totals", 10.0)) for _ in range(3)]
    assert found == [[0], [1], [2]]
