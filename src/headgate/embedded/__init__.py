"""PostgreSQL, NATS and Java from wheels: found, started, supervised and stopped, so that headgate needs no server.

    with Stack(".headgate") as endpoints:
        psycopg.connect(endpoints.postgres_url)

Everything lives below one data directory and listens on loopback only. See `stack` for ownership and crashes,
`account` for running as root, `java` for what Spark needs.
"""

from __future__ import annotations

from headgate.embedded.java import JavaRuntime, find_java
from headgate.embedded.nats import NatsServer
from headgate.embedded.postgres import PostgresServer
from headgate.embedded.stack import Endpoints, Stack

__all__ = [
    "Endpoints",
    "JavaRuntime",
    "NatsServer",
    "PostgresServer",
    "Stack",
    "find_java",
]
