"""Lookups for tests of the tables of ``faust_assigner/app/host``: our classes, the host's source."""
