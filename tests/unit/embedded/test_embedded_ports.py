"""Ports: free, remembered, taken."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from headgate.embedded import ports


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((ports.LOOPBACK, 0)) as listening:
        yield listening


def test_a_listening_port_is_taken(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert not ports.is_free(port)
    assert ports.choose(port) != port


def test_a_closed_port_is_free_again_and_kept(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    # A connection that the server closed first leaves the port in TIME_WAIT, as after every restart.
    with socket.create_connection((ports.LOOPBACK, port)) as client:
        listener.accept()[0].close()
        assert client.recv(1) == b""
    listener.close()
    assert ports.is_free(port)
    assert ports.choose(port) == port


def test_a_chosen_port_is_out_of_the_way_of_outgoing_connections() -> None:
    chosen = {ports.choose() for _ in range(20)}
    assert len(chosen) > 1
    assert all(20_000 <= port < 32_000 for port in chosen)
