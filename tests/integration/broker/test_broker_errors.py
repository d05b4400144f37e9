"""What a client raises when PostgreSQL refuses: errors of ours, with a kind and a remedy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from headgate.broker import BrokerClient, Message, Subscription
from headgate.model import AuthError, DataError, HeadgateError, UsageError

Call = Callable[[BrokerClient], Awaitable[object]]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda client: client.publish(Message("t" * 300, 1)), DataError),
        (lambda client: client.publish(Message("t", "\0")), DataError),
        (lambda client: client.send(999, Message("t", 1)), UsageError),
        (lambda client: client.subscribe(Subscription("nonsense(")), UsageError),
        (lambda client: client.subscribe(Subscription("pg_sleep(1) is null")), UsageError),
        (lambda client: client.register_fire_and_forget(Subscription("e.id")), UsageError),
    ],
    ids=["topic", "zero", "nobody", "syntax", "refused", "type"],
)
def test_what_is_refused_is_an_error_of_ours(database: str, call: Call, kind: type[HeadgateError]) -> None:
    async def story() -> None:
        async with BrokerClient(database, group="g") as client:
            with pytest.raises(HeadgateError) as raised:
                await call(client)
            assert type(raised.value) is kind
            assert raised.value.remedy
            await client.publish(Message("t", 1))  # and the next call works

    asyncio.run(story())


def test_who_lacks_a_right_is_told_which_call_gives_it(database: str) -> None:
    role = f"r{uuid4().hex[:8]}"
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(sql.SQL("create role {} login").format(sql.Identifier(role)))
        try:
            admin.execute(sql.SQL("grant usage on schema headgate to {}").format(sql.Identifier(role)))

            async def story() -> None:
                async with BrokerClient(make_conninfo(database, user=role), group="g") as client:
                    with pytest.raises(AuthError) as raised:
                        await client.publish(Message("t", 1))
                    assert "grant_usage" in raised.value.remedy

            asyncio.run(story())
        finally:
            admin.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
            admin.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))
