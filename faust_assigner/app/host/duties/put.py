"""Attributes of the host's objects that our code replaces."""

from __future__ import annotations

from typing import Final

from faust_assigner.app.host.duties.row import Put

_APP = "faust.app.base:App"
_COORDINATOR = "aiokafka.consumer.group_coordinator:GroupCoordinator"
_PRODUCER = "faust.transport.drivers.aiokafka:Producer"
_TABLE = "faust.tables.base:Collection"
_METER = "ledger.recovery_meter:RecoveryMeter"
_CLASS = "Its methods have rows of their own."

PUT: Final[tuple[Put, ...]] = (
    Put(
        "sensors:install app.sensors",
        "faust.sensors.base:SensorDelegate",
        "sensors:SensorsByHook",
        "",
        "It derives from Faust's class; a delegate of Faust's calls each hook in the path of records.",
    ),
    Put(
        "compose:repair app.flow_control",
        "mode.utils.queues:FlowControlEvent",
        "consumer.fetching:FlowControl",
        "",
        _CLASS,
    ),
    Put(
        "recovery.table_manager:changelog_queue self._changelog_queue",
        "mode.utils.queues:ThrowableQueue",
        "recovery.replay_loop:ChangelogQueue",
        "",
        _CLASS,
    ),
    Put(
        "consumer.lanes:_fair queue._queue",
        "mode.utils.queues:ThrowableQueue",
        "consumer.lanes:Lanes",
        "",
        "It keeps items as a deque does, in turn between partitions.",
    ),
    Put(
        "consumer.lanes:install app.FlowControlQueue",
        f"{_APP}.FlowControlQueue",
        "consumer.lanes:_fair",
        "make",
    ),
    Put(
        "membership.leave:install app._stop_consumer",
        f"{_APP}._stop_consumer",
        "membership.leave:stop",
        "stop_consumer",
    ),
    Put(
        "metrics.install:install app.on_webserver_init",
        f"{_APP}.on_webserver_init",
        "metrics.install:_add_pages",
        "init",
    ),
    Put(
        "fixup:kept_until_start app._new_consumer",
        f"{_APP}._new_consumer",
        "fixup:_new_consumer",
        "create",
    ),
    Put(
        "compose:_add app._new_consumer",
        f"{_APP}._new_consumer",
        "compose:_new_consumer",
        "create",
    ),
    Put(
        "compose:answer_requests app.table_route",
        f"{_APP}.table_route",
        "queries.reading:table_route",
        "declare",
    ),
    Put(
        "membership.leader_guard:guard_leader coordinator._perform_assignment",
        f"{_COORDINATOR}._perform_assignment",
        "membership.leader_guard:_perform",
        "perform",
    ),
    Put(
        "rebalance.incremental:__init__ self.callback",
        "faust.transport.conductor:Conductor.on_message",
        "rebalance.incremental:IncrementalRebalance._deliver",
        "deliver",
        "A record of a partition that was paused or went since it was fetched is left out: it is read again.",
    ),
    Put(
        "consumer.back_pressure:__init__ self.callback",
        "faust.transport.conductor:Conductor.on_message",
        "consumer.back_pressure:BackPressure._deliver_with_room",
        "deliver",
    ),
    Put(
        "membership.shutdown:__init__ producer.flush",
        f"{_PRODUCER}.flush",
        "membership.shutdown:ShutdownBudget.within",
        "step",
    ),
    Put(
        "membership.shutdown:__init__ producer.on_stop",
        f"{_PRODUCER}.on_stop",
        "membership.shutdown:BoundedShutdown._part_producer",
        "stop",
    ),
    Put(
        "membership.fence:__init__ producer.send_soon",
        "faust.transport.producer:Producer.send_soon",
        "membership.fence:MembershipFence._send_soon",
        "send_soon",
    ),
    Put(
        "transactions.manager:__init__ self.producer.send_soon",
        "faust.transport.producer:Producer.send_soon",
        "transactions.manager:PartitionTransactions.send_soon",
        "",
        "What belongs to no record goes through the original, the rest into its record's transaction.",
    ),
    Put(
        "membership.fence:_guard_producer sender._send_produce_req",
        "aiokafka.producer.sender:Sender._send_produce_req",
        "membership.fence:send_as_member",
        "send",
        "Where all batches are of a former membership nothing is sent.",
    ),
    Put(
        "membership.fence:watch coordinator._do_heartbeat",
        f"{_COORDINATOR}._do_heartbeat",
        "membership.fence:watch",
        "beat",
        "Called first, by the function that watch() makes.",
    ),
    Put(
        "membership.fence:watch coordinator._send_req",
        f"{_COORDINATOR}._send_req",
        "membership.fence:sent",
        "send",
    ),
    Put(
        "membership.fence:watch coordinator.reset_generation",
        f"{_COORDINATOR}.reset_generation",
        "membership.fence:watch",
        "reset",
        "Called first, by the function that watch() makes.",
    ),
    Put(
        "consumer.produced_topics:install creator._new_producer",
        f"{_PRODUCER}._new_producer",
        "consumer.produced_topics:_create",
        "create",
    ),
    Put(
        "consumer.produced_topics:_create client._wait_on_metadata",
        "aiokafka.client:AIOKafkaClient._wait_on_metadata",
        "consumer.produced_topics:_wait_on_metadata",
        "wait",
    ),
    Put(
        "consumer.produced_topics:_create client._metadata_update",
        "aiokafka.client:AIOKafkaClient._metadata_update",
        "consumer.produced_topics:_WithPauses.__call__",
        "self._update",
    ),
    Put(
        "consumer.produced_topics:_create client.coordinator_lookup",
        "aiokafka.client:AIOKafkaClient.coordinator_lookup",
        "consumer.produced_topics:_look_up",
        "look_up",
    ),
    Put(
        "consumer.committed_offsets:ask_for_all coordinator._do_fetch_commit_offsets",
        f"{_COORDINATOR}._do_fetch_commit_offsets",
        "consumer.committed_offsets:committed",
        "",
        "It has a row among the replaced methods.",
    ),
    Put(
        "membership.watchdog:add table._verify_source_topic_partitions",
        f"{_TABLE}._verify_source_topic_partitions",
        "membership.topics:verify",
        "verify",
    ),
    Put(
        "recovery.table_manager:_update_channels channel.on_decode_error",
        "faust.channels:Channel.on_decode_error",
        "recovery.replay_loop:ReplayLoop.name_unreadable",
        "",
        "The original does nothing.",
    ),
    Put(
        "tables.write_behind:begin table.send_changelog",
        f"{_TABLE}.send_changelog",
        "tables.write_behind:_send",
        "send",
    ),
    Put(
        "tables.write_behind:begin table._on_changelog_sent",
        f"{_TABLE}._on_changelog_sent",
        "tables.store:WriteBehindStore.arrived",
        "",
        "It has a row among the replaced methods.",
    ),
    Put(
        "tables.files:take_care_of table._new_store_by_url",
        f"{_TABLE}._new_store_by_url",
        "tables.files:_new_store",
        "make",
        "A RocksDB store is made of our class, with the same arguments.",
    ),
    Put(
        "tables.files:take_care_of table._new_store",
        "faust.tables.sets:SetTable._new_store",
        "tables.files:_whole",
        "make",
    ),
    Put(
        "recovery.batched_replay:_proc_fetch_request records._consumer_record",
        "aiokafka.consumer.fetcher:PartitionRecords._consumer_record",
        "recovery.batched_replay:_as_parsed",
        "",
        "Records of a changelog are taken as they were parsed: nobody looks at their other fields.",
    ),
    Put(
        "ledger.recovery_meter:attach recovery.on_rebalance",
        "faust.tables.recovery:Recovery.on_rebalance",
        f"{_METER}._around_rebalance",
        "inner",
    ),
    Put(
        "ledger.recovery_meter:attach recovery._build_offsets",
        "faust.tables.recovery:Recovery._build_offsets",
        f"{_METER}._around_offsets",
        "inner",
    ),
    Put(
        "ledger.recovery_meter:attach recovery.on_recovery_completed",
        "faust.tables.recovery:Recovery.on_recovery_completed",
        f"{_METER}._before_completed",
        "inner",
    ),
    Put(
        "ledger.recovery_meter:attach table.apply_changelog_batch",
        f"{_TABLE}.apply_changelog_batch",
        f"{_METER}._after_apply",
        "inner",
    ),
    Put(
        "membership.idle:comes_back coordinator._maybe_leave_group",
        f"{_COORDINATOR}._maybe_leave_group",
        "membership.idle:_leave",
        "",
        "A member that was given no partitions is not idle, and stays; one that leaves says why.",
    ),
    Put(
        "membership.idle:comes_back coordinator._stop_heartbeat_task",
        f"{_COORDINATOR}._stop_heartbeat_task",
        "membership.idle:_stop_heartbeat_task",
        "type(coordinator)._stop_heartbeat_task",
    ),
    Put(
        "membership.instance:guard_instance coordinator._send_req",
        f"{_COORDINATOR}._send_req",
        "membership.instance:InstanceGuard.send",
        "self._send",
        "It sends through the class of the coordinator, which may be another one by then.",
    ),
    Put(
        "tables.window_closing:install table._new_changelog_topic",
        f"{_TABLE}._new_changelog_topic",
        "tables.window_closing:_kept_longer",
        "make",
    ),
    Put(
        "membership.instance:guard_instance coordinator._on_join_complete",
        f"{_COORDINATOR}._on_join_complete",
        "membership.instance:_complete",
        "type(coordinator)._on_join_complete",
    ),
    Put(
        "tables.window_closing:__init__ table._window_ranges",
        f"{_TABLE}._window_ranges",
        "tables.window_closing:Closing._note_timestamp",
        "self._ranges",
    ),
    Put(
        "tables.window_closing:__init__ table.apply_changelog_batch",
        f"{_TABLE}.apply_changelog_batch",
        "tables.window_closing:Closing._applied",
        "self._apply",
    ),
    Put(
        "tables.window_closing:__init__ table._maybe_set_key_ttl",
        f"{_TABLE}._maybe_set_key_ttl",
        "tables.window_closing:Closing._changed",
        "",
        "It has a row among the replaced methods.",
    ),
    Put(
        "tables.window_closing:__init__ table._maybe_del_key_ttl",
        f"{_TABLE}._maybe_del_key_ttl",
        "tables.window_closing:Closing._deleted",
        "",
        "It has a row among the replaced methods.",
    ),
    Put(
        "tables.window_closing:__init__ table._del_old_keys",
        f"{_TABLE}._del_old_keys",
        "tables.window_closing:Closing.close_windows",
        "",
        "It has a row among the replaced methods.",
    ),
    Put(
        "tables.window_closing:install table.on_window_close",
        f"{_TABLE}.on_window_close",
        "tables.window_closing:_never_without_a_value",
        "call",
        "The app is not called for a window without a value: it was closed by another owner.",
    ),
)
