"""Faults strike what they are pointed at, in an order that the seed decides, and leave everything running."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from psycopg.pq import ExecStatus, PGconn

from headgate.embedded import Endpoints, Stack
from tests.cdc import Chaos, Connection, Fault, Proxy, Shop, Victim, crash, end_walsender, kill, restart

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
PARENT = [
    sys.executable,
    "-c",
    "import subprocess, sys, time; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); time.sleep(600)",
    *SLEEPER,
]


def noted(names: str, count: int, seed: int) -> list[str]:
    faults = [Fault(name, lambda _rng: None) for name in names]
    history = Chaos(seed=seed, faults=faults, count=count, pause_s=(0, 0.001)).run()
    return [strike.fault for strike in history]


def test_the_seed_decides_the_order() -> None:
    assert noted("abcd", 30, 1) == noted("abcd", 30, 1)
    assert noted("abcd", 30, 1) != noted("abcd", 30, 2)
    assert set(noted("abcd", 30, 1)) == set("abcd")


def test_a_fault_cannot_change_what_comes_next() -> None:
    def greedy(rng: random.Random) -> None:
        rng.random()

    names = [
        Chaos(1, [Fault("a", strike), Fault("b", strike)], 20, pause_s=(0, 0)).run()
        for strike in (greedy, lambda _: None)
    ]
    assert [strike.fault for strike in names[0]] == [strike.fault for strike in names[1]]


def test_it_ends_when_it_is_told_or_when_time_is_over() -> None:
    began = time.monotonic()
    assert Chaos(1, [Fault("a", lambda _: None)], 10**6, seconds=60).run(until=lambda: True) == []
    assert len(Chaos(1, [Fault("a", lambda _: None)], 10**6, seconds=0.3, pause_s=(0.05, 0.1)).run()) in range(2, 7)
    assert time.monotonic() - began < 5


def test_weights_make_a_fault_rarer() -> None:
    faults = [Fault("often", lambda _: None, 9), Fault("rare", lambda _: None)]
    history = Chaos(3, faults, 100, pause_s=(0, 0)).run()
    assert 1 <= sum(strike.fault == "rare" for strike in history) <= 30


# Processes


def test_a_victim_is_killed_and_started_again() -> None:
    with Victim(lambda: subprocess.Popen(SLEEPER)) as victim:
        first = victim.pid
        kill(victim).strike(random.Random(1))
        assert victim.alive()
        assert victim.pid != first
        assert not psutil.pid_exists(first)
        assert victim.terminate() == -15
    assert victim.starts == 2


def test_a_victim_that_ended_by_itself_is_a_failure() -> None:
    with Victim(lambda: subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])) as victim:
        _wait_until(lambda: not victim.alive())
        with pytest.raises(AssertionError, match="exit code 3"):
            victim.kill()


@pytest.mark.parametrize("whole_tree", [True, False])
def test_the_children_of_a_victim_end_with_it_or_at_the_latest_at_the_end(whole_tree: bool) -> None:
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        started.append(subprocess.Popen(PARENT, stdout=subprocess.PIPE, text=True))
        return started[-1]

    with Victim(start, whole_tree=whole_tree) as victim:
        assert started[0].stdout is not None
        with started[0].stdout as output:
            child = psutil.Process(int(output.readline()))
        victim.kill()
        assert _runs(child) is not whole_tree
    assert not _runs(child)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# The proxy


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends everything back; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_echo, args=[server])
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def _echo(server: socket.socket) -> None:
    threads: list[threading.Thread] = []
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            break
        threads.append(threading.Thread(target=_echo_one, args=[connection]))
        threads[-1].start()
    for thread in threads:
        thread.join(10)


def _echo_one(connection: socket.socket) -> None:
    with connection:
        try:
            while data := connection.recv(65536):
                connection.sendall(data)
        except OSError:
            return


def _dial(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=5)


def _answer(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text)
    return connection.recv(100)


def test_the_proxy_forwards_both_ways(echo: int) -> None:
    with Proxy(echo) as proxy, _dial(proxy) as one, _dial(proxy) as two:
        assert (_answer(one, b"one"), _answer(two, b"two")) == (b"one", b"two")
        assert (proxy.open_connections, proxy.accepted) == (2, 2)
        one.shutdown(socket.SHUT_WR)
        assert one.recv(100) == b""


def test_much_data_goes_through_whole(echo: int) -> None:
    data = random.Random(1).randbytes(3 << 20)
    with Proxy(echo) as proxy, _dial(proxy) as connection:
        sender = threading.Thread(target=connection.sendall, args=[data])
        sender.start()
        received = bytearray()
        while len(received) < len(data) and (part := connection.recv(65536)):
            received += part
        sender.join(10)
    assert received == data


def test_cutting_resets_connections_and_lets_new_ones_in(echo: int) -> None:
    with Proxy(echo) as proxy, _dial(proxy) as old:
        assert _answer(old, b"x") == b"x"
        assert proxy.cut() == 1
        with pytest.raises(ConnectionResetError):
            old.recv(100)
        with _dial(proxy) as new:
            assert _answer(new, b"y") == b"y"


def test_a_stall_holds_everything_back_until_it_is_over(echo: int) -> None:
    with Proxy(echo) as proxy, _dial(proxy) as connection:
        assert _answer(connection, b"before") == b"before"
        proxy.stall()
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            _answer(connection, b"held")
        connection.settimeout(5)
        proxy.resume()
        assert connection.recv(100) == b"held"


def test_a_stalled_connection_can_be_cut(echo: int) -> None:
    with Proxy(echo) as proxy, _dial(proxy) as connection:
        proxy.stall()
        connection.sendall(b"held")
        assert proxy.cut() == 1
        with pytest.raises(ConnectionResetError):
            connection.recv(100)


def test_a_server_that_is_away_resets_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with Proxy(port) as proxy, pytest.raises(ConnectionResetError), _dial(proxy) as connection:
        connection.recv(100)


# Servers


def test_servers_come_back_after_a_crash_and_a_restart(cdc_stack: Stack) -> None:
    for server in cdc_stack.servers:
        for fault in (crash(server), restart(server)):
            before = server.pid
            fault.strike(random.Random(1))
            assert server.alive()
            assert server.pid != before


def test_the_reader_of_a_slot_is_thrown_out(cdc: Endpoints, shop: Shop, connect: Callable[[], Connection]) -> None:
    assert cdc.postgres_url is not None
    assert cdc.postgres_tcp_url is not None
    slot, connection = f"{shop.name}_ended", connect()
    connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
    fault = end_walsender(cdc.postgres_url, slot)
    fault.strike(random.Random(1))  # nobody reads: nothing happens
    reader = PGconn.connect(f"{shop.reader_url(cdc.postgres_tcp_url)}?replication=database".encode())
    try:
        options = f"""proto_version '1', publication_names '"{shop.publication}"'"""
        started = reader.exec_(f"START_REPLICATION SLOT {slot} LOGICAL 0/0 ({options})".encode())
        assert started.status == ExecStatus.COPY_BOTH
        assert _active(connection, slot)
        fault.strike(random.Random(1))
        _wait_until(lambda: not _active(connection, slot))
    finally:
        reader.finish()
    connection.execute("select pg_drop_replication_slot(%s)", [slot])


def _active(connection: Connection, slot: str) -> bool:
    row = connection.execute("select active from pg_replication_slots where slot_name = %s", [slot]).fetchone()
    return row == (True,)


def _wait_until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
