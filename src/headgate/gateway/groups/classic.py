"""Classic groups: the members agree on a leader, and the leader assigns the partitions.

Requests of members are here; how they lead from one generation to the next is in `generations`. The bytes that members
and leader exchange are not read.

Static members (KIP-345) keep their place by their instance id: one that comes back takes the place over under a new
member id, and gets its old assignment without a rebalance. New members learn their id first and join with it then
(KIP-394), so that a join that is repeated does not leave a ghost.
"""

from __future__ import annotations

from uuid import uuid4

import msgspec

from headgate.gateway.groups.generations import ClassicMember, Generations, Phase, common_protocols
from headgate.gateway.groups.group import Client, Ticket
from headgate.gateway.groups.settings import GroupSettings
from headgate.gateway.groups.subscription import subscribed_topics
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.membership import (
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["ClassicGroup", "ClassicMember", "Phase"]

_NAMES_ITSELF = 4  # JoinGroup's first version in which a new member joins twice, the second time with its id
_MAX_PREFIX = 200  # characters of a client's name that go into its member id
_MAY_SKIP = 9  # JoinGroup's first version in which a leader can be told not to assign


class ClassicGroup(Generations):
    """A classic group, as a state machine."""

    # --- requests ---------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, client: Client, ticket: Ticket, now: float) -> None:
        """Enter the group, or enter its next generation. The answer may come later."""
        self._check_join(request)
        if request.member_id:
            self._join_again(request, client, ticket, now)
        elif request.group_instance_id in self._instances:
            self._replace(request, client, ticket, now)
        else:
            self._join_first(request, client, ticket, now)
        self._complete_if_ready(now)

    def withdraw(self, ticket: Ticket, now: float) -> None:
        """Cancel a join whose client has hung up. A new member is gone; others may come back in their session."""
        member_id = next((key for key, waiting in self._joining.items() if waiting is ticket), None)
        if member_id is None:
            return
        del self._joining[member_id]
        member = self.members[member_id]
        if member_id in self._newcomers:
            self._expel(member, now)
        else:
            self._see(member, now)
        self._complete_if_ready(now)

    def sync(self, request: SyncGroupRequest, ticket: Ticket, now: float) -> None:
        """Wait for the assignment; the leader brings it."""
        member = self._find(request.member_id, request.group_instance_id)
        self._check_generation(request.generation_id)
        named = (request.protocol_type or self.protocol_type, request.protocol_name or self.protocol)
        if named != (self.protocol_type, self.protocol):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group uses {self.protocol!r}")
        if self.phase is Phase.PREPARING:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
        self._see(member, now)
        if self.phase is Phase.STABLE:
            self._answer_sync(ticket, member)
            return
        self._unsynced.discard(member.member_id)
        self._park(self._syncing, member.member_id, ticket, SyncGroupResponse)
        if member.member_id == self.leader:
            self._assign({each.member_id: each.assignment for each in request.assignments}, now)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        """A member lives. One that should join again is told so by `Refused`."""
        member = self._find(member_id, instance_id)
        self._check_generation(generation)
        self._see(member, now)
        if self.phase is Phase.PREPARING:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, member_id: str, instance_id: str | None, now: float) -> None:
        """Go. An administrator may name a static member by its instance id alone."""
        if member_id in self._pending:
            del self._pending[member_id]
        else:
            named = self._instances.get(instance_id, "") if instance_id and not member_id else member_id
            self._expel(self._find(named, instance_id), now)
        self._complete_if_ready(now)

    def check_commit(self, member_id: str, instance_id: str | None, epoch: int, version: int, now: float) -> None:
        if epoch < 0 and self.phase is Phase.EMPTY:
            return  # a consumer that assigns its partitions itself, or an administrator
        if epoch < 0 and not member_id and instance_id is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members; only they may commit")
        member = self._find(member_id, instance_id)
        self._check_generation(epoch)
        if self.phase is Phase.COMPLETING:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
        self._see(member, now)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Everybody may: members of classic groups ask before they know their generation."""

    def subscribed(self) -> set[str]:
        if self.protocol_type != "consumer":
            return set()
        return {
            topic for member in self.members.values() for topic in subscribed_topics(member.metadata(self.protocol))
        }

    # --- joining ----------------------------------------------------------------------------------------------------

    def _check_join(self, request: JoinGroupRequest) -> None:
        settings = self.settings
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            raise Refused(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"must be {settings.min_session_timeout_ms} to {settings.max_session_timeout_ms} ms",
            )
        if sum(len(each.name) + len(each.metadata) for each in request.protocols) > settings.max_member_bytes:
            raise Refused(ErrorCode.INVALID_REQUEST, "the subscription is too long")
        same = request.member_id or self._instances.get(request.group_instance_id or "")
        others = [member for key, member in self.members.items() if key != same]
        if not request.protocol_type or not request.protocols:
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "a member needs a protocol type and a protocol")
        if others and request.protocol_type != self.protocol_type:
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group's type is {self.protocol_type!r}")
        if others and not common_protocols(others) & {each.name for each in request.protocols}:
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no protocol that all members know")

    def _join_first(self, request: JoinGroupRequest, client: Client, ticket: Ticket, now: float) -> None:
        if len(self.members) + len(self._pending) >= self.settings.max_members:
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"{self.settings.max_members} members are there")
        member_id = _new_id(request.group_instance_id or client.id)
        if request.group_instance_id is None and client.version >= _NAMES_ITSELF:
            self._pending[member_id] = now + request.session_timeout_ms / 1000
            required = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            self._answers.append((ticket, required))
            return
        self._add(_member(request, member_id, client, self.settings), request.protocol_type, ticket, now)

    def _join_again(self, request: JoinGroupRequest, client: Client, ticket: Ticket, now: float) -> None:
        if self._pending.pop(request.member_id, None) is not None:
            member = _member(request, request.member_id, client, self.settings)
            self._add(member, request.protocol_type, ticket, now)
            return
        old = self._find(request.member_id, request.group_instance_id)
        member = _member(request, old.member_id, client, self.settings)
        is_same = old.protocols == member.protocols
        settled = self.phase is Phase.COMPLETING or (self.phase is Phase.STABLE and old.member_id != self.leader)
        if settled and is_same:
            # The member did not get its answer, or joins again without need.
            self._see(old, now)
            self._answers.append((ticket, self._joined(old)))
            return
        member.assignment = old.assignment
        self._put(member)
        self._now_at.protocol_type = request.protocol_type
        self._park(self._joining, member.member_id, ticket, JoinGroupResponse)
        self._see(member, now)
        if self.phase is not Phase.PREPARING:
            self._prepare(now)

    def _add(self, member: ClassicMember, protocol_type: str, ticket: Ticket, now: float) -> None:
        self._put(member)
        self._newcomers.add(member.member_id)
        self._now_at.protocol_type = protocol_type
        self._joining[member.member_id] = ticket
        self._see(member, now)
        if self.phase is not Phase.PREPARING:
            self._prepare(now)
        elif self._gather_until is not None:
            self._gather_until = min(now + self.settings.initial_rebalance_delay_s, self._join_by)

    def _replace(self, request: JoinGroupRequest, client: Client, ticket: Ticket, now: float) -> None:
        """A static member comes back: it takes its place over from the process it was before."""
        old = self.members[self._instances[request.group_instance_id or ""]]
        member = _member(request, _new_id(request.group_instance_id or ""), client, self.settings)
        member.assignment = old.assignment
        old_leader = self.leader
        for waiting, response in ((self._joining, JoinGroupResponse), (self._syncing, SyncGroupResponse)):
            self._refuse(waiting, old.member_id, response, ErrorCode.FENCED_INSTANCE_ID)
        self._unsynced.discard(old.member_id)
        self.members = {key: each for key, each in self.members.items() if key != old.member_id}
        self._touched.add(old.member_id)
        self._deadlines.pop(old.member_id, None)
        self._put(member)
        self._see(member, now)
        if old_leader == old.member_id:
            self._now_at.leader = member.member_id
        if self.phase is Phase.STABLE and self._select() == self.protocol:
            self._is_unsaved = True
            self._answers.append((ticket, self._joined_again(member, old_leader, client.version)))
            return
        self._joining[member.member_id] = ticket
        if self.phase is not Phase.PREPARING:
            self._prepare(now)

    def _joined_again(self, member: ClassicMember, old_leader: str | None, version: int) -> JoinGroupResponse:
        """For a static member that came back. A leader must not assign anew: nobody else would learn of it.

        One that cannot be told to skip that is told that its former self leads.
        """
        joined = self._joined(member)
        if member.member_id != self.leader:
            return joined
        if version >= _MAY_SKIP:
            return msgspec.structs.replace(joined, skip_assignment=True)
        return msgspec.structs.replace(joined, leader=old_leader, members=())

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise Refused(ErrorCode.ILLEGAL_GENERATION, f"the group is at generation {self.generation}")


def _new_id(prefix: str) -> str:
    return f"{prefix[:_MAX_PREFIX]}-{uuid4()}"


def _member(request: JoinGroupRequest, member_id: str, client: Client, settings: GroupSettings) -> ClassicMember:
    patience = request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
    return ClassicMember(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=client.id,
        client_host=client.host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=min(patience, settings.max_rebalance_timeout_ms),
        protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
    )
