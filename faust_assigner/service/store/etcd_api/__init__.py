"""The part of etcd's v3 API that is used here, and what grpcio-tools made of it.

``python -m faust_assigner.service.store.etcd_api`` makes it again.
"""
