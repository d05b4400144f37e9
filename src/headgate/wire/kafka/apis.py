"""Every API that this package knows, by its key: Apache Kafka protocol guide, "Api Keys"."""

from __future__ import annotations

from typing import Any

from headgate.wire.kafka.api import Api
from headgate.wire.kafka.messages import (
    cluster,
    commits,
    configs,
    consumer_groups,
    fetch,
    groups,
    leadership,
    membership,
    offsets,
    produce,
    security,
    session,
    storage,
    topics,
    transactions,
)

__all__ = ["APIS", "find_api"]

_FAMILIES = (
    cluster,
    commits,
    configs,
    consumer_groups,
    fetch,
    groups,
    leadership,
    membership,
    offsets,
    produce,
    security,
    session,
    storage,
    topics,
    transactions,
)

APIS: dict[int, Api[Any, Any]] = {
    api.key: api
    for api in sorted(
        (value for family in _FAMILIES for value in vars(family).values() if isinstance(value, Api)),
        key=lambda api: api.key,
    )
}


def find_api(key: int, version: int) -> Api[Any, Any] | None:
    """The API, if this version of it is known."""
    api = APIS.get(key)
    return api if api and api.knows(version) else None
