"""A spool that executors on other machines read from the reader's own process."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.model import CapacityError, ConnectError
from headgate.model.address import Address
from headgate.model.dead_letter import DeadLetter
from headgate.sources.postgres_cdc import serving
from headgate.sources.postgres_cdc.serving import Served, SpoolServer, hand_over, read_served
from headgate.spool.dead_letters import DeadLetters

DATA = bytes(range(256)) * 40_000  # more than a socket takes at once


@pytest.fixture
def letters(tmp_path: Path) -> DeadLetters:
    return DeadLetters(tmp_path / "letters.db", max_rows=250, max_bytes=1 << 20)


@pytest.fixture
def server(tmp_path: Path, letters: DeadLetters) -> Iterator[SpoolServer]:
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "00000001.seg").write_bytes(DATA)
    (tmp_path / "secret").write_text("not for them")
    running = SpoolServer(spool, "127.0.0.1", letters)
    yield running
    running.close()


def letter(number: int, payload: bytes = b"x") -> DeadLetter:
    return DeadLetter(f"o-{number}", "", Address("", "t"), "unreadable", str(number), payload)


def test_parts_of_a_segment_are_read(server: SpoolServer) -> None:
    assert read_served(server.served, "00000001.seg", 0, len(DATA)) == DATA
    assert read_served(server.served, "00000001.seg", 255, 3) == DATA[255:258]


def test_rows_that_are_handed_over_are_kept_once(server: SpoolServer, letters: DeadLetters) -> None:
    """A batch that comes again hands them over again."""
    some = [letter(number) for number in range(240)]
    hand_over(server.served, some)
    hand_over(server.served, some)
    assert letters.counts() == {"unreadable": 240}


def test_a_full_store_is_said_to_be_full(server: SpoolServer) -> None:
    with pytest.raises(CapacityError):
        hand_over(server.served, [letter(number) for number in range(300)])


@pytest.mark.parametrize("file", ["../secret", "/etc/passwd", "00000001.idx", "reader.json"])
def test_nothing_but_segments_is_served(server: SpoolServer, file: str) -> None:
    with pytest.raises(Exception, match="no part of a spool"):
        read_served(server.served, file, 0, 5)


def test_a_segment_that_is_gone_is_told(server: SpoolServer) -> None:
    with pytest.raises(ConnectError, match="does not have it any more"):
        read_served(server.served, "00000009.seg", 0, 5)


def test_a_part_behind_the_end_is_an_error(server: SpoolServer) -> None:
    with pytest.raises(ConnectError):
        read_served(server.served, "00000001.seg", len(DATA) - 3, 10)


def test_without_the_secret_nothing_is_read(server: SpoolServer) -> None:
    with pytest.raises(ConnectError):
        read_served(server.served._replace(secret="0" * 64), "00000001.seg", 0, 5)


def test_noise_and_silence_stop_nobody(server: SpoolServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some say nothing, some announce four gigabytes, some say something else: the next one is served all the same."""
    idle = [socket.create_connection(server.served[:2], timeout=10) for _ in range(20)]
    for each in idle[:10]:
        each.sendall(b"\xff" * 200)
    assert read_served(server.served, "00000001.seg", 0, 4) == DATA[:4]
    for each in idle:
        each.close()


def test_more_connections_than_it_takes_are_closed(server: SpoolServer) -> None:
    idle = [socket.create_connection(server.served[:2], timeout=30) for _ in range(serving._CONNECTIONS)]
    for each in idle:
        assert each.recv(1, socket.MSG_PEEK)  # greeted
    with pytest.raises(ConnectError):
        read_served(server.served, "00000001.seg", 0, 4)
    for each in idle:
        each.close()


def test_nobody_there_is_told_with_what_to_do(server: SpoolServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConnectError, match="cannot read the spool") as caught:
        read_served(Served("127.0.0.1", port, ""), "00000001.seg", 0, 4)
    assert "shared_data_dir" in caught.value.remedy


def _is_greeted(asking: socket.socket, server: SpoolServer) -> bool:
    asking.settimeout(0.5)
    asking.connect(server.served[:2])
    try:
        return bool(asking.recv(1))
    except TimeoutError:
        return False


def test_a_want_of_descriptors_passes(server: SpoolServer) -> None:
    """The thread that accepts connections must not end with the first one that it cannot take."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    asking = [socket.socket() for _ in range(3)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limit[1]))  # no number is free, whatever is open
        # The first may be taken: Linux sets a number aside when the thread begins to wait.
        assert not all(_is_greeted(each, server) for each in asking)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        for each in asking:
            each.close()
    assert read_served(server.served, "00000001.seg", 0, 4) == DATA[:4]


def test_the_secret_is_not_printed(server: SpoolServer) -> None:
    assert server.served.secret not in repr(server.served)
