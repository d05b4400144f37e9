"""Members of classic groups: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from headgate.gateway.access import Kind, Operation
from headgate.gateway.cluster import Broker
from headgate.gateway.context import Context, Failures, Handlers
from headgate.gateway.groups import Client
from headgate.wire.kafka import Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.membership import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    SyncGroupRequest,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["FAILURES", "HANDLERS", "client_of"]

_GROUP, _TRANSACTION = 0, 1  # what a key can be
_SEVERAL_KEYS, _SEVERAL_MEMBERS = 4, 3  # the first versions of FindCoordinator and LeaveGroup that take several


def client_of(context: Context, header: RequestHeader) -> Client:
    """Return the client of a request, as groups remember it; addresses are written as Kafka writes them."""
    host = context.session.peer.rpartition(":")[0]
    return Client(header.client_id or "", f"/{host}", header.api_version)


async def find_coordinator(context: Context, header: RequestHeader, request: FindCoordinatorRequest) -> Body:
    """Answer FindCoordinator: the gateway that coordinates each group."""
    if header.api_version >= _SEVERAL_KEYS:
        found = [await _find(context, key, request.key_type) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=tuple(found))
    one = await _find(context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


async def _find(context: Context, key: str, key_type: int) -> Coordinator:
    try:
        broker = await _coordinator(context, key, key_type)
    except Refused as refused:
        # Nobody can be asked, so "not the coordinator" would make no sense to the client.
        is_outage = refused.code is ErrorCode.NOT_COORDINATOR
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE if is_outage else refused.code, refused.message)
    return Coordinator(key=key, node_id=broker.node_id, host=broker.host, port=broker.port, error_message=None)


async def _coordinator(context: Context, key: str, key_type: int) -> Broker:
    if key_type == _TRANSACTION:
        await context.access.check(Operation.DESCRIBE, Kind.TRANSACTIONAL_ID, key)
        return context.transactions.find(key)
    if key_type != _GROUP:
        raise Refused(ErrorCode.INVALID_REQUEST, f"no such type of key: {key_type}")
    await context.access.check(Operation.DESCRIBE, Kind.GROUP, key)
    return await context.coordinator.find(key)


def _nobody(key: str, code: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=message)


def _nobody_at_all(request: FindCoordinatorRequest, code: ErrorCode, message: str | None) -> Body:
    return FindCoordinatorResponse(
        error_code=code,
        error_message=message,
        node_id=-1,
        port=-1,
        coordinators=tuple(_nobody(key, code, message) for key in request.coordinator_keys),
    )


async def join_group(context: Context, header: RequestHeader, request: JoinGroupRequest) -> Body:
    """Enter a group; the answer comes with its next generation."""
    return await context.coordinator.join(request, client_of(context, header))


def _not_joined(request: JoinGroupRequest, code: ErrorCode, message: str | None) -> Body:
    return JoinGroupResponse(error_code=code, member_id=request.member_id)


async def sync_group(context: Context, header: RequestHeader, request: SyncGroupRequest) -> Body:
    """Get the assignment; the answer comes when the leader has sent it."""
    return await context.coordinator.sync(request)


async def heartbeat(context: Context, header: RequestHeader, request: HeartbeatRequest) -> Body:
    """A member lives."""
    await context.coordinator.heartbeat(request)
    return HeartbeatResponse()


async def leave_group(context: Context, header: RequestHeader, request: LeaveGroupRequest) -> Body:
    """Members go."""
    if header.api_version < _SEVERAL_MEMBERS:
        (code,) = await context.coordinator.leave(request.group_id, [LeavingMember(request.member_id)])
        return LeaveGroupResponse(error_code=code)
    codes = await context.coordinator.leave(request.group_id, request.members)
    return LeaveGroupResponse(
        members=tuple(
            LeftMember(each.member_id, each.group_instance_id, code)
            for each, code in zip(request.members, codes, strict=True)
        )
    )


HANDLERS: Handlers = {
    FindCoordinatorRequest: find_coordinator,
    JoinGroupRequest: join_group,
    SyncGroupRequest: sync_group,
    HeartbeatRequest: heartbeat,
    LeaveGroupRequest: leave_group,
}
FAILURES: Failures = {FindCoordinatorRequest: _nobody_at_all, JoinGroupRequest: _not_joined}
