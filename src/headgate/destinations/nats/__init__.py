"""NATS JetStream as a destination: connection, administration, and a publisher for Arrow columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.runtime.lazy import lazily

if TYPE_CHECKING:
    from headgate.destinations.nats.connection import Connection
    from headgate.destinations.nats.destination import NatsDestination
    from headgate.destinations.nats.jetstream import AccountInfo, JetStream, StoredMessage
    from headgate.destinations.nats.keyvalue import Bucket, Entry
    from headgate.destinations.nats.options import NatsOptions
    from headgate.destinations.nats.pool import borrow_publisher, close_idle_publishers
    from headgate.destinations.nats.publisher import Publisher
    from headgate.destinations.nats.receipt import Failure, Receipt
    from headgate.destinations.nats.rows import BadRow, bad_rows, delivery_table
    from headgate.destinations.nats.streams import StreamInfo
else:
    __getattr__ = lazily(
        __name__,
        Connection="connection",
        NatsDestination="destination",
        AccountInfo="jetstream",
        JetStream="jetstream",
        StoredMessage="jetstream",
        Bucket="keyvalue",
        Entry="keyvalue",
        NatsOptions="options",
        borrow_publisher="pool",
        close_idle_publishers="pool",
        Publisher="publisher",
        Failure="receipt",
        Receipt="receipt",
        BadRow="rows",
        bad_rows="rows",
        delivery_table="rows",
        StreamInfo="streams",
    )

__all__ = [
    "AccountInfo",
    "BadRow",
    "Bucket",
    "Connection",
    "Entry",
    "Failure",
    "JetStream",
    "NatsDestination",
    "NatsOptions",
    "Publisher",
    "Receipt",
    "StoredMessage",
    "StreamInfo",
    "bad_rows",
    "borrow_publisher",
    "close_idle_publishers",
    "delivery_table",
]
