"""From commit to storage in JetStream, at three rates: following the source, batch by batch, and the floor beside them.

The floor is a plain replication reader that publishes each row with nats-py: what the two servers and one process of
Python take without Spark, state or a check of any kind.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime

import nats
import psutil
import psycopg

from bench.cdc_load import STREAM, SUBJECTS, await_messages, fill, make_table
from bench.harness import Bench
from bench.trees import cpu_seconds, spent_seconds
from headgate.destinations.nats import JetStream, NatsOptions
from headgate.embedded import Endpoints, Stack
from headgate.postgres.replication import ReplicationConnection
from headgate.wire.pgoutput import Decoder, Insert

_RATES = {100: 1, 1_000: 10, 10_000: 100}  # rows a second, rows in a transaction
_IDLE_S = 10
_SETTLE_S = 180  # Spark ends workers that have had nothing to do for a minute, and then we end their daemons
_IDLE_PIPELINES = 5
_CONFIGURATION = f"""
project = {{{{ name = "bench", data_dir = "{{data_dir}}" }}}}
postgres = {{{{ url = "{{postgres}}" }}}}
nats = {{{{ url = "{{nats}}" }}}}
control = {{{{ port = 0 }}}}
destinations.stream = {{{{ type = "nats", stream = "{STREAM}", subjects = ["{SUBJECTS[0]}"] }}}}
"""
_PIPELINE = """
sources.{slot} = {{ type = "postgres-cdc", slot = "{slot}", publication = "bench" }}
pipelines.{slot} = {{ source = "{slot}", destinations = ["stream"], trigger = "{mode}" }}
"""


def measure(bench: Bench) -> None:
    for mode in ("floor", "realtime", "batch"):
        # Servers of its own for each: a stream that another one filled would be another stream.
        with Stack(bench.directory / mode) as endpoints:
            assert endpoints.postgres_url is not None
            with psycopg.connect(endpoints.postgres_url, autocommit=True) as admin:
                make_table(admin, "ledger")
                admin.execute("create publication bench for table ledger")
                admin.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [mode])
                with _floor(endpoints) if mode == "floor" else _bridge(bench, endpoints, mode, [mode]):
                    _measure_mode(bench, endpoints, admin, mode)
    _idle_service(bench)
    _check(bench)


def _idle_service(bench: Bench) -> None:
    """What several pipelines take that have nothing to do."""
    slots = [f"idle{number}" for number in range(_IDLE_PIPELINES)]
    with Stack(bench.directory / "idle") as endpoints:
        assert endpoints.postgres_url is not None
        with psycopg.connect(endpoints.postgres_url, autocommit=True) as admin:
            make_table(admin, "ledger")
            admin.execute("create publication bench for table ledger")
            for slot in slots:
                admin.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
            options = NatsOptions(url=endpoints.nats_url or "", stream=STREAM, subjects=SUBJECTS)
            with _bridge(bench, endpoints, "realtime", slots), JetStream.open(options) as jetstream:
                fill(admin, 1, per_transaction=1)
                await_messages(jetstream, _IDLE_PIPELINES)
                _weigh(bench, "idle_service")


def _measure_mode(bench: Bench, endpoints: Endpoints, admin: psycopg.Connection, mode: str) -> None:
    options = NatsOptions(url=endpoints.nats_url or "", stream=STREAM, subjects=SUBJECTS)
    with JetStream.open(options) as jetstream:
        began = time.perf_counter()
        fill(admin, 1, per_transaction=1)
        done = await_messages(jetstream, 1)
        if mode != "floor":
            bench.figure(f"{mode}_first_event_after_start_s", time.perf_counter() - began)
        for _ in range(4 if bench.quick else 10):  # Java and Numba compile what runs often
            fill(admin, 5_000)
            done = await_messages(jetstream, done + 5_000)
        for rate, per_transaction in _RATES.items():
            done = _latency(bench, endpoints, jetstream, f"{mode}_{rate}", rate, per_transaction, done)
        if mode != "floor":
            _weigh(bench, mode)


def _latency(
    bench: Bench, endpoints: Endpoints, jetstream: JetStream, name: str, rate: int, per_transaction: int, done: int
) -> int:
    """The COMMIT of each transaction against the storage of its last message.

    From when it is sent: it is answered when a message may be stored already.
    """
    commits: list[float] = []
    with psycopg.connect(endpoints.postgres_url or "") as writer:
        start = time.perf_counter()
        for turn in range((5 if bench.quick else 20) * rate // per_transaction):
            time.sleep(max(0.0, start + turn * per_transaction / rate - time.perf_counter()))
            fill(writer, per_transaction, per_transaction=per_transaction)
            commits.append(time.time())
            writer.commit()
    last = await_messages(jetstream, done + len(commits) * per_transaction)
    delays = []
    for turn, committed in list(enumerate(commits, 1))[::3]:
        message = jetstream.message(STREAM, done + turn * per_transaction)
        assert message is not None
        delays.append((_epoch(message.time) - committed) * 1000)
    cuts = statistics.quantiles(delays, n=100)
    for percent in (50, 95, 99):
        bench.figure(f"{name}_p{percent}_ms", cuts[percent - 1])
    return last


def _epoch(text: str) -> float:
    """RFC 3339 with nanoseconds."""
    head, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(head + "+00:00").timestamp() + float(f"0.{fraction or 0}")


_child: list[int] = []  # the process of the bridge that is being measured


@contextmanager
def _bridge(bench: Bench, endpoints: Endpoints, mode: str, slots: Sequence[str]) -> Iterator[None]:
    name = "-".join(slots)
    config, data_dir = bench.directory / f"{name}.toml", bench.directory / f"{name}-data"
    text = _CONFIGURATION.format(data_dir=data_dir, postgres=endpoints.postgres_url, nats=endpoints.nats_url)
    text += "".join(_PIPELINE.format(slot=slot, mode=mode) for slot in slots)
    config.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "headgate", "run", "--config", str(config)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _child[:] = [process.pid]
    try:
        yield
        assert process.poll() is None, "the bridge ended early"
        began = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        bench.figure(f"{name}_stop_s" if len(slots) == 1 else "idle_service_stop_s", time.perf_counter() - began)
    finally:
        process.kill()
        process.wait()


def _weigh(bench: Bench, mode: str) -> None:
    """The bridge alone: the servers are not among its processes. When it has settled, and what it takes then."""
    (pid,) = _child
    _settle(pid)
    before = cpu_seconds(pid)
    time.sleep(_IDLE_S)
    bench.figure(f"{mode}_idle_cpu_percent", spent_seconds(before, cpu_seconds(pid)) / _IDLE_S * 100)
    root = psutil.Process(pid)
    tree = [root, *root.children(recursive=True)]
    pss = 0
    for process in tree:
        with suppress(psutil.Error):
            pss += process.memory_full_info().pss
    bench.figure(f"{mode}_pss_mb", pss / 1e6)
    bench.figure(f"{mode}_processes", len(tree))


def _settle(pid: int) -> None:
    """Wait until no process has ended for longer than Spark and we let idle ones live."""
    count, since, deadline = 0, time.monotonic(), time.monotonic() + _SETTLE_S
    while time.monotonic() < deadline and time.monotonic() - since < 95:
        time.sleep(1)
        now = len(psutil.Process(pid).children(recursive=True))
        if now != count:
            count, since = now, time.monotonic()


@contextmanager
def _floor(endpoints: Endpoints) -> Iterator[None]:
    """In a thread of this process: it has nothing else to do meanwhile than to wait."""
    stop = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_pump(endpoints, stop)), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


async def _pump(endpoints: Endpoints, stop: threading.Event) -> None:
    client = await nats.connect(endpoints.nats_url or "")
    jetstream = client.jetstream()
    await jetstream.add_stream(name=STREAM, subjects=list(SUBJECTS))
    link = ReplicationConnection(endpoints.postgres_url or "", "floor")
    decoder = Decoder()
    try:
        link.start(("bench",), protocol=1)
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            await loop.run_in_executor(None, link.wait, 0.1)
            sends = []
            while (frame := link.receive()) is not None:
                if frame[0] == ord("w"):
                    message = decoder.decode(bytes(frame[25:]))
                    if isinstance(message, Insert):
                        payload = b"\t".join(value if isinstance(value, bytes) else b"" for value in message.new)
                        sends.append(jetstream.publish("cdc.public.ledger.insert", payload))
            await asyncio.gather(*sends)
    finally:
        link.close()
        await client.close()


def _check(bench: Bench) -> None:
    f = bench.figures
    bench.check("1,000 rows/s, p50 ms", f["realtime_1000_p50_ms"], 10, "lower")
    bench.check("1,000 rows/s, p99 ms", f["realtime_1000_p99_ms"], 30, "lower")
    bench.check("1,000 rows/s, p50 / floor", f["realtime_1000_p50_ms"] / f["floor_1000_p50_ms"], 5, "lower")
    bench.check("10,000 rows/s, p99 ms", f["realtime_10000_p99_ms"], 100, "lower")
    bench.check("idle, % of a core", f["realtime_idle_cpu_percent"], 2, "lower")
    bench.check("five idle pipelines, % of a core", f["idle_service_idle_cpu_percent"], 2, "lower")
    bench.check("PSS, MB", f["realtime_pss_mb"], 900, "lower")
    bench.check("1,000 rows/s, p50 batch / realtime", f["batch_1000_p50_ms"] / f["realtime_1000_p50_ms"], 5, "higher")
