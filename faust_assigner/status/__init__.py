"""``faust-assigner status``: the current state of a group, from its coordinator and its workers.

``described`` decodes the group, ``asking`` queries the workers, and ``collect`` does both. ``build``
makes a typed report of the answers, without I/O; ``render`` prints the report.
"""
