"""The used part of etcd's v3 API, with the messages that grpcio-tools generated.

``python -m faust_assigner.service.store.etcd_api`` generates the messages again.
"""
