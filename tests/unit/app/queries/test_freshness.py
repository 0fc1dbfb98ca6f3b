"""The age of a copy."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from faust_assigner.app.queries.freshness import MOST_LOOKS, Look, Marks
from tests.support.examples import examples


def marks(*looks: tuple[float, int]) -> Marks:
    """Return the marks after these looks."""
    found = Marks()
    for look in looks:
        found.note(Look(*look))
    return found


def test_a_copy_nobody_looked_at_has_no_age() -> None:
    """Its lag is unknown as well."""
    assert (marks().fresh_at(100), marks().lag(100)) == (None, None)


def test_a_copy_is_as_old_as_the_last_look_whose_end_it_has_reached() -> None:
    """Later looks show its lag."""
    seen = marks((1.0, 10), (2.0, 20), (3.0, 30))
    assert seen.fresh_at(8) is None
    assert (seen.fresh_at(9), seen.lag(9)) == (1.0, 20)
    assert (seen.fresh_at(25), seen.lag(25)) == (2.0, 4)
    assert (seen.fresh_at(29), seen.lag(29)) == (3.0, 0)


def test_a_copy_that_is_not_looked_at_any_more_grows_old() -> None:
    """Without new looks a copy does not count as current."""
    assert marks((1.0, 10)).fresh_at(50) == 1.0


def test_a_copy_that_begins_anew_has_reached_nothing() -> None:
    """The copy's files were set aside, and its former offset does not count for new files."""
    seen = marks((1.0, 10), (2.0, 20))
    assert seen.fresh_at(19) == 2.0
    assert seen.fresh_at(4) is None


def test_a_marker_at_the_end_is_no_record_that_is_lacking() -> None:
    """This holds while the copy stays at the offset of the marker."""
    seen = marks((1.0, 10))
    assert seen.fresh_at(8) is None
    seen.note_empty_range(8, 10)
    assert (seen.fresh_at(8), seen.lag(8)) == (1.0, 0)
    assert seen.fresh_at(5) is None


def test_looks_are_bounded() -> None:
    """A copy that never catches up needs bounded memory."""
    seen = Marks()
    for n in range(10 * MOST_LOOKS):
        seen.note(Look(float(n), n + 1))
        assert len(seen.looks) <= MOST_LOOKS
    assert seen.fresh_at(-1) is None
    assert seen.fresh_at(0) == 0.0


@settings(max_examples=examples(300, 60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_the_age_is_never_less_than_it_is(history: list[tuple[int, bool]]) -> None:
    """A model with write times checks that the copy has applied all older records."""
    seen, written, applied = Marks(), list[float](), -1
    for now, (records, looks) in enumerate(history):
        written += [now + 0.5] * records
        if looks:
            seen.note(Look(float(now), len(written)))
        applied = min(applied + 2, len(written) - 1)
        fresh_at = seen.fresh_at(applied)
        if fresh_at is not None:
            assert all(at >= fresh_at for at in written[applied + 1 :])


def test_what_a_copy_has_reached_drops_the_looks_before_and_keeps_the_rest() -> None:
    """Of two looks with equal ends the later counts; a far end stays in the list."""
    seen = marks((1.0, 10), (2.0, 10), (3.0, 25), (4.0, 30))
    assert seen.fresh_at(9) == 2.0
    assert seen.looks == [Look(2.0, 10), Look(3.0, 25), Look(4.0, 30)]
    assert (seen.lag(9), seen.lag(40)) == (20, 0)
    assert seen.fresh_at(24) == 3.0
    assert seen.looks == [Look(3.0, 25), Look(4.0, 30)]


def test_the_age_of_a_copy_far_behind_stays_known() -> None:
    """The bound may be longer than the looks at their usual interval; the newest end is the lag."""
    seen = marks(*((float(n), 10 * n) for n in range(MOST_LOOKS + 3)))
    assert seen.looks[:3] == [Look(0.0, 0), Look(2.0, 20), Look(4.0, 40)]
    assert [look.asked_at for look in seen.looks[-3:]] == [256.0, 257.0, 258.0]
    assert seen.lag(9) == 2570
    assert seen.fresh_at(9) == 0.0
    assert seen.fresh_at(35) == 2.0


def test_markers_that_were_passed_count_while_the_copy_stands_there() -> None:
    """A record behind the markers moves the copy, and the markers no longer count."""
    seen = marks((1.0, 12))
    seen.note_empty_range(8, 12)
    assert [seen.next_offset(applied) for applied in (7, 8, 9, 15)] == [8, 12, 10, 16]
    seen.note_empty_range(20, 15)
    assert seen.next_offset(20) == 21
    assert marks().next_offset(-1) == 0
