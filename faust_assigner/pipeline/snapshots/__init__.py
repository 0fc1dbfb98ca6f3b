"""The ``snapshot`` command: write a changelog as files that a worker loads instead of a replay."""
