"""A message broker made of SQL: events, subscriptions and groups in a schema of any PostgreSQL database."""

from __future__ import annotations

from headgate.broker.client import BrokerClient
from headgate.broker.install import DEFAULT_SCHEMA, Phase, install, installed, migrations, uninstall
from headgate.broker.messages import Event, Message, Subscription, publish, send, subscribe

__all__ = [
    "DEFAULT_SCHEMA",
    "BrokerClient",
    "Event",
    "Message",
    "Phase",
    "Subscription",
    "install",
    "installed",
    "migrations",
    "publish",
    "send",
    "subscribe",
    "uninstall",
]
