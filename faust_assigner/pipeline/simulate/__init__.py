"""The ``simulate`` command: scenarios, policies, and the settings that served best."""
