"""The APIs that the gateway serves: a table from requests to the functions that answer them.

A family of APIs is a module with a table `HANDLERS`, and a table `FAILURES` for those of its responses that have no
error code at their top. ApiVersions offers what is in the table, no more and no less.
"""

from __future__ import annotations

from headgate.gateway.context import Failures, Handlers
from headgate.gateway.handlers import (
    absent,
    acls,
    cluster,
    commits,
    configs,
    consumer_groups,
    fetch,
    groups,
    membership,
    offsets,
    produce,
    quotas,
    session,
    storage,
    topics,
    transactions,
    users,
)
from headgate.gateway.handlers.session import offering
from headgate.wire.kafka import APIS
from headgate.wire.kafka.messages.session import ApiVersionsRequest

__all__ = ["FAILURES", "HANDLERS"]

_FAMILIES = (
    session,
    cluster,
    produce,
    fetch,
    offsets,
    topics,
    configs,
    storage,
    membership,
    commits,
    groups,
    consumer_groups,
    transactions,
    users,
    acls,
    quotas,
    absent,
)

HANDLERS: Handlers = {request: handler for family in _FAMILIES for request, handler in family.HANDLERS.items()}
HANDLERS[ApiVersionsRequest] = offering(
    [api for api in APIS.values() if api.request in HANDLERS or api.request is ApiVersionsRequest]
)

FAILURES: Failures = {request: failure for family in _FAMILIES for request, failure in family.FAILURES.items()}
