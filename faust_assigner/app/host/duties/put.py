"""Attributes of the host's objects that are given something of ours."""

from __future__ import annotations

from typing import Final

from faust_assigner.app.host.duties.row import Put

_APP = "faust.app.base:App"
_THREAD = "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread"
_COORDINATOR = "aiokafka.consumer.group_coordinator:GroupCoordinator"
_PRODUCER = "faust.transport.drivers.aiokafka:Producer"
_TABLE = "faust.tables.base:Collection"
_METER = "ledger.recovery_meter:RecoveryMeter"
_CLASS = "Its methods have rows of their own."

PUT: Final[tuple[Put, ...]] = (
    Put(
        "cooperative.coordinator:take_over coordinator.__class__",
        _COORDINATOR,
        "cooperative.coordinator:CooperativeCoordinator",
        "",
        _CLASS,
    ),
    Put(
        "cooperative.fetcher:make_prompt fetcher.__class__",
        "aiokafka.consumer.fetcher:Fetcher",
        "cooperative.fetcher:PromptFetcher",
        "",
        _CLASS,
    ),
    Put(
        "restore.batched_replay:replay consumer._fetcher.__class__",
        "aiokafka.consumer.fetcher:Fetcher",
        "restore.batched_replay:BareFetcher",
        "",
        _CLASS,
    ),
    Put(
        "reads.reading:_guard_others table.__class__",
        _TABLE,
        "reads.scope:ScopedTable",
        "",
        _CLASS,
    ),
    Put(
        "repairs.install:repair app.flow_control.__class__",
        "mode.utils.queues:FlowControlEvent",
        "repairs.fetching:FlowControl",
        "",
        _CLASS,
    ),
    Put(
        "repairs.install:repair app.flow_control",
        "mode.utils.queues:FlowControlEvent",
        "repairs.fetching:FlowControl",
        "",
        _CLASS,
    ),
    Put(
        "repairs.recovery_loop:changelog_queue self._changelog_queue",
        "mode.utils.queues:ThrowableQueue",
        "repairs.replay_loop:ChangelogQueue",
        "",
        _CLASS,
    ),
    Put(
        "cooperative.lanes:_fair queue._queue",
        "mode.utils.queues:ThrowableQueue",
        "cooperative.lanes:Lanes",
        "",
        "It keeps items as a deque does, in turn between partitions.",
    ),
    Put(
        "cooperative.lanes:install app.FlowControlQueue",
        f"{_APP}.FlowControlQueue",
        "cooperative.lanes:_fair",
        "make",
    ),
    Put(
        "cooperative.leave:install app._stop_consumer",
        f"{_APP}._stop_consumer",
        "cooperative.leave:stop",
        "stop_consumer",
    ),
    Put(
        "cooperative.install:install app._new_consumer",
        f"{_APP}._new_consumer",
        "cooperative.install:_new_consumer",
        "create",
    ),
    Put(
        "early:kept_until_start app._new_consumer",
        f"{_APP}._new_consumer",
        "early:_new_consumer",
        "create",
    ),
    Put(
        "repairs.driver_assignor:install app._new_consumer",
        f"{_APP}._new_consumer",
        "repairs.driver_assignor:_new_consumer",
        "create",
    ),
    Put(
        "repairs.install:repair app._new_consumer",
        f"{_APP}._new_consumer",
        "repairs.install:_new_consumer",
        "create",
    ),
    Put(
        "reads.install:install app.table_route",
        f"{_APP}.table_route",
        "reads.reading:table_route",
        "declare",
    ),
    Put(
        "cooperative.handing_over:_create consumer.start",
        "aiokafka:AIOKafkaConsumer.start",
        "cooperative.handing_over:_start",
        "start",
    ),
    Put(
        "repairs.leader_guard:guard_leader consumer.start",
        "aiokafka:AIOKafkaConsumer.start",
        "repairs.leader_guard:_start",
        "start",
    ),
    Put(
        "repairs.leader_guard:_start coordinator._perform_assignment",
        f"{_COORDINATOR}._perform_assignment",
        "repairs.leader_guard:_perform",
        "perform",
    ),
    Put(
        "cooperative.handing_over:__init__ self.callback",
        "faust.transport.conductor:Conductor.on_message",
        "cooperative.handing_over:HandsOver._deliver",
        "deliver",
        "A record of a partition that was paused or went since it was fetched is left out: it is read again.",
    ),
    Put(
        "overlay.consumer:__init__ self.callback",
        "faust.transport.conductor:Conductor.on_message",
        "overlay.consumer:Lands._deliver_with_room",
        "deliver",
    ),
    Put(
        "cooperative.handing_over:_new_consumer_thread thread._create_worker_consumer",
        f"{_THREAD}._create_worker_consumer",
        "cooperative.handing_over:_create",
        "create",
    ),
    Put(
        "repairs.driver_assignor:_new_consumer_thread thread._create_worker_consumer",
        f"{_THREAD}._create_worker_consumer",
        "repairs.driver_assignor:_with_ours",
        "create",
    ),
    Put(
        "cooperative.handing_over:_new_consumer_thread thread.verify_event_path",
        f"{_THREAD}.verify_event_path",
        "cooperative.handing_over:HandsOver._verify",
        "verify",
        "A partition that is paused, or was resumed since the last look, is not complained of.",
    ),
    Put(
        "repairs.fetching:_new_consumer_thread thread._fetch_records",
        f"{_THREAD}._fetch_records",
        "repairs.fetching:fetch_or_put_back",
        "fetch",
    ),
    Put(
        "repairs.fetching:_new_consumer_thread thread.seek_to_committed",
        f"{_THREAD}.seek_to_committed",
        "repairs.fetching:seek_to_committed",
        "one_by_one",
        "All partitions are asked for at once, where the client can do that.",
    ),
    Put(
        "repairs.goodbye:_new_consumer_thread thread.on_thread_stop",
        f"{_THREAD}.on_thread_stop",
        "repairs.goodbye:LeavesInTime._part_consumer",
        "stop",
    ),
    Put(
        "repairs.goodbye:__init__ producer.flush",
        f"{_PRODUCER}.flush",
        "repairs.goodbye:Goodbye.within",
        "step",
    ),
    Put(
        "repairs.goodbye:__init__ producer.on_stop",
        f"{_PRODUCER}.on_stop",
        "repairs.goodbye:LeavesInTime._part_producer",
        "stop",
    ),
    Put(
        "repairs.membership:__init__ producer.send_soon",
        "faust.transport.producer:Producer.send_soon",
        "repairs.membership:OnlyMembersWrite._send_soon",
        "send_soon",
    ),
    Put(
        "repairs.transactions:__init__ self.producer.send_soon",
        "faust.transport.producer:Producer.send_soon",
        "repairs.transactions:OwnTransactions.send_soon",
        "",
        "What belongs to no record goes through the original, the rest into its record's transaction.",
    ),
    Put(
        "repairs.membership:_guard_producer sender._send_produce_req",
        "aiokafka.producer.sender:Sender._send_produce_req",
        "repairs.membership:send_as_member",
        "send",
        "Where all batches are of a former membership nothing is sent.",
    ),
    Put(
        "repairs.membership:watch coordinator._do_heartbeat",
        f"{_COORDINATOR}._do_heartbeat",
        "repairs.membership:watch",
        "beat",
        "Called first, by the function that watch() makes.",
    ),
    Put(
        "repairs.membership:watch coordinator.reset_generation",
        f"{_COORDINATOR}.reset_generation",
        "repairs.membership:watch",
        "reset",
        "Called first, by the function that watch() makes.",
    ),
    Put(
        "repairs.produced_topics:install creator._new_producer",
        f"{_PRODUCER}._new_producer",
        "repairs.produced_topics:_create",
        "create",
    ),
    Put(
        "repairs.produced_topics:_create client._wait_on_metadata",
        "aiokafka.client:AIOKafkaClient._wait_on_metadata",
        "repairs.produced_topics:_wait_on_metadata",
        "wait",
    ),
    Put(
        "repairs.committed_offsets:ask_for_all coordinator._do_fetch_commit_offsets",
        f"{_COORDINATOR}._do_fetch_commit_offsets",
        "repairs.committed_offsets:committed",
        "",
        "It has a row among the replaced methods.",
    ),
    Put(
        "repairs.topics:add table._verify_source_topic_partitions",
        f"{_TABLE}._verify_source_topic_partitions",
        "repairs.topics:_verify",
        "verify",
    ),
    Put(
        "repairs.recovery_loop:_update_channels channel.on_decode_error",
        "faust.channels:Channel.on_decode_error",
        "repairs.replay_loop:ReplayLoop.name_unreadable",
        "",
        "The original does nothing.",
    ),
    Put(
        "overlay.tables:begin table.send_changelog",
        f"{_TABLE}.send_changelog",
        "overlay.tables:_send",
        "send",
    ),
    Put(
        "overlay.tables:begin table._on_changelog_sent",
        f"{_TABLE}._on_changelog_sent",
        "overlay.store:OverlaidStore.arrived",
        "",
        "It has a row among the replaced methods.",
    ),
    Put(
        "restore.table_files:take_care_of table._new_store_by_url",
        f"{_TABLE}._new_store_by_url",
        "restore.table_files:_new_store",
        "make",
        "A RocksDB store is made of our class, with the same arguments.",
    ),
    Put(
        "restore.table_files:take_care_of table._new_store",
        "faust.tables.sets:SetTable._new_store",
        "restore.table_files:_whole",
        "make",
    ),
    Put(
        "restore.batched_replay:_proc_fetch_request records._consumer_record",
        "aiokafka.consumer.fetcher:PartitionRecords._consumer_record",
        "restore.batched_replay:_as_parsed",
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
        "repairs.idle:comes_back consumer.start",
        "aiokafka:AIOKafkaConsumer.start",
        "repairs.idle:_start",
        "start",
    ),
    Put(
        "repairs.instance:guard_instance consumer.start",
        "aiokafka:AIOKafkaConsumer.start",
        "repairs.instance:_start",
        "start",
    ),
    Put(
        "repairs.idle:_start coordinator._maybe_leave_group",
        f"{_COORDINATOR}._maybe_leave_group",
        "repairs.idle:_leave",
        "type(coordinator)._maybe_leave_group",
    ),
    Put(
        "repairs.idle:_start coordinator._stop_heartbeat_task",
        f"{_COORDINATOR}._stop_heartbeat_task",
        "repairs.idle:_stop_heartbeat_task",
        "type(coordinator)._stop_heartbeat_task",
    ),
    Put(
        "repairs.instance:_start coordinator._send_req",
        f"{_COORDINATOR}._send_req",
        "repairs.instance:InstanceGuard.send",
        "self._send",
        "It sends through the class of the coordinator, which may be another one by then.",
    ),
)
