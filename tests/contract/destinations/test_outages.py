"""A server that goes away and comes back: `ConnectError` in time, and then everything arrives."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.destinations.kafka import close_idle_clients
from headgate.destinations.nats import close_idle_publishers
from headgate.model import ConnectError, HeadgateError
from tests.contract.destinations.backends import Backend, KafkaBackend, NatsBackend, WebhookBackend
from tests.contract.destinations.cluster import MockCluster
from tests.contract.destinations.receiver import Receiver
from tests.contract.destinations.test_contract import check, one_key
from tests.integration.nats.nats_live.server import NatsServer

Outage = tuple[Backend, Callable[[], object], Callable[[], object]]


@contextmanager
def _nats(kind: str, path: Path) -> Iterator[Outage]:
    server = NatsServer(path).start()
    try:
        yield NatsBackend(kind, server.url), server.kill, server.start
    finally:
        close_idle_publishers()
        server.kill()


@contextmanager
def _kafka(kind: str, path: Path) -> Iterator[Outage]:
    with MockCluster() as cluster:
        yield KafkaBackend(kind, cluster), cluster.freeze, cluster.thaw
        close_idle_clients()


@contextmanager
def _webhook(kind: str, path: Path) -> Iterator[Outage]:
    with Receiver() as receiver:
        yield WebhookBackend(receiver), receiver.stop, receiver.start


_KINDS = {
    "nats": _nats,
    "nats exclusive": _nats,
    "kafka": _kafka,
    "kafka exclusive": _kafka,
    "webhook": _webhook,
}


@pytest.fixture(params=_KINDS)
def outage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outage]:
    with _KINDS[request.param](request.param, tmp_path) as opened:
        yield opened


def test_a_server_goes_away_and_comes_back(outage: Outage) -> None:
    backend, go, come = outage
    topic = backend.topic("a")
    backend.deliver(one_key(topic, 0, 5))
    go()
    began = time.monotonic()
    assert isinstance(failure_of(backend, topic), ConnectError)
    assert time.monotonic() - began < 20
    come()
    backend.deliver(one_key(topic, 5, 5))
    # What was in flight when the server went away may have been stored.
    found = backend.arrived(None, topic)
    unique = list(dict.fromkeys(found))
    check(backend, unique, range(10))
    if backend.promises.replay == "dropped":
        assert found == unique


def failure_of(backend: Backend, topic: str) -> HeadgateError | None:
    """Deliver some rows; the error that was raised, or that names the topic."""
    prepare, backend.prepare = backend.prepare, lambda stream, topics: None  # type: ignore[method-assign]
    try:
        failures = backend.deliver(one_key(topic, 5, 5)).failures
    except HeadgateError as error:
        return error
    finally:
        backend.prepare = prepare  # type: ignore[method-assign]
    return HeadgateError.from_text(f"headgate-error: {json.dumps(failures[0]['error'])}") if failures else None
