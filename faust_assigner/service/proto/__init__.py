"""The service's messages, generated from ``kafka_assigner.proto``.

``python -m faust_assigner.service.proto`` writes the modules anew (needs grpcio-tools); a test compares.
"""
