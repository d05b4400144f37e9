"""Publishing in transactions of psycopg, SQLAlchemy and Django: what is committed is delivered, the rest never was."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from headgate.broker import Message, install, publish, publish_sync, send, send_sync
from headgate.model import DataError, UsageError
from tests.integration.broker.brokers import Headgate, drain

LATER = timedelta(days=1)


@pytest.fixture
def engine(database: str) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(database))
    yield engine
    engine.dispose()


def sqlalchemy_url(database: str) -> sqlalchemy.URL:
    parts = conninfo_to_dict(database)
    return sqlalchemy.URL.create(
        "postgresql+psycopg",
        username=str(parts["user"]),
        database=str(parts["dbname"]),
        query={"host": str(parts["host"]), "port": str(parts["port"])},
    )


def delivered(db: psycopg.Connection[Any]) -> list[Any]:
    broker = Headgate(db)
    broker.poll()
    return [event.payload for event in drain(broker, "g")]


def listen(db: psycopg.Connection[Any]) -> int:
    return int(Headgate(db).subscribe("g", "e.topic is not null"))


def test_psycopg(database: str, db: psycopg.Connection[Any]) -> None:
    sid = listen(db)
    with psycopg.connect(database, row_factory=dict_row) as connection:
        first, second = publish_sync(connection, Message("t", 1), Message("t", None, {"m": 1}))
        assert first < second
        with connection.transaction(force_rollback=True):
            publish_sync(connection, Message("t", "never"))
        assert publish_sync(connection, Message("t", 3, due_at=datetime.now(UTC) + LATER)) == []
        send_sync(connection, sid, Message("t", 4))
        assert delivered(db) == []
        connection.rollback()
        assert delivered(db) == []
        publish_sync(connection, Message("t", 5))
        connection.commit()
        assert publish_sync(connection) == []
    assert delivered(db) == [5]


def test_async_psycopg(database: str, db: psycopg.Connection[Any]) -> None:
    sid = listen(db)

    async def story() -> None:
        async with await psycopg.AsyncConnection.connect(database, row_factory=dict_row) as connection:
            async with connection.transaction():
                (event_id,) = await publish(connection, Message("t", None))
                (direct,) = await send(connection, sid, Message("t", 2))
                assert event_id < direct
            async with connection.transaction(force_rollback=True):
                await publish(connection, Message("t", "never"))

    asyncio.run(story())
    assert delivered(db) == [None, 2]


def test_sqlalchemy(engine: sqlalchemy.Engine, db: psycopg.Connection[Any]) -> None:
    sid = listen(db)
    with Session(engine) as session:
        session.execute(sqlalchemy.text("create table users (name text)"))
        (first,) = publish_sync(session, Message("t", {"colon": ":name", "percent": "%s"}))
        (second,) = send_sync(session, sid, Message("t", 2))
        assert first < second
        session.commit()
        publish_sync(session, Message("t", "never"))
        session.rollback()
    with engine.begin() as connection:
        publish_sync(connection, Message("t", 3))
    scoped = scoped_session(sessionmaker(engine))
    publish_sync(scoped, Message("t", 4))
    scoped.commit()
    scoped.remove()
    assert delivered(db) == [{"colon": ":name", "percent": "%s"}, 2, 3, 4]


def test_async_sqlalchemy(database: str, db: psycopg.Connection[Any]) -> None:
    pytest.importorskip("greenlet", reason="SQLAlchemy needs it for async")
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    listen(db)

    async def story() -> None:
        engine = create_async_engine(sqlalchemy_url(database))
        async with AsyncSession(engine) as session:
            (event_id,) = await publish(session, Message("t", 1))
            assert event_id > 0
            await session.commit()
            await publish(session, Message("t", "never"))
            await session.rollback()
        async with engine.begin() as connection:
            await publish(connection, Message("t", 2))
        await engine.dispose()

    asyncio.run(story())
    assert delivered(db) == [1, 2]


def test_django(database: str, db: psycopg.Connection[Any]) -> None:
    import django
    from django.conf import settings
    from django.db import connection, transaction

    parts = conninfo_to_dict(database)
    address = {"NAME": parts["dbname"], "USER": parts["user"], "HOST": parts["host"], "PORT": parts["port"]}
    settings.configure(USE_TZ=True, DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **address}})
    django.setup()
    try:
        listen(db)
        with transaction.atomic():
            (event_id,) = publish_sync(connection, Message("t", "100 %s"))
            assert event_id > 0
            inner = transaction.atomic()
            inner.__enter__()
            publish_sync(connection, Message("t", "never"))
            transaction.set_rollback(True)
            inner.__exit__(None, None, None)
            assert delivered(db) == []
        assert delivered(db) == ["100 %s"]
    finally:
        connection.close()


@dataclass
class User:
    name: str
    since: datetime


def test_payloads_are_objects_and_schemas_have_names(database: str, db: psycopg.Connection[Any]) -> None:
    install(db, "user")  # a word that SQL keeps for itself
    at = datetime(2026, 1, 1, tzinfo=UTC)
    with psycopg.connect(database) as connection:
        publish_sync(connection, Message("t", User("ann", at), {"also": User("bob", at)}), schema="user")
    row = db.execute('select payload, metadata from "user".events').fetchone()
    ann = {"name": "ann", "since": "2026-01-01T00:00:00Z"}
    assert row == (ann, {"also": {**ann, "name": "bob"}})


def test_what_cannot_publish(database: str) -> None:
    async def story() -> None:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            with pytest.raises(UsageError, match=r"psycopg\S*AsyncConnection"):
                publish_sync(connection, Message("t", 1))
        with psycopg.connect(database) as sync, pytest.raises(UsageError, match="publish does not know"):
            await publish(sync, Message("t", 1))
        with pytest.raises(UsageError, match=r"builtins\.int"):
            publish_sync(7, Message("t", 1))
        with psycopg.connect(database) as sync, pytest.raises(UsageError, match="cannot be the broker's schema"):
            publish_sync(sync, Message("t", 1), schema='x"; drop')

    asyncio.run(story())
    with psycopg.connect(database) as connection, pytest.raises(DataError, match="not JSON"):
        publish_sync(connection, Message("t", object()))


def test_more_than_one_statement_may_hold(
    database: str, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.broker.transactions._CALL_CHARS", 200)
    listen(db)
    with psycopg.connect(database) as connection:
        ids = publish_sync(connection, *[Message("t", number) for number in range(50)])
        assert ids == sorted(ids)
    assert delivered(db) == list(range(50))
