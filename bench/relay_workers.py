"""Validation in worker processes: one on one core, two that share a core, and two on two.

The relay's own process asks, and is not measured here but for what asking costs it. The three take turns, and figures
are medians: other programs that use the cores come and go.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from collections.abc import Sequence

import psutil
import uvloop

from bench.harness import Bench
from headgate.demo.network.repository import Repository, create
from headgate.relay.verdict import STRICT, Accepted, RepoState
from headgate.relay.workers import ProcessJudge, Question, open_judges
from headgate.wire.atproto import parse_document, read_frame, tid_of

_ACCOUNTS, _BATCH = 64, 32
_TURNS = 5
_NOW_US = 1_700_000_000_000_000


def measure(bench: Bench) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    questions = _questions(100 if bench.quick else 1_000)
    rounds = 10 if bench.quick else 60
    uvloop.run(_all(bench, questions, rounds, cores))
    if len(cores) > 1:
        figures = bench.figures
        ratio = figures["two_workers_two_cores_ev_s"] / figures["two_workers_one_core_ev_s"]
        bench.check("two cores beside one, two workers", ratio, 1.6, "higher")


async def _all(bench: Bench, questions: list[Question], rounds: int, cores: Sequence[int]) -> None:
    first, last = cores[0], cores[-1]
    ways = {
        "one_worker_one_core": (first,),
        "two_workers_one_core": (first, first),
        "two_workers_two_cores": (first, last),
    }
    found: dict[str, list[float]] = {}
    for _ in range(1 if bench.quick else _TURNS):
        for name, places in ways.items():
            for figure, value in (await _judged(questions, rounds, places)).items():
                found.setdefault(f"{name}_{figure}", []).append(value)
    for name, values in found.items():
        bench.figure(name, statistics.median(values))
        if name.endswith("_ev_s"):
            bench.figure(f"{name}_least", min(values))
            bench.figure(f"{name}_most", max(values))


def _questions(records: int) -> list[Question]:
    """A commit of each of some accounts, all of which have a past."""
    chance = random.Random(1)
    found = []
    for number in range(_ACCOUNTS):
        repo = Repository(f"bench{number}", "pds.example")
        paths = [f"app.bsky.feed.like/{tid_of(chance.randrange(1 << 50))}" for _ in range(records)]
        repo.commit([create(path, {"$type": "app.bsky.feed.like"}) for path in paths], seq=1, now_us=_NOW_US)
        state = RepoState(repo.rev, repo.data)
        post = create(f"app.bsky.feed.post/{tid_of(_NOW_US)}", {"$type": "app.bsky.feed.post", "text": "hello"})
        message = repo.commit([post], seq=2, now_us=_NOW_US + 1)
        document = parse_document(repo.did, repo.document())
        found.append(Question(message, read_frame(message), "pds.example", state, document, True, _NOW_US + 2))
    return found


async def _judged(questions: list[Question], rounds: int, places: Sequence[int]) -> dict[str, float]:
    async with open_judges(len(places), STRICT) as judges:
        processes = []
        for judge, core in zip(judges, places, strict=True):
            assert isinstance(judge, ProcessJudge)
            assert judge.pid is not None
            os.sched_setaffinity(judge.pid, {core})
            processes.append(psutil.Process(judge.pid))
            answers = await judge.judge(questions)  # it has imported everything by then
            assert all(isinstance(each.verdict, Accepted) for each in answers)
        batches = [questions[at : at + _BATCH] for at in range(0, len(questions), _BATCH)] * rounds

        async def work(judge: ProcessJudge) -> None:
            while batches:
                await judge.judge(batches.pop())

        events = sum(map(len, batches))
        cpu = _cpu(processes)
        own, began = time.process_time(), time.perf_counter()
        # Two batches are on their way to each, so that no worker waits for the next one.
        await asyncio.gather(*(work(judge) for judge in judges for _ in range(2)))  # type: ignore[arg-type]
        return {
            "ev_s": events / (time.perf_counter() - began),
            "cpu_us": (_cpu(processes) - cpu) / events * 1e6,
            "asking_cpu_us": (time.process_time() - own) / events * 1e6,
        }


def _cpu(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)
