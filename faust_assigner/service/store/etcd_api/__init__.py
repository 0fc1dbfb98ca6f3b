"""The used part of etcd's v3 API, with the messages that grpcio-tools generated.

``python -m faust_assigner.service.proto`` writes the modules anew (needs grpcio-tools); a test compares.
"""
