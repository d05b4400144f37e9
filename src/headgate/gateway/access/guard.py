"""What the client of one connection may do: what handlers ask."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.gateway.access.acls import CLUSTER_NAME, OPERATIONS_OF, Kind, Operation, host_of
from headgate.gateway.access.authority import Authority
from headgate.gateway.access.rights import RIGHTS, Need
from headgate.gateway.outage import NO_DATABASE
from headgate.wire.kafka import Body
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.produce import InitProducerIdRequest
from headgate.wire.kafka.refusal import Refused

if TYPE_CHECKING:
    from headgate.gateway.audit import Audit
    from headgate.gateway.context import Session

__all__ = ["REFUSED_AS", "Guard"]

REFUSED_AS = {
    Kind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Kind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Kind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Kind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


# While PostgreSQL does not answer nobody is told that he may not: clients try again after these codes, and no others.
_UNDECIDED_AS = {
    Kind.TOPIC: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Kind.GROUP: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    Kind.TRANSACTIONAL_ID: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Guard:
    """An authority's decisions for one client. If PostgreSQL is needed and does not answer, every question raises."""

    _authority: Authority
    _audit: Audit
    _session: Session
    _api: str

    @property
    def state(self) -> object:
        """Something that is another thing as soon as the client may have other rights."""
        return self._authority.state

    async def allowed(
        self, operation: Operation, kind: Kind, names: Collection[str], *, is_asked: bool = True
    ) -> Collection[str]:
        """Return the names of a kind for which the client may do something.

        The others are to be refused, which is noted, unless the client has not asked for them by their names.
        """
        if self._authority.is_open:
            return names
        found = await self._ask(operation, kind, names)
        if is_asked and len(found) < len(names):
            for name in names:
                if name not in found:
                    self._note(operation, kind, name)
        return found

    async def may(self, operation: Operation, kind: Kind, name: str = CLUSTER_NAME) -> bool:
        """Tell whether the client may do something with one thing."""
        return self._authority.is_open or name in await self.allowed(operation, kind, (name,), is_asked=False)

    async def check(self, operation: Operation, kind: Kind, name: str = CLUSTER_NAME) -> None:
        """Raise `Refused` with the code of its kind if the client may not do something."""
        if not await self.may(operation, kind, name):
            self._note(operation, kind, name)
            raise refusal(kind)

    async def check_request(self, request: Body, version: int) -> None:
        """Raise `Refused` if a request takes rights, as a whole, that the client does not have."""
        rights = RIGHTS[type(request)]
        if self._authority.is_open:
            return
        for need in rights.whole:
            name = need.name(request, version)
            if name is not None and not await self._has(need, name, request):
                self._note(need.operations[0], need.kind, name)
                raise refusal(need.kind)

    async def operations(self, kind: Kind, name: str = CLUSTER_NAME) -> int:
        """Return what the client may do with something, as the bits of the protocol."""
        every = OPERATIONS_OF[kind]
        if not self._authority.is_open:
            every = tuple([each for each in every if await self._ask(each, kind, (name,))])
        return sum(1 << operation for operation in every)

    async def _ask(self, operation: Operation, kind: Kind, names: Collection[str]) -> Collection[str]:
        session = self._session
        try:
            return await self._authority.allowed(session.principal, host_of(session.address), operation, kind, names)
        except NO_DATABASE as outage:
            if kind not in _UNDECIDED_AS:
                raise
            raise Refused(_UNDECIDED_AS[kind], "the database does not answer") from outage

    async def _has(self, need: Need, name: str, request: Body) -> bool:
        for operation in need.operations:
            if await self.may(operation, need.kind, name):
                return True
        # Whoever may write to some topic may have a producer's number.
        if type(request) is not InitProducerIdRequest or need.kind is not Kind.CLUSTER:
            return False
        session = self._session
        return await self._authority.writes_somewhere(session.principal, host_of(session.address))

    def _note(self, operation: Operation, kind: Kind, name: str) -> None:
        resource = f"{kind.name.replace('_', ' ').lower()} {name}"
        self._audit.denied(self._session, api=self._api, operation=operation.name, resource=resource)


def refusal(kind: Kind) -> Refused:
    """Return the answer to somebody who may not do something with things of a kind."""
    return Refused(REFUSED_AS[kind], "the client may not do this; see the gateway's ACLs or roles")
