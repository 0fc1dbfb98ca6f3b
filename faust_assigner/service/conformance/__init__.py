"""A test of a client's safety rules: ``python -m faust_assigner.service.conformance``.

The client under test registers with a simulated service, and reports each write with its time.
"""
