"""The ``simulate`` command: scenarios, policies and the recommended settings."""
