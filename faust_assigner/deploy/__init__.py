"""``faust-assigner deploy-check``: may workers of a running group be stopped now? Tried by planning."""
