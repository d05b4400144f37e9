"""Settings of topics and of the gateway: DescribeConfigs, IncrementalAlterConfigs, AlterConfigs."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

from headgate.commitlog.configs import CONFIGS, ConfigType, value_of
from headgate.gateway.access import Kind, Operation
from headgate.gateway.context import Context, Failures, Handlers
from headgate.gateway.handlers.cluster import find_allowed
from headgate.gateway.store import Topic
from headgate.wire.kafka import Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    AlteredResource,
    ConfigSynonym,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribedConfig,
    DescribedConfigs,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementallyAlterableConfig,
    IncrementallyAlteredResource,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["FAILURES", "HANDLERS", "source_of"]


class _Resource(enum.IntEnum):
    TOPIC = 2
    BROKER = 4


class _Source(enum.IntEnum):
    """Where a value comes from, by the protocol's numbers."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class _Change(enum.IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def source_of(configs: Mapping[str, str], name: str) -> int:
    """Whether somebody set it."""
    return _Source.TOPIC if name in configs else _Source.DEFAULT


async def describe_configs(context: Context, header: RequestHeader, request: DescribeConfigsRequest) -> Body:
    """Settings with their defaults, so that admin tools show everything."""
    return DescribeConfigsResponse(
        results=tuple([await _described(context, resource, request) for resource in request.resources])
    )


