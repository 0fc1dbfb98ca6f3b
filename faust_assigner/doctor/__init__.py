"""``faust-assigner doctor``: problems in an app's setup or in a running group, with their fixes.

``codes`` is the table of all findings. ``app_facts`` reads facts from an app, and ``group_facts``
from a cluster. ``app_checks`` and ``group_checks`` check these facts without I/O.
"""
