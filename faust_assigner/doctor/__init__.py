"""``faust-assigner doctor``: problems in an app's setup or in a running group, with their fixes.

``codes`` is the table of all findings. ``app_checks`` and ``group_checks`` do no I/O: they check facts
that ``app_facts`` reads from an app and ``group_facts`` from a cluster.
"""
