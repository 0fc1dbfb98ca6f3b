"""``faust-assigner deploy-check``: can workers of a running group be stopped now? Answered by planning."""
