"""Groups for administrators: ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

from headgate.gateway.access import Kind, Operation
from headgate.gateway.context import Context, Failures, Handlers
from headgate.gateway.groups import ClassicGroup
from headgate.wire.kafka import Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.groups import (
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["FAILURES", "HANDLERS", "NO_OPERATIONS"]

NO_OPERATIONS = -(2**31)
_SAYS_NOT_FOUND = 6  # DescribeGroups' first version in which a group that does not exist is an error


async def list_groups(context: Context, header: RequestHeader, request: ListGroupsRequest) -> Body:
    """The groups of this gateway; clients ask every gateway."""
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}
    found = await context.coordinator.groups()
    visible = {each.group_id for each in found}
    if not await context.access.may(Operation.DESCRIBE, Kind.CLUSTER):
        visible &= set(await context.access.allowed(Operation.DESCRIBE, Kind.GROUP, visible, is_asked=False))
    groups = [
        ListedGroup(each.group_id, each.protocol_type, each.state, each.kind)
        for each in found
        if each.group_id in visible
        and (not states or each.state.lower() in states)
        and (not kinds or each.kind in kinds)
    ]
    return ListGroupsResponse(groups=tuple(groups))


async def describe_groups(context: Context, header: RequestHeader, request: DescribeGroupsRequest) -> Body:
    """Classic groups with their members."""
    wants = request.include_authorized_operations
    groups = [await _described(context, header, group_id, wants) for group_id in request.groups]
    return DescribeGroupsResponse(groups=tuple(groups))


async def _described(context: Context, header: RequestHeader, group_id: str, wants_operations: bool) -> DescribedGroup:
    operations = NO_OPERATIONS
    try:
        await context.access.check(Operation.DESCRIBE, Kind.GROUP, group_id)
        if wants_operations:
            operations = await context.access.operations(Kind.GROUP, group_id)
        group = await context.coordinator.look(group_id)
        if not isinstance(group, ClassicGroup):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, "not a classic group")
    except Refused as refused:
        if refused.code is ErrorCode.GROUP_ID_NOT_FOUND and header.api_version < _SAYS_NOT_FOUND:
            return DescribedGroup(group_id=group_id, group_state="Dead", authorized_operations=operations)
        return DescribedGroup(
            error_code=refused.code, error_message=refused.message, group_id=group_id, group_state="Dead"
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol or "",
        members=_members(group),
        authorized_operations=operations,
    )


def _members(group: ClassicGroup) -> tuple[DescribedGroupMember, ...]:
    return tuple(
        DescribedGroupMember(
            member_id=each.member_id,
            group_instance_id=each.instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            member_metadata=each.metadata(group.protocol) if group.is_assigned else b"",
            member_assignment=each.assignment if group.is_assigned else b"",
        )
        for each in group.members.values()
    )


def _not_described(request: DescribeGroupsRequest, code: ErrorCode, message: str | None) -> Body:
    return DescribeGroupsResponse(
        groups=tuple(DescribedGroup(error_code=code, error_message=message, group_id=each) for each in request.groups)
    )


async def delete_groups(context: Context, header: RequestHeader, request: DeleteGroupsRequest) -> Body:
    """Forget groups without members."""
    return DeleteGroupsResponse(
        results=tuple([DeletedGroup(each, await _deleted(context, each)) for each in request.groups_names])
    )


async def _deleted(context: Context, group_id: str) -> ErrorCode:
    try:
        await context.access.check(Operation.DELETE, Kind.GROUP, group_id)
        await context.coordinator.delete(group_id)
    except Refused as refused:
        return refused.code
    return ErrorCode.NONE


def _not_deleted(request: DeleteGroupsRequest, code: ErrorCode, message: str | None) -> Body:
    return DeleteGroupsResponse(results=tuple(DeletedGroup(each, code) for each in request.groups_names))


HANDLERS: Handlers = {
    ListGroupsRequest: list_groups,
    DescribeGroupsRequest: describe_groups,
    DeleteGroupsRequest: delete_groups,
}
FAILURES: Failures = {DescribeGroupsRequest: _not_described, DeleteGroupsRequest: _not_deleted}
