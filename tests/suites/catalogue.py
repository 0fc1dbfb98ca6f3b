"""The suites: what each needs installed, how its own documents say it is run, what its broker is set to.

Only what a client says to a broker with one listener is run: schema registries, sign-in and share groups are
other servers' and other features' business, and are left out by folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: What every suite takes for granted. None is the default, which our tests' brokers have changed otherwise:
#: some tests list the configs that differ from it.
SETTINGS: Mapping[str, str | None] = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": None,
    "group.consumer.min.heartbeat.interval.ms": None,
}


@dataclass(frozen=True)
class Suite:
    """One suite: ``folders`` of its checkout at ``revision``, run by ``runner`` (pytest with ``requirements``).

    ``runner`` is pytest, go, librdkafka or tools. ``environment`` is formatted with ``bootstrap`` and ``protocol``.
    """

    revision: str
    folders: tuple[str, ...]
    runner: str = "pytest"
    requirements: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    protocols: tuple[str, ...] = ("classic",)


LIBRDKAFKA_TESTS = tuple(
    ["0001_multiobj", "0002_unkpart", "0003_msgmaxsize", "0005_order", "0007_autotopic", "0008_reqacks", "0011_produce_batch", "0012_produce_consume", "0013_null_msgs", "0014_reconsume_191", "0015_offsets_seek", "0016_client_swname", "0017_compression", "0018_cgrp_term", "0019_list_groups", "0020_destroy_hang", "0021_rkt_destroy", "0022_consume_batch", "0026_consume_pause", "0028_long_topicnames", "0029_assign_offset", "0030_offset_commit", "0031_get_offsets", "0033_regex_subscribe", "0034_offset_reset", "0035_api_version", "0036_partial_fetch", "0039_event_dr", "0040_io_event", "0041_fetch_max_bytes", "0042_many_topics", "0044_partition_cnt", "0045_subscribe_update", "0045_resubscribe_with_regex", "0045_subscribe_many_updates", "0048_partitioner", "0049_consume_conn_close", "0050_subscribe_adds", "0051_assign_adds", "0052_msg_timestamps", "0053_stats", "0054_offset_time", "0055_producer_latency", "0056_balanced_group_mt", "0057_invalid_topic", "0059_bsearch", "0060_op_prio", "0061_consumer_lag", "0063_clusterid", "0064_interceptors", "0065_yield", "0067_empty_topic", "0068_produce_timeout", "0069_consumer_add_parts", "0070_null_empty", "0073_headers", "0075_retry", "0076_produce_retry", "0077_compaction", "0082_fetch_max_bytes", "0083_cb_event", "0084_destroy_flags", "0085_headers", "0086_purge_remote", "0088_produce_metadata_timeout", "0089_max_poll_interval", "0090_idempotence", "0091_max_poll_interval_timeout", "0092_mixed_msgver", "0093_holb_consumer", "0094_idempotence_msg_timeout", "0098_consumer_txn", "0099_commit_metadata", "0102_static_group_rebalance", "0103_transactions", "0109_auto_create_topics", "0110_batch_size", "0112_assign_unknown_part", "0113_cooperative_rebalance", "0114_sticky_partitioning", "0118_commit_rebalance", "0122_buffer_cleaning_after_rebalance", "0123_connections_max_idle", "0125_immediate_flush", "0127_fetch_queue_backoff", "0129_fetch_aborted_msgs", "0130_store_offsets", "0132_strategy_ordering", "0137_barrier_batch_consume", "0140_commit_metadata"]
)
LIBRDKAFKA_ADMIN = tuple(
    ["unclean_destroy", "CreateTopics", "DeleteTopics", "CreatePartitions", "CreateAcls", "DescribeAcls", "DeleteAcls", "AlterConfigs", "IncrementalAlterConfigs", "DescribeConfigs", "DescribeConfigs_groups", "DeleteRecords", "ListConsumerGroups", "DescribeConsumerGroups", "DescribeTopics", "DescribeCluster", "DeleteGroups", "DeleteConsumerGroupOffsets", "ListOffsets", "AlterConsumerGroupOffsets", "ListConsumerGroupOffsets", "UserScramCredentials"]
)

SUITES: Mapping[str, Suite] = {
    "confluent": Suite(
        revision="confluentinc/confluent-kafka-python v2.15.0",
        requirements=(
            "confluent-kafka[avro,json,protobuf,schemaregistry]==2.15.0", "trivup", "pytest<9",
            "pytest-timeout", "pytest-asyncio",
        ),
        folders=("tests/integration/admin", "tests/integration/consumer", "tests/integration/producer"),
        # One test starts a Kafka with sign-in of its own, which it downloads.
        arguments=("--deselect", "tests/integration/admin/test_describe_operations.py"),
        environment={"BROKERS": "{bootstrap}", "TEST_CONSUMER_GROUP_PROTOCOL": "{protocol}"},
        protocols=("classic", "consumer"),
    ),
    "kafka-python": Suite(
        revision="dpkp/kafka-python 3.0.11",
        requirements=("kafka-python==3.0.11", "pytest<9", "pytest-timeout", "pytest-mock", "lz4",
                      "python-snappy", "zstandard", "crc32c"),
        # Without its tests of TLS and SASL, which start servers of their own.
        folders=("test/integration/test_admin_integration.py",
                 "test/integration/test_consumer_integration.py",
                 "test/integration/test_producer_integration.py"),
        # Its fixture wants a folder of Kafka's scripts even when it starts no Kafka.
        environment={"KAFKA_URI": "kafka://{bootstrap}", "KAFKA_VERSION": "4.3.1", "KAFKA_ROOT": "."},
        # It assigns partitions to broker 0 by hand, which is what its own fixture calls its broker.
        settings={"num.partitions": "4", "node.id": "0"},
    ),
    "aiokafka": Suite(
        revision="aio-libs/aiokafka v0.14.0",
        requirements=("aiokafka==0.14.0", "cramjam", "docker", "pytest==9.0.2", "pytest-timeout",
                      "pytest-mock", "pytest-asyncio==1.3.0", "pytest-cov"),
        # What speaks to a broker, without TLS and SASL. What a failed test leaves open is no neighbour's.
        folders=tuple(f"tests/test_{what}.py" for what in (
            "admin", "client", "conn", "consumer", "coordinator", "fetcher", "pep492", "producer", "sender",
            "transactional_consumer", "transactional_producer",
        )),
        environment={"SUITE_BOOTSTRAP": "{bootstrap}"},
        arguments=("--docker-image", "kafka:4.3.1", "-p", "suite_aiokafka", "-m", "not ssl",
                   "-W", "default::pytest.PytestUnraisableExceptionWarning"),
        settings={"num.partitions": "2", "node.id": "0"},
    ),
    # Its test of groups runs balancers of both protocols side by side. TestTxnEtl is left out: it is the same
    # in transactions, and waits for half an hour where there are none.
    "franz-go": Suite(
        revision="twmb/franz-go adb3a18abe14 (after v1.21.5)",
        folders=("./pkg/kgo",),
        runner="go",
        environment={"KGO_SEEDS": "{bootstrap}", "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "20000"},
        arguments=("-run", "^TestGroupETL$"),
        protocols=("both",),
    ),
    # Its tests that talk to a broker, the quick form of each, as its own CI runs them. Left out: share groups,
    # those that start servers of their own, those of TLS, sign-in and several brokers (they skip themselves).
    "librdkafka": Suite(
        revision="confluentinc/librdkafka v2.15.0",
        folders=(*LIBRDKAFKA_TESTS, *(f"0081_admin/do_test_{what}" for what in LIBRDKAFKA_ADMIN)),
        runner="librdkafka",
        arguments=("-Q", "-L"),
        settings={"num.partitions": "4"},
        protocols=("classic", "consumer"),
    ),
    "librdkafka-noautocreate": Suite(
        revision="confluentinc/librdkafka v2.15.0",
        folders=("0045_subscribe_update_topic_remove", "0045_subscribe_update_non_exist_and_partchange",
                 "0107_topic_recreate", "0111_delay_create_topics"),
        runner="librdkafka",
        arguments=("-Q", "-L", "-s", "noautocreate"),
        settings={"num.partitions": "4", "auto.create.topics.enable": "false"},
        protocols=("classic", "consumer"),
    ),
    # Its steps are those of tests/suites/tools.py; nothing needs to be checked out.
    "tools": Suite(
        revision="Apache Kafka 4.3.1, its jars",
        folders=(),
        runner="tools",
        settings={"num.partitions": "4"},
        protocols=("classic", "consumer"),
    ),
}
