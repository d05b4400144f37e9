"""What a handler knows besides its request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from headgate.gateway.access import Authority, Guard, Open
from headgate.gateway.fetch_sessions import FetchSession, FetchSessions
from headgate.gateway.options import GatewayOptions
from headgate.gateway.principal import ANONYMOUS, Principal
from headgate.gateway.quotas import Meter
from headgate.wire.kafka import Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode

if TYPE_CHECKING:
    from headgate.gateway.audit import Audit
    from headgate.gateway.budget import Budget
    from headgate.gateway.cluster import Cluster
    from headgate.gateway.groups import Coordinator
    from headgate.gateway.login import Dialogue, Logins
    from headgate.gateway.metrics import Metrics
    from headgate.gateway.store import Store
    from headgate.gateway.transactions import Transactions

__all__ = ["AnswerRoom", "Context", "Failure", "Failures", "Handler", "Handlers", "Services", "Session"]


LEAST_ANSWER_BYTES = 256 << 10


@dataclass(slots=True)
class Session:
    """One connection, as far as handlers may know it."""

    peer: str
    address: str = ""
    user: str | None = None
    client_software: str = ""
    mechanism: str = ""  # of SASL, as it was chosen
    has_certificate: bool = False  # which is all the login there was
    dialogue: Dialogue | None = None  # the SASL exchange that is going on
    is_proving: bool = False  # one of its messages is being looked at
    credential: tuple[str, str] | None = None  # the row of kafka.users that it logged in with: name and mechanism
    expires_at: float | None = None  # in the time of the event loop: what is asked later must be proven anew
    mute_s: float = 0.0  # for how long nothing more is to be done, once the next answer has left
    is_closing: bool = False  # close the connection as soon as the answer has left
    # Requests that append look topics up first, which may wait; they enqueue one after the other all the same.
    appending: asyncio.Lock = field(default_factory=asyncio.Lock)
    charged: int = 0  # of the budget, for an answer that is being made
    fetching: FetchSession | None = None

    @property
    def principal(self) -> Principal:
        """Return who the client is; `User:ANONYMOUS` on a gateway without users."""
        return ANONYMOUS if self.user is None else Principal(self.user)


@dataclass(frozen=True, slots=True)
class Services:
    """What all connections of a gateway share."""

    store: Store
    cluster: Cluster
    coordinator: Coordinator
    transactions: Transactions
    options: GatewayOptions
    logins: Logins
    budget: Budget
    metrics: Metrics
    audit: Audit
    fetch_sessions: FetchSessions = field(default_factory=FetchSessions)
    meter: Meter = field(default_factory=Meter)
    authority: Authority = field(default_factory=Open)


@dataclass(frozen=True, slots=True)
class AnswerRoom:
    """Memory for an answer, counted before the answer is made: many that are made at once would each find all of it."""

    _budget: Budget
    _session: Session

    def ask(self, wanted: int) -> int:
        """How much the answer may hold: less than is wanted when readers are slow and memory is short."""
        share = max(min(self._budget.free, self._budget.limit // 2) // 4, LEAST_ANSWER_BYTES)
        self._charge(min(wanted, share))
        return self._session.charged

    def keep(self, size: int) -> None:
        """Count the answer with `size` bytes; 0 while it waits for data."""
        self._charge(size - self._session.charged)

    def settle(self) -> int:
        """What was counted for it: whoever asks counts the answer itself from now on."""
        charged, self._session.charged = self._session.charged, 0
        return charged

    def _charge(self, size: int) -> None:
        self._session.charged += size
        if size < 0:
            self._budget.give_back(-size, self._session.address)
        else:
            self._budget.take(size, self._session.address)


@dataclass(frozen=True, slots=True)
class Context:
    """Handed to every handler: what the gateway has, and who is asking."""

    services: Services
    session: Session
    api: str = ""  # the name of what is asked

    @property
    def answer(self) -> AnswerRoom:
        return AnswerRoom(self.services.budget, self.session)

    @property
    def access(self) -> Guard:
        """Return what the client may do."""
        return Guard(self.services.authority, self.services.audit, self.session, self.api)

    @property
    def store(self) -> Store:
        return self.services.store

    @property
    def cluster(self) -> Cluster:
        return self.services.cluster

    @property
    def coordinator(self) -> Coordinator:
        return self.services.coordinator

    @property
    def transactions(self) -> Transactions:
        return self.services.transactions

    @property
    def options(self) -> GatewayOptions:
        return self.services.options

    @property
    def metrics(self) -> Metrics:
        return self.services.metrics

    @property
    def audit(self) -> Audit:
        return self.services.audit


Handler: TypeAlias = Callable[[Context, RequestHeader, Any], Awaitable[Body | None]]
"""Answers a request; `None` means that the protocol wants no answer. May raise `Refused`."""

Handlers: TypeAlias = dict[type[Body], Handler]

Failure: TypeAlias = Callable[[Any, ErrorCode, str | None], Body]
"""The answer to a request that failed as a whole, for responses that have no error code at their top."""

Failures: TypeAlias = dict[type[Body], Failure]
