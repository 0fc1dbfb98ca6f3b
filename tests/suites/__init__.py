"""Suites that other projects wrote for their clients, run against our broker and against Apache Kafka."""
