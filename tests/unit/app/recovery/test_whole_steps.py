"""Steps of the recovery's loop with the order of their effects, and their second times."""

from __future__ import annotations

from typing import Any

import pytest
from faust.types import TP

from tests.unit.app.recovery.test_loop import A, B, Host, Recovery, made, table_of

__all__ = ["made"]


def test_a_revoked_partition_is_forgotten_by_faust_and_then_loses_its_windows(
    made: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faust's books would otherwise replay it for its next owner."""
    monkeypatch.setattr(Host, "revoke", lambda self, tp: self.acts.append(("books", tp)))
    made.revoke(B)
    assert made.acts == [("books", B), ("revoked", B)]


@pytest.mark.parametrize("role", ["active", "standby"])
def test_the_offset_of_a_file_that_does_not_open_is_unknown_in_the_books_of_its_role(
    made: Recovery, role: str
) -> None:
    """The other role's offset of the partition, of a global table, stays."""
    other = "standby" if role == "active" else "active"
    getattr(made, f"{other}_offsets")[A] = 5

    def persisted_offset(tp: TP) -> int:
        raise OSError("locked")

    table_of(made).persisted_offset = persisted_offset
    getattr(made, f"add_{role}")(table_of(made), A)
    assert dict(getattr(made, f"{role}_offsets")) == {A: None}
    assert dict(getattr(made, f"{other}_offsets")) == {A: 5}
    assert made.databases.doubtful == {A}


def test_each_replay_has_a_number_of_its_own(
    made: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins with an unset end, which a task may wait for."""
    begun: list[Any] = []
    monkeypatch.setattr(
        Host, "_set_recovery_started", lambda self: begun.append("faust"), raising=False
    )
    monkeypatch.setattr(made._end, "begin", lambda: begun.append("end"))
    for number in (1, 2, 3):
        made.signal_recovery_end.set()
        made._set_recovery_started()
        assert (made.replays, made.signal_recovery_end.is_set()) == (number, False)
    assert begun == 3 * ["faust", "end"]
