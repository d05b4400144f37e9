"""Pools of connections for asyncio. In a module of its own: few programs have one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool

from headgate.postgres.connect import CONNECT_TIMEOUT_S, connection_string

__all__ = ["make_pool"]

C = TypeVar("C", bound=psycopg.AsyncConnection[Any])


def make_pool(
    kind: type[C],
    url: str,
    name: str,
    *,
    size: int,
    configure: Callable[[C], Awaitable[None]],
    prepare_threshold: int | None = 5,
    connect_timeout_s: int = CONNECT_TIMEOUT_S,
    timeout_s: float = 30.0,
) -> AsyncConnectionPool[C]:
    """A pool of one to `size` connections of this class in autocommit mode; the caller opens it."""
    return AsyncConnectionPool(
        connection_string(url, name, None, connect_timeout_s),
        min_size=1,
        max_size=size,
        connection_class=kind,
        configure=configure,
        kwargs={"autocommit": True, "prepare_threshold": prepare_threshold},
        timeout=timeout_s,
        open=False,
    )
