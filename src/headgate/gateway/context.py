"""What a handler knows besides its request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from headgate.gateway.options import GatewayOptions
from headgate.wire.kafka import Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode

if TYPE_CHECKING:
    from headgate.gateway.budget import Budget
    from headgate.gateway.cluster import Cluster
    from headgate.gateway.groups import Coordinator
    from headgate.gateway.metrics import Metrics
    from headgate.gateway.sasl import Dialogue, Users
    from headgate.gateway.store import Store

__all__ = ["Context", "Failure", "Failures", "Handler", "Handlers", "Services", "Session"]


@dataclass(slots=True)
class Session:
    """One connection, as far as handlers may know it."""

    peer: str
    user: str | None = None
    client_software: str = ""
    dialogue: Dialogue | None = None  # the SASL exchange that is going on
    is_closing: bool = False  # close the connection as soon as the answer has left
    # Requests that append look topics up first, which may wait; they enqueue one after the other all the same.
    appending: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class Services:
    """What all connections of a gateway share."""

    store: Store
    cluster: Cluster
    coordinator: Coordinator
    options: GatewayOptions
    users: Users
    budget: Budget
    metrics: Metrics


@dataclass(frozen=True, slots=True)
class Context:
    """Handed to every handler: what the gateway has, and who is asking."""

    services: Services
    session: Session

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
    def options(self) -> GatewayOptions:
        return self.services.options

    @property
    def metrics(self) -> Metrics:
        return self.services.metrics


Handler: TypeAlias = Callable[[Context, RequestHeader, Any], Awaitable[Body | None]]
"""Answers a request; `None` means that the protocol wants no answer. May raise `Refused`."""

Handlers: TypeAlias = dict[type[Body], Handler]

Failure: TypeAlias = Callable[[Any, ErrorCode, str | None], Body]
"""The answer to a request that failed as a whole, for responses that have no error code at their top."""

Failures: TypeAlias = dict[type[Body], Failure]
