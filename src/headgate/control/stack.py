"""The embedded servers that a command needs."""

from __future__ import annotations

import os

from headgate.config import Config
from headgate.config.needs import Needs
from headgate.embedded import Endpoints, Stack
from headgate.model import StateError

__all__ = ["open_stack"]

_EVERYTHING = Needs()


def open_stack(config: Config, needs: Needs = _EVERYTHING) -> tuple[Stack | None, Endpoints]:
    """The embedded servers that are needed: started here, or those of another process on the same directory."""
    data_dir = config.project.data_dir
    postgres, nats = config.postgres.embedded and needs.postgres, config.nats.embedded and needs.nats
    if not (postgres or nats):
        return None, Endpoints(data_dir=data_dir, owner_pid=os.getpid())
    running = Stack.attach(data_dir)
    if running is not None:
        _check_running(running, postgres=postgres, nats=nats)
        return None, running
    stack = Stack(
        data_dir,
        postgres=postgres,
        nats=nats,
        postgres_version=config.postgres.version,
        nats_sync_interval=config.nats.sync_interval,
    )
    return stack, stack.start()


def _check_running(running: Endpoints, *, postgres: bool, nats: bool) -> None:
    """The process that runs them has started what it needs, which may be less than we need."""
    missing = [
        name
        for name, wanted, url in (("PostgreSQL", postgres, running.postgres_url), ("NATS", nats, running.nats_url))
        if wanted and url is None
    ]
    if missing:
        raise StateError(
            f"process {running.owner_pid} runs the embedded servers of this directory without {' and '.join(missing)}",
            where=str(running.data_dir),
            remedy="stop it, start both servers with `headgate up`, then start it again",
        )
