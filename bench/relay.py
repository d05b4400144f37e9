"""The relay: events per second through all checks to many consumers, its CPU, and its memory with thousands of hosts.

The relay runs in a process of its own; the network that feeds it and the consumers share another one, and so the
machine. What it could do alone is computed from the CPU that it took for an event. Where there is Go, Bluesky's relay
has the same to do in the same run.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import psutil
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from bench.harness import Bench
from bench.indigo import binary, running_indigo
from headgate.demo.network.repository import create
from headgate.demo.network.simulate import Network
from headgate.relay.options import RelayOptions
from headgate.relay.service import RelaySettings
from headgate.relay.store import HostRow, open_store
from headgate.relay.verdict import STRICT, Mode
from headgate.wire.atproto import tid_of

_CONSUMERS, _HOSTS, _ACCOUNTS = 50, 20, 40
_MANY_HOSTS = 2_750
_NO_INVERSION = replace(STRICT, inversion=Mode.OFF)


def measure(bench: Bench) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        uvloop.run(_measure(bench))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    figures = bench.figures
    bench.check("events/s of a core, all checks", figures["all_checks_ev_s_of_a_core"], 2_500, "higher")
    bench.check("events/s of a core, no inversion", figures["no_inversion_ev_s_of_a_core"], 5_000, "higher")
    if "indigo_cpu_us" in figures:
        share = figures["all_checks_cpu_us"] / figures["indigo_cpu_us"]
        bench.check("CPU for an event, as a share of indigo's", share, 1.0, "lower")
    bench.check("RSS with many hosts, MB", figures["many_tls_hosts_rss_mb"], 500, "lower")


async def _measure(bench: Bench) -> None:
    async with Network(_HOSTS, 0, seed=1) as network:
        _fill(network, 500 if bench.quick else 3_000)
        for name, policy in (("all_checks", STRICT), ("no_inversion", _NO_INVERSION)):
            network.prepare(3_000 if bench.quick else 12_000)
            await _throughput(bench, name, network, network.options(policy=policy))
        if (found := await asyncio.to_thread(binary)) is not None:
            await _beside(bench, network, found)
    await _memory(bench, 200 if bench.quick else _MANY_HOSTS)


def _fill(network: Network, records: int) -> None:
    """Repositories with a past, so that their proofs are as long as those of the network."""
    chance = random.Random(1)
    for number in range(_ACCOUNTS):
        repo = network.add_account(f"bench{number}", network.hosts[number % _HOSTS], curve="k256")
        writes = [
            create(f"app.bsky.feed.like/{tid_of(chance.randrange(1 << 50))}", {"$type": "app.bsky.feed.like", "n": n})
            for n in range(records)
        ]
        repo.commit(writes, seq=1, now_us=network._tick())
        network.sync(repo)


async def _throughput(bench: Bench, name: str, network: Network, options: RelayOptions) -> None:
    """What is prepared goes out at once; it is over when every consumer has had all of it."""
    async with _relay(bench, name, network.hostnames, options) as (process, url):
        expected = len(network.honest)
        consumers = [_Consumer() for _ in range(_CONSUMERS)]
        for consumer in consumers:
            await consumer.open(url)
        await consumers[0].wait_for(await _told(network))
        await _deliver(bench, name, network, process, consumers, expected)


async def _beside(bench: Bench, network: Network, found: Path) -> None:
    """Another relay, which begins with one commit of every account, so that it has seen their documents, too."""
    directory = bench.directory / "indigo"
    await asyncio.to_thread(directory.mkdir)
    followed = {host: len(host.cursors) for host in network.hosts}
    async with running_indigo(found, directory, network.directory.url, network.hostnames) as (
        process,
        url,
    ):
        consumers = [_Consumer() for _ in range(_CONSUMERS)]
        for consumer in consumers:
            await consumer.open(url)
        async with asyncio.timeout(60):
            # Hosts tell nobody that they are followed.
            while not all(len(host.cursors) > count for host, count in followed.items()):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        for repo in network.repos:
            network.commit(repo)
        for consumer in consumers:
            await consumer.wait_for(len(network.repos))
        count = 3_000 if bench.quick else 12_000
        network.prepare(count)
        await _deliver(bench, "indigo", network, process, consumers, len(network.repos) + count)


async def _deliver(
    bench: Bench,
    name: str,
    network: Network,
    process: psutil.Process,
    consumers: Sequence[_Consumer],
    expected: int,
) -> None:
    """Let the hosts send what they hold back, and wait until each consumer has all of it."""
    sizes, already = consumers[0].bytes, consumers[0].messages
    before, began = sum(process.cpu_times()[:2]), time.perf_counter()
    network.release()
    for consumer in consumers:
        await consumer.wait_for(expected)
    seconds = time.perf_counter() - began
    events = expected - already
    cpu = sum(process.cpu_times()[:2]) - before
    for consumer in consumers:
        consumer.close()
    bench.figure(f"{name}_frame_bytes", (consumers[0].bytes - sizes) / events)
    bench.figure(f"{name}_ev_s", events / seconds)
    bench.figure(f"{name}_deliveries_s", events * _CONSUMERS / seconds)
    bench.figure(f"{name}_cpu_us", cpu / events * 1e6)
    bench.figure(f"{name}_ev_s_of_a_core", events / cpu)
    bench.figure(f"{name}_rss_mb", process.memory_info().rss / 1e6)


async def _told(network: Network) -> int:
    """What hosts have sent before anything was held back."""
    return sum(host._visible for host in network.hosts)


async def _memory(bench: Bench, hosts: int) -> None:
    """Hosts with TLS that the relay knows from an earlier run."""
    network = Network(hosts, 0)
    authority = bench.directory / "authority.pem"
    server = _tls(authority)
    for host in network.hosts:
        host.tls = server
    async with network:
        (bench.directory / "many").mkdir()
        async with open_store(bench.directory / "many" / "relay.sqlite") as store:
            for name in network.hostnames:
                store.put_host(HostRow(name))
        await _follow_many(bench, network, authority)


async def _follow_many(bench: Bench, network: Network, authority: Path) -> None:
    options = network.options(connects_at_once=100, private_tls=True)
    async with _relay(bench, "many", (), options, SSL_CERT_FILE=str(authority)) as (process, _):
        async with asyncio.timeout(300):
            # Hosts tell nobody that they are followed.
            while sum(bool(host.cursors) for host in network.hosts) < len(network.hosts):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        bench.figure("many_tls_hosts", len(network.hosts))
        bench.figure("many_tls_hosts_rss_mb", process.memory_info().rss / 1e6)


@asynccontextmanager
async def _relay(
    bench: Bench, name: str, crawl: Sequence[str], options: RelayOptions, **environment: str
) -> AsyncIterator[tuple[psutil.Process, str]]:
    settings = RelaySettings(bench.directory / name, port=0, crawl=tuple(crawl), options=options)
    line = msgspec.json.encode(settings, enc_hook=str) + b"\n"
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-m", "headgate.relay"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | environment,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(line)
        child.stdin.flush()
        ready: dict[str, Any] = {}
        while not ready:
            ready = json.loads(await asyncio.to_thread(child.stdout.readline)).get("ready", {})
        draining = asyncio.create_task(asyncio.to_thread(child.stdout.read))
        try:
            yield psutil.Process(child.pid), str(ready["url"])
        finally:
            child.stdin.close()
            await draining


def _tls(authority: Path) -> ssl.SSLContext:
    """A server's context; a client believes in it who knows the file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    authority.write_bytes(secret + certificate.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority)
    return context


class _Consumer(asyncio.Protocol):
    """Counts frames of the stream, and does nothing else with them."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self._rest = b""
        self._is_open = False
        self._more = asyncio.Event()

    async def open(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, host, int(port))
        self._transport.write(
            b"GET /xrpc/com.atproto.sync.subscribeRepos?cursor=0 HTTP/1.1\r\nHost: relay\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        position = 0
        if not self._is_open:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._rest = data
                return
            self._is_open, position = True, end + 4
        while len(data) - position >= 10:
            size, header = data[position + 1], 2
            if size == 126:
                size, header = int.from_bytes(data[position + 2 : position + 4]), 4
            elif size == 127:
                size, header = int.from_bytes(data[position + 2 : position + 10]), 10
            if len(data) - position < header + size:
                break
            position += header + size
            self.messages += 1
            self.bytes += size
        self._rest = data[position:]
        self._more.set()

    async def wait_for(self, messages: int) -> None:
        async with asyncio.timeout(300):
            while self.messages < messages:
                self._more.clear()
                await self._more.wait()

    def close(self) -> None:
        self._transport.close()
