"""A round's outcome in every answer: complete for the leader, without names for followers."""

from __future__ import annotations

import pytest

from faust_assigner.errors import MetadataRefused
from faust_assigner.wire.answer import AnswerWriter, decode_answer
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.outcome import (
    MOST_NAMED,
    Outcome,
    decode_outcome,
    encode_outcome,
    for_others,
)
from faust_assigner.wire.runs import Reader, Writer

WHOLE = Outcome(
    trigger="rejoin",
    completes="join+leave",
    decided_at=1_795_232_422,
    members=5,
    tasks=24,
    moved=3,
    cold=1,
    off_target=2,
    warming=2,
    leads=True,
    joined=("http://new:6066",),
    left=("http://gone:6066", "http://other:6066"),
)


@pytest.mark.parametrize(
    "outcome", [WHOLE, for_others(WHOLE), Outcome(is_planned=False), Outcome(decided_at=2**31)]
)
def test_an_outcome_is_read_as_it_was_written(outcome: Outcome) -> None:
    """Every field survives, both in the complete form and in the followers' form."""
    assert decode_outcome(Reader(encode_outcome(outcome))) == outcome


def test_the_leader_s_answer_names_members_and_the_others_count_alone() -> None:
    """The outcome adds about 30 bytes; only the leader's answer has URLs."""
    plain, told = (
        AnswerWriter(Directory(), {}, generation=7, is_uniform=True, outcome=outcome)
        for outcome in (None, WHOLE)
    )
    assert decode_answer(told.for_ours({}, {}, "http://a", leads=True)).outcome == WHOLE
    assert decode_answer(told.for_ours({}, {}, "http://b")).outcome == for_others(WHOLE)
    assert decode_answer(plain.for_ours({}, {}, "http://a")).outcome is None
    more = len(told.for_ours({}, {}, "http://b")) - len(plain.for_ours({}, {}, "http://b"))
    assert 0 < more < 60


def test_no_more_than_ten_names_travel() -> None:
    """A thousand members joined; the leader's answer names ten."""
    many = Outcome(joined=tuple(f"http://w{n}" for n in range(1000)))
    assert decode_outcome(Reader(encode_outcome(many))).joined == many.joined[:MOST_NAMED]


def test_an_outcome_that_cannot_be_read_leaves_the_assignment_readable() -> None:
    """The outcome is information for people; a later version may use a different format."""
    with pytest.raises(MetadataRefused):
        decode_outcome(Reader(b"\x01"))
    whole = AnswerWriter(Directory(), {"orders": 0}, generation=7, is_uniform=True)
    alike = Writer()
    alike.field(21, b"\xff")
    whole._alike += bytes(alike.data)
    answer = decode_answer(whole.for_ours({"orders": [0]}, {}, "http://a"))
    assert answer.outcome is None
    assert list(answer.actives["orders"]) == [0]


def test_fields_of_a_later_version_are_passed_over() -> None:
    """The decoder ignores bytes after the known fields."""
    assert decode_outcome(Reader(encode_outcome(WHOLE) + b"more")) == WHOLE


def test_the_others_learn_no_name_and_that_they_do_not_lead() -> None:
    """Followers get all remaining fields."""
    told = for_others(WHOLE)
    assert (told.leads, told.joined, told.left) == (False, (), ())
    assert told.moved == WHOLE.moved


def test_the_first_ten_names_of_each_list_come_back() -> None:
    """The names beyond the tenth are left out, and the next list is read after them."""
    names = tuple(f"http://w{n}" for n in range(12))
    told = Outcome(joined=names, left=names[:2])
    back = decode_outcome(Reader(encode_outcome(told)))
    assert (back.joined, back.left) == (names[:10], names[:2])


@pytest.mark.parametrize("field", ["trigger", "completes"])
def test_a_text_of_an_outcome_has_up_to_2048_characters(field: str) -> None:
    """The characters count, not their bytes."""
    longest = Outcome(**{field: "ü" * 2_048})  # type: ignore[arg-type]
    assert decode_outcome(Reader(encode_outcome(longest))) == longest
    longer = Outcome(**{field: "u" * 2_049})  # type: ignore[arg-type]
    with pytest.raises(MetadataRefused, match="2049 characters, the limit is 2048"):
        decode_outcome(Reader(encode_outcome(longer)))


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("is_planned", [False, True])
def test_the_two_flags_of_an_outcome_are_apart(is_planned: bool, leads: bool) -> None:
    """A leader whose planner failed still leads."""
    told = Outcome(is_planned=is_planned, leads=leads)
    assert decode_outcome(Reader(encode_outcome(told))) == told
