"""The service's messages, generated from ``kafka_assigner.proto``.

``python -m faust_assigner.service.proto`` generates the modules again (needs grpcio-tools). A test
compares them with the generator's output.
"""
