"""Several processes and one log: a writer that is killed, a disk that is full, servers side by side."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from websockets.sync.client import ClientConnection, connect

from headgate.eventlog import Entry, LogOptions, LogReader, LogWriter
from headgate.eventlog.topics import EVENT
from headgate.model import OccupiedError
from tests.integration.eventlog.served_log import event

ROOT = Path(__file__).parents[3]


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, cwd=ROOT, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_killed_writer_loses_nothing_it_told_and_repeats_no_number(tmp_path: Path) -> None:
    chance = random.Random(3)
    given: set[int] = set()
    seen: list[int] = []
    stop = threading.Event()

    def tail() -> None:
        """A reader in another process than the writer's, across all its deaths."""
        with LogReader(tmp_path) as reader, reader.cursor(0) as cursor:
            while not (stop.is_set() and reader.head_seq <= cursor.after):
                seen.extend(record.seq for record in cursor.read(10_000))
                time.sleep(0.001)

    thread = threading.Thread(target=tail)
    thread.start()
    try:
        for _ in range(6):
            with started("-m", "tests.integration.eventlog.busy_writer", str(tmp_path)) as process:
                assert process.stdout is not None
                told = [int(process.stdout.readline()) for _ in range(chance.randrange(1, 2500))]
                with pytest.raises(OccupiedError):
                    LogWriter(tmp_path)
                process.send_signal(signal.SIGKILL)
                # The last line may be half of one.
                told += [int(line) for line in process.stdout.read().split("\n")[:-1]]
            assert not given & set(told)
            assert min(told) > max(given, default=0)
            given |= set(told)
        with LogWriter(tmp_path) as writer:
            assert writer.next_seq > max(given)
            with LogReader(tmp_path) as reader:
                records = [record for batch in reader.read(0) for record in batch]
    finally:
        stop.set()
        thread.join()
    stored = [record.seq for record in records]
    assert stored == sorted(set(stored))
    assert given <= set(stored)
    assert all(record.payload == b"%d " % record.seq * 50 for record in records)
    assert seen == stored


def test_a_full_disk_is_an_error_that_passes(tmp_path: Path) -> None:
    with started("-m", "tests.integration.eventlog.full_disk", str(tmp_path)) as process:
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    before, after, failed = map(int, output.split())
    assert failed > 0
    with LogReader(tmp_path) as reader:
        stored = [record for records in reader.read(0) for record in records]
    assert [record.seq for record in stored[-2:]] == [before, after]
    assert stored[-1].payload == b"after"


def seqs(client: ClientConnection, count: int) -> list[int]:
    return [json.loads(client.recv(10))["seq"] for _ in range(count)]


@contextmanager
def served(path: Path, *options: str) -> Iterator[tuple[str, psutil.Process]]:
    with started(
        "-m", "headgate", "eventlog", "serve", "--path", str(path), "--port", "0", "--json", *options
    ) as process:
        assert process.stdout is not None
        (url,) = re.findall(r"http://[0-9.:]+", process.stdout.readline() + process.stdout.readline())
        yield url.replace("http", "ws", 1), psutil.Process(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_two_processes_serve_one_log_and_end_together(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with LogWriter(log) as writer, served(log, "--processes", "2") as (url, process):
        writer.append_all([Entry(EVENT, 1, event("t", number)) for number in range(10)])
        (child,) = process.children()
        with ExitStack() as opened:
            clients = [opened.enter_context(connect(f"{url}/subscribe?cursor=1")) for _ in range(16)]
            for client in clients:
                assert seqs(client, 10) == list(range(1, 11))
            # The kernel spreads connections over both; with 16 of them that one gets none is most unlikely.
            assert all(len(each.net_connections("tcp")) > 1 for each in (process, child))
            delays = []
            for number in range(11, 31):
                began = time.perf_counter()
                writer.append_all([Entry(EVENT, 1, event("t", number))])
                assert [seqs(client, 1) for client in clients] == [[number]] * 16
                delays.append(time.perf_counter() - began)
            assert sorted(delays)[10] < 0.2
    assert not child.is_running()


def test_servers_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    program = "from headgate.eventlog.serve import *; serve(ServeOptions({!r}, processes=2), ready=print)"
    with started("-uc", program.format(str(tmp_path))) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        (child,) = psutil.Process(process.pid).children()
        os.kill(process.pid, signal.SIGKILL)
        child.wait(10)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_server_tells_of_damage_before_anybody_reads_it(tmp_path: Path, processes: int) -> None:
    with LogWriter(tmp_path, LogOptions(segment_events=10)) as writer:
        writer.append_all([Entry(EVENT, 1, event("t", number)) for number in range(50)])
    segment = tmp_path / "evts-11"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(data)
    command = [sys.executable, "-m", "headgate", "eventlog", "serve", "--path", str(tmp_path), "--port", "0"]
    with subprocess.Popen(
        [*command, "--processes", str(processes)], stderr=subprocess.PIPE, cwd=ROOT, text=True
    ) as served:
        assert served.stderr is not None
        ceiling = threading.Timer(60, served.kill)
        ceiling.start()
        try:
            assert any("an event log is damaged" in line for line in served.stderr)
            served.terminate()
            assert "an event log is damaged" not in served.stderr.read()  # one process looks
            assert served.wait(30) == 0
        finally:
            ceiling.cancel()
            served.kill()
