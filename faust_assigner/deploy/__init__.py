"""``faust-assigner deploy-check``: plans a deploy to check whether workers can be stopped now."""
