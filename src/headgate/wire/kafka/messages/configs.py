"""Settings of topics and brokers.

Specification: Apache Kafka protocol guide, "The Messages"; KIP-133, KIP-339 (changes of single keys).
"""

from __future__ import annotations

from typing import Annotated

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.schema import Body, Bool, Int8, Int16, Int32, String, since

__all__ = [
    "ALTER_CONFIGS",
    "DESCRIBE_CONFIGS",
    "INCREMENTAL_ALTER_CONFIGS",
    "LIST_CONFIG_RESOURCES",
    "AlterConfigsRequest",
    "AlterConfigsResource",
    "AlterConfigsResponse",
    "AlterableConfig",
    "AlteredResource",
    "ConfigResource",
    "ConfigSynonym",
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResponse",
    "DescribedConfig",
    "DescribedConfigs",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResource",
    "IncrementalAlterConfigsResponse",
    "IncrementallyAlterableConfig",
    "IncrementallyAlteredResource",
    "ListConfigResourcesRequest",
    "ListConfigResourcesResponse",
]


class DescribeConfigsResource(Body, frozen=True):
    """A topic or broker; null keys mean all."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: tuple[String, ...] | None = ()


class DescribeConfigsRequest(Body, frozen=True):
    """Ask for settings of topics or brokers."""

    resources: tuple[DescribeConfigsResource, ...] = ()
    include_synonyms: Bool = False
    include_documentation: Annotated[Bool, since(3)] = False  # KIP-569


class ConfigSynonym(Body, frozen=True):
    """Where a value may come from."""

    name: String = ""
    value: String | None = ""
    source: Int8 = 0


class DescribedConfig(Body, frozen=True):
    """A setting."""

    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    config_type: Annotated[Int8, since(3)] = 0
    documentation: Annotated[String | None, since(3)] = ""


class DescribedConfigs(Body, frozen=True):
    """Settings of one topic or broker."""

    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[DescribedConfig, ...] = ()


class DescribeConfigsResponse(Body, frozen=True):
    """The settings."""

    throttle_time_ms: Int32 = 0
    results: tuple[DescribedConfigs, ...] = ()


class IncrementallyAlterableConfig(Body, frozen=True):
    """A change: 0 set, 1 delete, 2 append, 3 subtract."""

    name: String = ""
    config_operation: Int8 = 0
    value: String | None = ""


class IncrementalAlterConfigsResource(Body, frozen=True):
    """A topic or broker."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[IncrementallyAlterableConfig, ...] = ()


class IncrementalAlterConfigsRequest(Body, frozen=True):
    """Change single settings."""

    resources: tuple[IncrementalAlterConfigsResource, ...] = ()
    validate_only: Bool = False


class IncrementallyAlteredResource(Body, frozen=True):
    """The answer for one topic or broker."""

    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class IncrementalAlterConfigsResponse(Body, frozen=True):
    """Which changes were made."""

    throttle_time_ms: Int32 = 0
    responses: tuple[IncrementallyAlteredResource, ...] = ()


class AlterableConfig(Body, frozen=True):
    """A setting."""

    name: String = ""
    value: String | None = ""


class AlterConfigsResource(Body, frozen=True):
    """A topic or broker."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[AlterableConfig, ...] = ()


class AlterConfigsRequest(Body, frozen=True):
    """Replace all settings."""

    resources: tuple[AlterConfigsResource, ...] = ()
    validate_only: Bool = False


class AlteredResource(Body, frozen=True):
    """The answer for one topic or broker."""

    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(Body, frozen=True):
    """Which settings were replaced."""

    throttle_time_ms: Int32 = 0
    responses: tuple[AlteredResource, ...] = ()


class ListConfigResourcesRequest(Body, frozen=True):
    """Ask what has settings; version 0 asks for client metrics, and none named means all."""

    resource_types: Annotated[tuple[Int8, ...], since(1)] = ()


class ConfigResource(Body, frozen=True):
    """Something that has settings."""

    resource_name: String = ""
    resource_type: Annotated[Int8, since(1)] = 16


class ListConfigResourcesResponse(Body, frozen=True):
    """What has."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: tuple[ConfigResource, ...] = ()


LIST_CONFIG_RESOURCES = Api(74, ListConfigResourcesRequest, ListConfigResourcesResponse, first=0, last=1, flexible=0)
DESCRIBE_CONFIGS = Api(32, DescribeConfigsRequest, DescribeConfigsResponse, first=1, last=4, flexible=4)
INCREMENTAL_ALTER_CONFIGS = Api(
    44, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, first=0, last=1, flexible=1
)
ALTER_CONFIGS = Api(33, AlterConfigsRequest, AlterConfigsResponse, first=0, last=2, flexible=2)
