"""KEDA's messages, generated from ``externalscaler.proto``.

``python -m faust_assigner.service.proto`` writes the modules anew (needs grpcio-tools); a test compares.
"""
