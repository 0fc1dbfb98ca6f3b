"""The ``history`` command: what the group did, as tables, plots and a page."""
