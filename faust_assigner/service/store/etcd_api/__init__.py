"""The used part of etcd's v3 API, with the messages that grpcio-tools generated.

``python -m faust_assigner.service.proto`` generates the modules again
(needs grpcio-tools); a test compares them with the generator's output.
"""
