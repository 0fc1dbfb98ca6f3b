"""The APIs DescribeCluster, DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.api.metadata import broker_values
from faust_assigner.broker.api.operations import cluster_operations
from faust_assigner.broker.groups.configs import GROUP_CONFIGS
from faust_assigner.broker.setting_kinds import BOOLEAN, INT, LIST, ConfigKind
from faust_assigner.broker.settings import SETTINGS
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.topic_configs import TOPIC_CONFIGS
from faust_assigner.broker.topics import Refused, Topic

if TYPE_CHECKING:
    from kio.schema.alter_configs.v0.request import AlterConfigsResource
    from kio.schema.alter_configs.v2.request import AlterConfigsRequest
    from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest
    from kio.schema.incremental_alter_configs.v1.request import IncrementalAlterConfigsRequest
    from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest

DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44
DESCRIBE_CLUSTER, LIST_CONFIG_RESOURCES = 60, 74
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
DYNAMIC_TOPIC, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT_CONFIG, DYNAMIC_GROUP = 1, 3, 4, 5, 8
#: A new Kafka cluster sets this config for all its brokers (KIP-966), so its source is not DEFAULT_CONFIG.
CLUSTER_WIDE: Final = {"min.insync.replicas": DYNAMIC_DEFAULT_BROKER}
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
CONFIG_BYTES: Final = 60  # estimated size of one config in an answer
BROKER_TYPES: Final = {
    one.name: one.kind.config_type for one in SETTINGS.values() if isinstance(one.kind, ConfigKind)
}
#: (call, resource of the request, explicit configs) -> the new explicit configs. Raises Refused.
Change = Callable[[Call, Any, Mapping[str, str]], dict[str, str]]


def describe_cluster(call: Call, request: DescribeClusterRequest) -> Values:
    """Return the cluster: this broker, which is also the controller."""
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "cluster_id": call.node.cluster_id,
        "controller_id": call.node.settings.node_id,
        "brokers": [broker_values(call)],
        "endpoint_type": getattr(request, "endpoint_type", 1),
        "cluster_authorized_operations": cluster_operations(call, request),
    }


async def describe_configs(call: Call, request: DescribeConfigsRequest) -> Values:
    """Return effective configs of topics, groups and this broker; a repeated resource is answered once."""
    asked: dict[tuple[int, str], set[str] | None] = {}
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        wanted = asked.get(key, set())
        names = resource.configuration_keys
        asked[key] = wanted.union(names) if names and wanted is not None else None
    results = []
    for (kind, name), wanted in asked.items():
        results.append(_describe(call, kind, name, wanted))
        await call.throttle.checkpoint(CONFIG_BYTES * len(results[-1].get("configs", ())))
    return {"results": results}


def _describe(call: Call, kind: int, name: str, wanted: set[str] | None) -> Values:
    values: dict[str, object] = {"resource_type": kind, "resource_name": name}
    try:
        entries = _config_entries(call, kind, name)
    except Refused as refused:
        return values | {"error_code": refused.error, "error_message": refused.message}
    return values | {
        "error_code": ErrorCode.none,
        "error_message": None,
        "configs": [entry for entry in entries if wanted is None or entry["name"] in wanted],
    }


def _config_entries(call: Call, kind: int, resource: str) -> list[Values]:
    node = call.node
    if kind == TOPIC:
        topic = _existing_topic(call, resource)
        return [
            _config_entry(
                name,
                node.config(topic, name),
                DYNAMIC_TOPIC if name in topic.configs else CLUSTER_WIDE.get(name, DEFAULT_CONFIG),
                TOPIC_CONFIGS[name][1].config_type,
            )
            for name in node.defaults
        ]
    if kind == BROKER:
        if resource not in ("", str(node.settings.node_id)):
            raise Refused(ErrorCode.invalid_request, f"there is no broker {resource!r}")
        return [
            _config_entry(n, v, STATIC_BROKER, BROKER_TYPES[n], read_only=True)
            for n, v in node.settings.by_kafka_name().items()
        ]
    if kind == GROUP:
        return _group_entries(call, resource)
    raise Refused(ErrorCode.invalid_request, f"this broker has no configs of resource type {kind}")


def _group_entries(call: Call, group_id: str) -> list[Values]:
    configs = call.node.group_configs
    if not group_id:
        raise Refused(ErrorCode.invalid_request, "Group name must not be empty")
    entries = []
    for name in GROUP_CONFIGS:
        source = DEFAULT_CONFIG if configs.is_broker_default(name) else STATIC_BROKER
        if name in configs.explicit(group_id):
            source = DYNAMIC_GROUP
        entries.append(_config_entry(name, str(configs.number(group_id, name)), source, INT))
    return entries


def _existing_topic(call: Call, name: str) -> Topic:
    topic = call.node.catalogue.get(name)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
    return topic


def _config_entry(
    name: str, value: str, source: int, config_type: int, *, read_only: bool = False
) -> Values:
    return {
        "name": name,
        "value": value.strip().lower() if config_type == BOOLEAN else value,
        "read_only": read_only,
        "config_source": source,
        "config_type": config_type,
        "is_sensitive": False,
    }


async def incremental_alter_configs(call: Call, request: IncrementalAlterConfigsRequest) -> Values:
    """Set or unset configs of topics and groups, and edit list-valued topic configs (KIP-339)."""
    return await _alter_all(call, request, _edited_configs)


async def alter_configs(call: Call, request: AlterConfigsRequest) -> Values:
    """Replace all configs of a topic or a group (KIP-133): omitted configs return to their defaults."""
    return await _alter_all(call, request, _replaced_configs)


async def _alter_all(call: Call, request: Any, change: Change) -> Values:
    times = Counter((r.resource_type, r.resource_name) for r in request.resources)
    responses = []
    for resource in request.resources:
        is_single = times[resource.resource_type, resource.resource_name] == 1
        responses.append(
            _alter_resource(call, resource, change, request.validate_only, is_single=is_single)
        )
        await call.throttle.checkpoint()
    return {"responses": responses}


def _alter_resource(
    call: Call,
    resource: AlterConfigsResource,
    change: Change,
    validate_only: bool,
    *,
    is_single: bool,
) -> Values:
    values = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    try:
        if not is_single:
            raise Refused(ErrorCode.invalid_request, "each resource may appear once only")
        if len({c.name for c in resource.configs}) < len(resource.configs):
            raise Refused(ErrorCode.invalid_request, "each config may appear once only")
        if resource.resource_type == TOPIC:
            topic = _existing_topic(call, resource.resource_name)
            changed = change(call, resource, topic.configs)
            call.node.catalogue.configure(topic, changed, validate_only=validate_only)
        elif resource.resource_type == GROUP:
            group_id = resource.resource_name
            changed = change(call, resource, call.node.group_configs.explicit(group_id))
            call.node.group_configs.configure(group_id, changed, validate_only=validate_only)
            call.node.groups.limits_changed(group_id)
        else:
            raise Refused(
                ErrorCode.invalid_request, "this broker changes only configs of topics and groups"
            )
    except Refused as refused:
        return values | {"error_code": refused.error, "error_message": refused.message}
    except StoreFailed as failed:
        return values | {"error_code": ErrorCode.kafka_storage_error, "error_message": str(failed)}
    return values | {"error_code": ErrorCode.none, "error_message": None}


def _replaced_configs(call: Call, resource: Any, configs: Mapping[str, str]) -> dict[str, str]:
    _refuse_nulls(resource.configs)
    return {config.name: config.value for config in resource.configs}


def _refuse_nulls(changes: Iterable[Any]) -> None:
    nulls = [change.name for change in changes if change.value is None]
    if nulls:
        raise Refused(ErrorCode.invalid_request, f"no value is given for {', '.join(nulls)}")


def _edited_configs(call: Call, resource: Any, configs: Mapping[str, str]) -> dict[str, str]:
    _refuse_nulls(change for change in resource.configs if change.config_operation != DELETE)
    changed = dict(configs)
    for change in resource.configs:
        if resource.resource_type == TOPIC:
            _apply(call, _existing_topic(call, resource.resource_name), changed, change)
        elif change.config_operation == DELETE:
            changed.pop(change.name, None)
        elif change.config_operation != SET:
            _refuse_edit(change)
        else:
            changed[change.name] = change.value
    return changed


def _refuse_edit(change: Any) -> NoReturn:
    words = {APPEND: "APPEND to", SUBTRACT: "SUBTRACT from"}
    word = words.get(change.config_operation, "change")
    raise Refused(
        ErrorCode.invalid_config, f"Can't {word} key {change.name} because its type is not LIST."
    )


async def list_config_resources(call: Call, request: ListConfigResourcesRequest) -> Values:
    """List resources with configs (KIP-1142): topics, this broker, groups with explicit configs."""
    node = call.node
    asked = set(getattr(request, "resource_types", ())) if call.version >= 1 else {CLIENT_METRICS}
    named: dict[int, Iterable[str]] = {
        TOPIC: (topic.name for topic in list(node.catalogue)),
        BROKER: (str(node.settings.node_id),),
        BROKER_LOGGER: (str(node.settings.node_id),),
        CLIENT_METRICS: (),
        GROUP: list(node.group_configs),
    }
    if not asked <= named.keys():
        return {"error_code": ErrorCode.unsupported_version}
    resources = []
    for kind in asked or named:
        for name in named[kind]:
            resources.append({"resource_name": name, "resource_type": kind})
            await call.throttle.checkpoint()
    return {"error_code": ErrorCode.none, "config_resources": resources}


def _apply(call: Call, topic: Topic, configs: dict[str, str], change: Any) -> None:
    if change.config_operation == DELETE:
        configs.pop(change.name, None)
        return
    if change.name not in call.node.defaults:
        raise Refused(ErrorCode.invalid_config, f"there is no topic config {change.name!r}")
    if change.config_operation == SET:
        configs[change.name] = change.value
        return
    if TOPIC_CONFIGS[change.name][1].config_type != LIST:
        _refuse_edit(change)
    parts = [p for p in call.node.config(topic, change.name).split(",") if p]
    given = change.value.split(",")
    if change.config_operation == APPEND:
        parts += [p for p in given if p not in parts]
    elif change.config_operation == SUBTRACT:
        parts = [p for p in parts if p not in given]
    else:
        raise Refused(ErrorCode.invalid_request, f"unknown operation {change.config_operation}")
    configs[change.name] = ",".join(parts)


APIS: Final = (
    Api(DESCRIBE_CONFIGS, "DescribeConfigs", 1, 4, describe_configs),
    Api(ALTER_CONFIGS, "AlterConfigs", 0, 2, alter_configs),
    Api(INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, incremental_alter_configs),
    Api(DESCRIBE_CLUSTER, "DescribeCluster", 0, 2, describe_cluster),
    Api(LIST_CONFIG_RESOURCES, "ListConfigResources", 0, 1, list_config_resources),
)
