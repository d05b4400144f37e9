"""A message broker made of SQL: events, subscriptions and groups in a schema of any PostgreSQL database.

| to | use |
|---|---|
| make the schema | `install`, `uninstall`, `installed`, `migrations`, `Phase` |
| publish in a transaction of yours | `publish`, `send`; without async `publish_sync`, `send_sync` |
| handle, listen, publish a lot | `BrokerClient`; without async `SyncBrokerClient` |
| say what | `Message`, `Event`, `Subscription`, `subscribe` |
| hold a handler back, or let it run side by side | `Limits` |
| share a group between programs | `Slots` |
| test a program without a database | `InMemoryBroker`, with its `DeadLetter` |
| hold on to | `Registration`, `EventStream`, which raises `LaggedError` and `FailoverError` |
"""

from __future__ import annotations

from headgate.broker.broadcast import EventStream, FailoverError, LaggedError
from headgate.broker.client import BrokerClient, Registration
from headgate.broker.install import DEFAULT_SCHEMA, Phase, install, installed, migrations, uninstall
from headgate.broker.limits import Limits
from headgate.broker.memory import DeadLetter, InMemoryBroker
from headgate.broker.messages import Event, Message, Subscription
from headgate.broker.slots import Slots
from headgate.broker.sync import SyncBrokerClient, SyncEventStream, SyncRegistration
from headgate.broker.transactions import publish, publish_sync, send, send_sync, subscribe

__all__ = [
    "DEFAULT_SCHEMA",
    "BrokerClient",
    "DeadLetter",
    "Event",
    "EventStream",
    "FailoverError",
    "InMemoryBroker",
    "LaggedError",
    "Limits",
    "Message",
    "Phase",
    "Registration",
    "Slots",
    "Subscription",
    "SyncBrokerClient",
    "SyncEventStream",
    "SyncRegistration",
    "install",
    "installed",
    "migrations",
    "publish",
    "publish_sync",
    "send",
    "send_sync",
    "subscribe",
    "uninstall",
]