async def _described(
    context: Context, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribedConfigs:
    try:
        configs = await _all_configs(context, resource, request)
    except Refused as refused:
        return _not_described(resource, refused.code, refused.message)
    keys = resource.configuration_keys
    return DescribedConfigs(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(config for config in configs if keys is None or config.name in keys),
    )


async def _all_configs(
    context: Context, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> Iterable[DescribedConfig]:
    if resource.resource_type == _Resource.BROKER:
        await context.access.check(Operation.DESCRIBE_CONFIGS, Kind.CLUSTER)
        return _broker_configs(context, resource.resource_name)
    if resource.resource_type != _Resource.TOPIC:
        raise Refused(ErrorCode.INVALID_REQUEST, "only topics and brokers have settings")
    topic = await find_allowed(context, Operation.DESCRIBE_CONFIGS, resource.resource_name)
    return [_topic_config(topic.configs, name, request) for name in CONFIGS]


def _topic_config(configs: Mapping[str, str], name: str, request: DescribeConfigsRequest) -> DescribedConfig:
    known = CONFIGS[name]
    synonyms = [ConfigSynonym(name=name, value=known.default, source=_Source.DEFAULT)]
    if name in configs:
        synonyms.insert(0, ConfigSynonym(name=name, value=configs[name], source=_Source.TOPIC))
    return DescribedConfig(
        name=name,
        value=value_of(configs, name),
        config_source=source_of(configs, name),
        synonyms=tuple(synonyms) if request.include_synonyms else (),
        config_type=known.type,
        documentation=known.documentation if request.include_documentation else None,
    )


def _broker_configs(context: Context, name: str) -> Iterable[DescribedConfig]:
    """What a gateway can say about itself in the words of a broker; all of it is in its configuration file."""
    if name == "":
        return []  # defaults of all brokers that could be changed while they run: there are none
    if not name.isdecimal() or int(name) not in {broker.node_id for broker in context.cluster.live()}:
        raise Refused(ErrorCode.INVALID_REQUEST, f"there is no broker {name}")
    broker = next(each for each in context.cluster.live() if each.node_id == int(name))
    address = f"{_protocol(context)}://{broker.host}:{broker.port}"
    return [
        DescribedConfig(
            name=key,
            value=value,
            read_only=True,
            config_source=_Source.STATIC_BROKER,
            config_type=kind,
            documentation=None,
        )
        for key, value, kind in _broker_settings(context, name, address)
    ]


def _broker_settings(context: Context, name: str, address: str) -> list[tuple[str, str, ConfigType]]:
    options = context.options
    return [
        ("advertised.listeners", address, ConfigType.STRING),
        ("listeners", address, ConfigType.STRING),
        ("auto.create.topics.enable", str(options.auto_create_topics).lower(), ConfigType.BOOLEAN),
        ("broker.id", name, ConfigType.INT),
        ("node.id", name, ConfigType.INT),
        ("connections.max.idle.ms", str(round(options.idle_timeout_s * 1000)), ConfigType.LONG),
        ("default.replication.factor", "1", ConfigType.INT),
        ("delete.topic.enable", "true", ConfigType.BOOLEAN),
        ("fetch.max.bytes", str(options.max_fetch_bytes), ConfigType.INT),
        ("inter.broker.protocol.version", "4.0-IV3", ConfigType.STRING),
        ("log.cleanup.policy", CONFIGS["cleanup.policy"].default, ConfigType.LIST),
        ("log.dirs", "postgresql", ConfigType.STRING),
        ("log.retention.bytes", CONFIGS["retention.bytes"].default, ConfigType.LONG),
        ("log.retention.ms", CONFIGS["retention.ms"].default, ConfigType.LONG),
        ("max.connections", str(options.max_connections), ConfigType.INT),
        ("message.max.bytes", CONFIGS["max.message.bytes"].default, ConfigType.INT),
        ("min.insync.replicas", "1", ConfigType.INT),
        ("num.partitions", str(options.default_partitions), ConfigType.INT),
        ("offsets.topic.replication.factor", "1", ConfigType.INT),
        ("socket.request.max.bytes", str(options.max_frame_bytes), ConfigType.INT),
        ("transaction.max.timeout.ms", str(context.transactions.settings.max_timeout_ms), ConfigType.INT),
        ("transaction.state.log.replication.factor", "1", ConfigType.INT),
        ("unclean.leader.election.enable", "false", ConfigType.BOOLEAN),
    ]


def _protocol(context: Context) -> str:
    is_secret = context.options.tls_cert is not None
    if context.options.is_guarded:
        return "SASL_SSL" if is_secret else "SASL_PLAINTEXT"
    return "SSL" if is_secret else "PLAINTEXT"


def _not_described(resource: DescribeConfigsResource, code: ErrorCode, message: str | None) -> DescribedConfigs:
    return DescribedConfigs(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _describe_failed(request: DescribeConfigsRequest, code: ErrorCode, message: str | None) -> Body:
    return DescribeConfigsResponse(results=tuple(_not_described(each, code, message) for each in request.resources))


async def incremental_alter_configs(
    context: Context, header: RequestHeader, request: IncrementalAlterConfigsRequest
) -> Body:
    """Change single settings of topics."""
    return IncrementalAlterConfigsResponse(
        responses=tuple([await _changed(context, each, request.validate_only) for each in request.resources])
    )


async def _changed(
    context: Context, resource: IncrementalAlterConfigsResource, validate_only: bool
) -> IncrementallyAlteredResource:
    code, message = ErrorCode.NONE, None
    try:
        topic = await _alterable(context, resource.resource_type, resource.resource_name)
        wanted = dict(topic.configs)
        for change in _distinct(resource.configs):
            _apply(wanted, change)
        await _store(context, topic.name, topic.configs, wanted, validate_only)
    except Refused as refused:
        code, message = refused.code, refused.message
    return IncrementallyAlteredResource(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _distinct(changes: tuple[IncrementallyAlterableConfig, ...]) -> tuple[IncrementallyAlterableConfig, ...]:
    if len({change.name for change in changes}) != len(changes):
        raise Refused(ErrorCode.INVALID_REQUEST, "a setting is changed twice")
    return changes


def _apply(configs: dict[str, str], change: IncrementallyAlterableConfig) -> None:
    name = change.name
    if name not in CONFIGS:
        raise Refused(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    if change.config_operation == _Change.DELETE:
        configs.pop(name, None)
        return
    if change.value is None:
        raise Refused(ErrorCode.INVALID_CONFIG, f"{name} has no value")
    if change.config_operation == _Change.SET:
        configs[name] = change.value
        return
    if change.config_operation not in (_Change.APPEND, _Change.SUBTRACT):
        raise Refused(ErrorCode.INVALID_REQUEST, f"there is no change {change.config_operation}")
    if CONFIGS[name].type is not ConfigType.LIST:
        raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is not a list")
    configs[name] = _edited(value_of(configs, name), change)


def _edited(value: str, change: IncrementallyAlterableConfig) -> str:
    items, named = _items(value), _items(change.value or "")
    if change.config_operation == _Change.APPEND:
        return ",".join([*items, *(item for item in named if item not in items)])
    return ",".join(item for item in items if item not in named)


def _items(value: str) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()]


async def _alterable(context: Context, resource_type: int, name: str) -> Topic:
    """The topic whose settings the client may change. Raises `Refused`."""
    if resource_type != _Resource.TOPIC:
        await context.access.check(Operation.ALTER_CONFIGS, Kind.CLUSTER)
        raise Refused(
            ErrorCode.INVALID_REQUEST, "only topics can be changed here; a gateway's settings are in its configuration"
        )
    return await find_allowed(context, Operation.ALTER_CONFIGS, name)


async def _store(
    context: Context, name: str, before: Mapping[str, str], wanted: Mapping[str, str], validate_only: bool
) -> None:
    changed = {key: value for key, value in wanted.items() if before.get(key) != value}
    await context.store.catalog.alter_configs(name, changed, set(before) - set(wanted), validate_only=validate_only)


async def alter_configs(context: Context, header: RequestHeader, request: AlterConfigsRequest) -> Body:
    """Replace all settings of topics."""
    return AlterConfigsResponse(
        responses=tuple([await _replaced(context, each, request.validate_only) for each in request.resources])
    )


async def _replaced(context: Context, resource: AlterConfigsResource, validate_only: bool) -> AlteredResource:
    code, message = ErrorCode.NONE, None
    try:
        topic = await _alterable(context, resource.resource_type, resource.resource_name)
        wanted = {config.name: config.value for config in resource.configs if config.value is not None}
        await _store(context, topic.name, topic.configs, wanted, validate_only)
    except Refused as refused:
        code, message = refused.code, refused.message
    return AlteredResource(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _incremental_failed(request: IncrementalAlterConfigsRequest, code: ErrorCode, message: str | None) -> Body:
    return IncrementalAlterConfigsResponse(
        responses=tuple(
            IncrementallyAlteredResource(
                error_code=code,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each in request.resources
        )
    )


def _alter_failed(request: AlterConfigsRequest, code: ErrorCode, message: str | None) -> Body:
    return AlterConfigsResponse(
        responses=tuple(
            AlteredResource(
                error_code=code,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each in request.resources
        )
    )


HANDLERS: Handlers = {
    DescribeConfigsRequest: describe_configs,
    IncrementalAlterConfigsRequest: incremental_alter_configs,
    AlterConfigsRequest: alter_configs,
}
FAILURES: Failures = {
    DescribeConfigsRequest: _describe_failed,
    IncrementalAlterConfigsRequest: _incremental_failed,
    AlterConfigsRequest: _alter_failed,
}
