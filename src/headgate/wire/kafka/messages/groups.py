"""Groups, as an administrator sees them.

Specification: Apache Kafka protocol guide, "The Messages"; KIP-229 (DeleteGroups).
"""

from __future__ import annotations

from typing import Annotated

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.schema import Body, Bool, Bytes, Int16, Int32, String, since

__all__ = [
    "DELETE_GROUPS",
    "DESCRIBE_GROUPS",
    "LIST_GROUPS",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeletedGroup",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribedGroup",
    "DescribedGroupMember",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListedGroup",
]


class ListGroupsRequest(Body, frozen=True):
    """Ask for the groups, by state and type."""

    states_filter: Annotated[tuple[String, ...], since(4)] = ()  # KIP-518
    types_filter: Annotated[tuple[String, ...], since(5)] = ()  # KIP-848


class ListedGroup(Body, frozen=True):
    """A group."""

    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, since(4)] = ""
    group_type: Annotated[String, since(5)] = ""


class ListGroupsResponse(Body, frozen=True):
    """The groups."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    groups: tuple[ListedGroup, ...] = ()


class DescribeGroupsRequest(Body, frozen=True):
    """Ask for classic groups."""

    groups: tuple[String, ...] = ()
    include_authorized_operations: Annotated[Bool, since(3)] = False  # KIP-430


class DescribedGroupMember(Body, frozen=True):
    """A member, with its subscription and assignment as opaque bytes."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, since(4)] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Body, frozen=True):
    """A group with its members."""

    error_code: Int16 = 0
    error_message: Annotated[String | None, since(6)] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: Annotated[Int32, since(3)] = -2147483648


class DescribeGroupsResponse(Body, frozen=True):
    """The groups."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    groups: tuple[DescribedGroup, ...] = ()


class DeleteGroupsRequest(Body, frozen=True):
    """Delete empty groups."""

    groups_names: tuple[String, ...] = ()


class DeletedGroup(Body, frozen=True):
    """The answer for one group."""

    group_id: String = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(Body, frozen=True):
    """Which groups are gone."""

    throttle_time_ms: Int32 = 0
    results: tuple[DeletedGroup, ...] = ()


LIST_GROUPS = Api(16, ListGroupsRequest, ListGroupsResponse, first=0, last=5, flexible=3)
DESCRIBE_GROUPS = Api(15, DescribeGroupsRequest, DescribeGroupsResponse, first=0, last=6, flexible=5)
DELETE_GROUPS = Api(42, DeleteGroupsRequest, DeleteGroupsResponse, first=0, last=2, flexible=2)
