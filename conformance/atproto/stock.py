"""Programs of others that read the stream: what the relay sends on, all of them must be able to read.

    readers = install(work)                 # those that can be had here
    complaints(readers[0], messages)        # one for each message; empty if it was read

Consumers written in Go, Python and TypeScript decode whole frames into typed values. One that they cannot decode ends
their connection, and comes again at every resume.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.demo.network.poison import PoisonCase, poison
from headgate.demo.network.repository import Repository
from headgate.relay.validate import validate
from headgate.relay.verdict import Accepted, RepoState
from headgate.wire.atproto import AtprotoError, parse_document, read_frame, resequence

__all__ = ["Reader", "complaints", "install", "table"]

_HERE = Path(__file__).parent / "readers"
_INSTALL_S, _READ_S = 900, 120
_NPM = ("@atproto/sync", "@atproto/repo", "@atproto/xrpc-server")
_ATCUTE = tuple(f"@atcute/{name}" for name in ("atproto", "car", "cbor", "cid", "firehose", "lexicons"))
_NOW_US = 1_790_000_000_000_000
# DAG-CBOR has floats, and hosts store them; the data model of records has none, and indigo goes by that. It passes the
# record over and reads on.
_KNOWN = {("indigo", "#commit record: a float")}


@dataclass(frozen=True, slots=True)
class Reader:
    """A program that reads frames, and where it is run."""

    name: str
    command: tuple[str, ...]
    directory: Path


def install(work: Path) -> list[Reader]:
    """Those that can be had; of the others it is said why not."""
    found = [_node(work / "npm"), _node_atcute(work / "npm"), _python(work / "python"), _go(work / "go")]
    return [reader for reader in found if reader is not None]


def _node(directory: Path) -> Reader | None:
    return _npm("@atproto/sync", directory, "sync.mjs")


def _node_atcute(directory: Path) -> Reader | None:
    return _npm("@atcute/firehose", directory, "atcute.mjs")


def _npm(name: str, directory: Path, script: str) -> Reader | None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "package.json").write_text('{"private": true, "type": "module"}\n')
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
    if not (directory / "ready").exists() and not _done(name, directory, [*command, *_NPM, *_ATCUTE]):
        return None
    (directory / "ready").touch()
    shutil.copy(_HERE / script, directory)
    return Reader(name, ("node", script), directory)


def _python(directory: Path) -> Reader | None:
    directory.mkdir(parents=True, exist_ok=True)
    python = directory / "venv" / "bin" / "python"
    steps = ([sys.executable, "-m", "venv", "venv"], [str(python), "-m", "pip", "install", "--quiet", "atproto"])
    if not (directory / "ready").exists() and not all(_done("atproto (Python)", directory, step) for step in steps):
        return None
    (directory / "ready").touch()
    return Reader("atproto (Python)", (str(python), "-W", "ignore", str(_HERE / "read.py")), directory)


def _go(directory: Path) -> Reader | None:
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(_HERE / "main.go", directory)
    steps = [["go", "mod", "tidy"], ["go", "build", "-o", "reader", "."]]
    if not (directory / "go.mod").exists():
        steps.insert(0, ["go", "mod", "init", "reader"])
    if not (directory / "reader").exists() and not all(_done("indigo", directory, step) for step in steps):
        return None
    return Reader("indigo", (str(directory / "reader"),), directory)


def _done(name: str, directory: Path, command: list[str]) -> bool:
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=_INSTALL_S, check=False, env=None
        )
        problem = done.stderr.strip()[-300:] if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem:
        sys.stdout.write(f"{name}: skipped, {command[0]} says: {problem}\n")
    return not problem


def complaints(reader: Reader, messages: Sequence[bytes]) -> list[str]:
    said = subprocess.run(
        reader.command,
        cwd=reader.directory,
        input="".join(f"{message.hex()}\n" for message in messages),
        capture_output=True,
        text=True,
        timeout=_READ_S,
        check=True,
    ).stdout.split("\n")[:-1]
    assert len(said) == len(messages), f"{reader.name} said {len(said)} things of {len(messages)} frames"
    return said


def table(readers: Sequence[Reader], path: Path) -> Iterator[tuple[str, bool]]:
    """Every poisoned frame: what the relay says, beside what the readers say. Written to `path`; what is accepted must
    be read by all of them.
    """
    repo = Repository("alice", "pds.example")
    cases = list(poison(repo, now_us=_NOW_US))
    sent = [_sent(repo, case) for case in cases]
    said = {
        reader.name: complaints(reader, [_best(*pair) for pair in zip(sent, cases, strict=True)]) for reader in readers
    }
    lines = ["\t".join(("frame", "relay", *said))]
    for number, case in enumerate(cases):
        verdict = "sent on" if sent[number] is not None else "dropped"
        lines.append("\t".join((case.name, verdict, *(said[name][number][:80] or "read" for name in said))))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, found in said.items():
        harmed = [
            case.name
            for case, message, problem in zip(cases, sent, found, strict=True)
            if message is not None and problem and (name, case.name) not in _KNOWN
        ]
        refused = sum(map(bool, found))
        yield f"{name}: refuses {refused} of {len(cases)} odd frames, none that is sent on {harmed or ''}", not harmed


def _best(sent: bytes | None, case: PoisonCase) -> bytes:
    return case.message if sent is None else sent


def _sent(repo: Repository, case: PoisonCase) -> bytes | None:
    """What a strict relay sends on for a frame; None if nothing."""
    state, document = RepoState(rev=repo.rev, data=repo.data), parse_document(repo.did, repo.document())
    try:
        frame = read_frame(case.message)
    except AtprotoError:
        return None
    verdict = validate(frame, host="pds.example", state=state, document=document, now_us=_NOW_US + 10, fresh=True)
    return resequence(verdict.frame, 7) if isinstance(verdict, Accepted) else None
