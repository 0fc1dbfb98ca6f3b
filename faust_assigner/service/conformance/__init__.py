"""Whether a client keeps the service's safety rules: ``python -m faust_assigner.service.conformance``.

The client under test registers with a service that plays a part, and says what it works on, with the time.
"""
