"""The ``history`` command: decisions, moves and recoveries of a group as tables, plots and a page."""
