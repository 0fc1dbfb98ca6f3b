"""The page of a group in a browser: tasks by members, rounds over time, and a task's history.

``scrub``, ``tasks``, ``grid``, ``history``, ``timeline``, ``story`` and ``render`` do no I/O: they convert a
:class:`faust_assigner.status.report.Report` to HTML. ``watch`` queries the group on a separate
thread, ``answers`` makes the answer for a path, and ``server`` serves the answers. The page cannot
change the group.
"""
