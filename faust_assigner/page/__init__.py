"""The page of a group in a browser: tasks by members, rounds over time, and one task's story.

``scrub``, ``tasks``, ``grid``, ``history``, ``timeline``, ``story`` and ``render`` are pure: a
:class:`faust_assigner.status.report.Report` goes in, HTML comes out. ``watch`` looks at the group on a
thread of its own, ``answers`` maps a path to an answer, and ``server`` serves it. Read-only.
"""
