"""The relay's codec and checks: CPU time per #commit frame of the size that the network has, stage by stage."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from bench.harness import Bench
from headgate.demo.network.repository import Repository, Write, create
from headgate.relay.validate import validate
from headgate.relay.verdict import Accepted
from headgate.wire.atproto import (
    Commit,
    DidDocument,
    Frame,
    commit_json,
    invert,
    parse_document,
    read_car,
    read_commit,
    read_event,
    read_frame,
    resequence,
    tid_of,
)

_TURNS = 9
_NOW_US = 1_790_000_000_000_000
_HOST = "pds.example"
T = TypeVar("T")
_COLLECTIONS = ("app.bsky.feed.post", "app.bsky.feed.like", "app.bsky.feed.repost", "app.bsky.graph.follow")


def measure(bench: Bench) -> None:
    chance = random.Random(1)
    repo = Repository("bench", _HOST)
    document = parse_document(repo.did, repo.document())
    for number in range(4 if bench.quick else 20):
        repo.commit(_writes(chance, 1_000), seq=number + 1, now_us=_NOW_US)
    messages = [repo.commit(_writes(chance, 1), seq=1_000 + n, now_us=_NOW_US) for n in range(50)]
    frames = [read_frame(message) for message in messages]
    commits = [event for frame in frames if isinstance(event := read_event(frame), Commit)]
    bench.figure("frame_bytes", sum(map(len, messages)) / len(messages))
    bench.figure("blocks_per_frame", sum(len(read_car(c.blocks).blocks) for c in commits) / len(commits))
    _stages(bench, messages, frames, commits, document)


def _stages(
    bench: Bench, messages: list[bytes], frames: list[Frame], commits: list[Commit], document: DidDocument
) -> None:
    blocks = [read_car(commit.blocks).blocks for commit in commits]
    signed = [read_commit(held[commit.commit]) for held, commit in zip(blocks, commits, strict=True)]
    key = document.key
    assert key is not None

    bench.figure("read_frame_us", _best_us(read_frame, messages))
    bench.figure("read_event_us", _best_us(read_event, frames))
    bench.figure("car_and_hashes_us", _best_us(lambda commit: read_car(commit.blocks), commits))
    bench.figure("read_commit_us", _best_us(read_commit, [b[c.commit] for b, c in zip(blocks, commits, strict=True)]))
    bench.figure("signature_us", _best_us(lambda commit: key.verify(commit.signature, commit.unsigned), signed))
    work = list(zip(signed, blocks, commits, strict=True))
    bench.figure("inversion_us", _best_us(lambda item: invert(item[0].data, item[1], item[2].ops), work))
    bench.figure("resequence_us", _best_us(lambda frame: resequence(frame, 123_456_789), frames))
    json_work = list(zip(commits, blocks, strict=True))
    bench.figure("jetstream_us", _best_us(lambda item: commit_json(item[0], item[1], _NOW_US), json_work))

    def whole(message: bytes) -> None:
        verdict = validate(read_frame(message), host=_HOST, state=None, document=document, now_us=_NOW_US)
        assert isinstance(verdict, Accepted), verdict
        resequence(verdict.frame, 123_456_789)

    spent = _best_us(whole, messages)
    bench.figure("read_validate_resequence_us", spent)
    bench.check("frames_per_second_and_core", 1e6 / spent, 3_000, "higher")


def _writes(chance: random.Random, count: int) -> list[Write]:
    """Posts, likes and the like at moments of two years."""
    return [_write(chance) for _ in range(count)]


def _write(chance: random.Random) -> Write:
    path = f"{chance.choice(_COLLECTIONS)}/{tid_of(_NOW_US - chance.randrange(63 * 10**12))}"
    return create(
        path,
        {
            "$type": path.partition("/")[0],
            "text": "words " * chance.randrange(60),
            "langs": ["en"],
            "createdAt": "2026-09-01T12:00:00.000Z",
            "reply": {"root": {"uri": f"at://did:plc:{'a' * 24}/{path}"}, "parent": {"uri": "at://x.test"}},
        },
    )


def _best_us(run: Callable[[T], object], items: Sequence[T]) -> float:
    return min(_seconds(run, items) for _ in range(_TURNS)) / len(items) / 4 * 1e6


def _seconds(run: Callable[[T], object], items: Sequence[T]) -> float:
    began = time.process_time()
    for _ in range(4):
        for item in items:
            run(item)
    return time.process_time() - began
