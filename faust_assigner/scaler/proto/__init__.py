"""KEDA's messages, generated from ``externalscaler.proto``.

``python -m faust_assigner.service.proto`` generates the modules again (needs grpcio-tools). A test
compares them with the generator's output.
"""
