"""The types of rows have the columns of the tables that they describe."""

import pytest

from faust_assigner.ledger import TABLES
from faust_assigner.pipeline.rows import (
    DecisionRow,
    MemberRow,
    PlacementRow,
    RecoveryRow,
    SampleRow,
)
from faust_assigner.pipeline.schema import FACTS


@pytest.mark.parametrize(
    ("fact", "kind"),
    [
        ("decisions", DecisionRow),
        ("placements", PlacementRow),
        ("recoveries", RecoveryRow),
        ("samples", SampleRow),
    ],
)
def test_a_type_of_rows_has_the_columns_of_its_table_in_their_order(fact: str, kind: type) -> None:
    """A column that is added to the ledger is missing in no type."""
    assert list(kind.__annotations__) == [column.name for column in FACTS[fact]]


def test_the_type_of_members_has_the_fields_of_a_decisions_members() -> None:
    """The members are structs within the row of their decision."""
    (members,) = (column for column in TABLES["decision"] if column.name == "members")
    assert list(MemberRow.__annotations__) == [field.name for field in members.fields]
