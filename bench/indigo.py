"""Bluesky's own relay, to be measured beside ours: built from the Go proxy into the benchmarks' cache."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx
import psutil

from conformance.gateways import free_port

__all__ = ["binary", "running_indigo"]

VERSION = "v0.0.0-20260605210604-af2fec94f34c"
_WORK = Path(".headgate") / "conformance" / "indigo" / VERSION
_PACKAGE = f"github.com/bluesky-social/indigo/cmd/relay@{VERSION}"
_BUILD_S, _START_S, _STOP_S = 1_200.0, 60.0, 30.0


def binary() -> Path | None:
    """Where it is, built if need be; None, with the reason told, if it cannot be had here."""
    found = _WORK.resolve() / "relay"
    if found.exists():
        return found
    if shutil.which("go") is None:
        sys.stderr.write("  indigo is left out: there is no Go here\n")
        return None
    found.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"GOBIN": str(found.parent)}
    command = ["go", "install", _PACKAGE]
    try:
        built = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"  indigo is left out: it was not built within {_BUILD_S:.0f} s\n")
        return None
    if built.returncode:
        sys.stderr.write(f"  indigo is left out: {built.stderr.strip()[-300:]}\n")
        return None
    return found


@asynccontextmanager
async def running_indigo(
    found: Path, directory: Path, plc_url: str, hosts: Sequence[str]
) -> AsyncIterator[tuple[psutil.Process, str]]:
    """One in a directory that is there, following these hosts from now on: strict, with no limit that they reach.

    It follows hosts on loopback, but lets nobody ask for them over HTTP: they are put where it keeps them.
    """
    async with _process(found, directory, plc_url):
        pass  # its tables are there now
    await asyncio.to_thread(_add, directory / "relay.sqlite", hosts)
    async with _process(found, directory, plc_url) as running:
        yield running


@asynccontextmanager
async def _process(found: Path, directory: Path, plc_url: str) -> AsyncIterator[tuple[psutil.Process, str]]:
    port = free_port()
    command = [
        str(found), "--plc-host", plc_url, "--log-level", "error", "serve",
        "--bind", f"127.0.0.1:{port}", "--metrics-listen", f"127.0.0.1:{free_port()}",
        "--db-url", f"sqlite://{directory}/relay.sqlite", "--persist-dir", str(directory / "persist"),
    ]  # fmt: skip
    with (directory / "indigo.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)  # noqa: ASYNC220
        try:
            await _answers(f"http://127.0.0.1:{port}/xrpc/_health")
            yield psutil.Process(process.pid), f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                await asyncio.to_thread(process.wait, _STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def _answers(url: str) -> None:
    async with asyncio.timeout(_START_S), httpx.AsyncClient(trust_env=False) as client:
        while True:
            try:
                (await client.get(url)).raise_for_status()
                return
            except httpx.HTTPError:
                await asyncio.sleep(0.1)


def _add(path: Path, hosts: Sequence[str]) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.executemany(
            "insert into host (hostname, no_ssl, account_limit, trusted, status, last_seq, account_count,"
            " created_at, updated_at) values (?, true, 10000000, true, 'active', -1, 0, datetime(), datetime())",
            [(host,) for host in hosts],
        )
