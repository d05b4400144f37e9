"""Publish in a transaction, and handle it reliably: python examples/broker.py postgresql://localhost/shop"""

import asyncio
import sys
from collections.abc import Sequence

import psycopg

from headgate.broker import BrokerClient, Event, Message, Subscription, install, publish


async def main(url: str) -> None:
    with psycopg.connect(url) as connection:
        install(connection)

    async def greet(events: Sequence[Event]) -> None:
        for event in events:
            print("hello", event.payload["name"])
        broker.stop()

    async with BrokerClient(url, group="mailer") as broker:
        wanted = Subscription.to_topics("user.created")
        await broker.register_reliable_handler(wanted, greet, name="greet", retries_s=[1, 60])
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute("create table if not exists users (name text)")
            await connection.execute("insert into users values ('ann')")
            await publish(connection, Message("user.created", {"name": "ann"}))  # committed together, or not at all
        await broker.run()


asyncio.run(main(sys.argv[1]))
