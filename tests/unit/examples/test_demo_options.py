"""What the demo refuses before it starts anything."""

from __future__ import annotations

from click.testing import CliRunner

from examples.orders.demo import main
from examples.orders.screen import LEGEND


def test_two_assignors_are_not_played_on_one_broker() -> None:
    """The second would have found none: an IndexError, after the first was through."""
    said = CliRunner().invoke(main, ["--bootstrap", "127.0.0.1:1"])
    assert said.exit_code == 2
    assert "one for each of stock, ours" in said.output


def test_a_broker_that_is_not_there_is_one_line() -> None:
    """Not a traceback."""
    said = CliRunner().invoke(main, ["--assignor", "ours", "--bootstrap", "127.0.0.1:1"])
    assert said.exit_code == 1
    assert "Error: KafkaConnectionError: Unable to bootstrap from" in said.output


def test_the_legend_leaves_its_lines_to_the_terminal() -> None:
    """Its own were broken once more at 80 columns."""
    assert "\n" not in LEGEND
