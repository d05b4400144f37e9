"""One server for the tests that only need streams of their own; more are made for those that break theirs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.destinations.nats import JetStream, NatsOptions, close_idle_publishers

from .server import NatsServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats")).start()
    yield server
    server.kill()


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., NatsServer]]:
    """Servers of the test's own; `config` is added to the configuration file."""
    made: list[NatsServer] = []

    def make(config: str = "", *, jetstream: bool = True) -> NatsServer:
        directory = tmp_path / f"nats{len(made)}"
        directory.mkdir()
        made.append(NatsServer(directory, config, jetstream))
        return made[-1].start()

    yield make
    for server in made:
        server.kill()


@pytest.fixture
def make_stream(nats: NatsServer) -> Iterator[Callable[..., NatsOptions]]:
    """Options for a fresh stream `T<n>` with subjects `t<n>.>` on the shared server."""
    made: list[NatsOptions] = []

    def make(**more: object) -> NatsOptions:
        number = next(_numbers)
        options = nats.options(f"T{number}", (f"t{number}.>",), **more)
        with JetStream.open(options) as jetstream:
            jetstream.ensure_stream(options)
        made.append(options)
        return options

    yield make
    close_idle_publishers()
    for options in made:
        with JetStream.open(options) as jetstream:
            jetstream.delete_stream(options.stream)
