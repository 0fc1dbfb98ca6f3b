"""``faust-assigner status``: the current state of a group, from its coordinator and its workers.

``described`` decodes the coordinator's description of the group, and ``worker_requests`` queries the
workers; ``collect`` uses both. ``build`` makes a report of the answers, without I/O. ``render``
formats the report for a terminal.
"""
