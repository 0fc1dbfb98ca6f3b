"""``faust-assigner doctor``: what is wrong with an app's setup, or with a running group, and the fix.

``codes`` is the table of all findings. ``app_checks`` and ``group_checks`` are pure: they look at facts,
which ``app_facts`` reads from an app and ``group_facts`` from a cluster.
"""
