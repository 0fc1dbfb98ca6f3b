"""Test suites of Kafka clients, run against our broker and Apache Kafka."""
