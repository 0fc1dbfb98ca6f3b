"""``faust-assigner status``: what a running group does now, from its coordinator and its workers.

``described`` decodes the group, ``asking`` asks the workers, and ``collect`` does both. ``build``
makes a typed report of the answers, without I/O; ``render`` prints it.
"""
