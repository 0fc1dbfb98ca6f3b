"""The ``snapshot`` command: a changelog as files that a worker loads instead of replaying."""
