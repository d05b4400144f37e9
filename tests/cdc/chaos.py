"""Faults at random moments: one after the other, bounded in count and time, written down.

    chaos = Chaos(seed=7, faults=[kill(bridge), crash("postgres", stack.postgres), cut(proxy)])
    with Workload(...) as work:
        chaos.run(until=work.finished)

A fault is over when it returns: what it stopped runs again. Which faults come in which order depends on the seed
alone. The scheduler runs in the caller's thread, because the embedded servers want one caller at a time.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import psutil
import psycopg

from headgate.embedded.process import end
from headgate.embedded.server import Server
from tests.cdc.proxy import Proxy

__all__ = ["Chaos", "Fault", "Strike", "Victim", "crash", "cut", "end_walsender", "kill", "restart", "stall"]

_KILLED_S = 10.0
_STEP_S = 0.02


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong; `strike` returns when it is over. A heavier `weight` strikes more often."""

    name: str
    strike: Callable[[random.Random], None]
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that happened, in seconds since the beginning."""

    fault: str
    began_s: float
    ended_s: float


@dataclass
class Chaos:
    """At most `count` faults within `seconds`, with a pause of random length before each."""

    seed: int
    faults: Sequence[Fault]
    count: int = 10
    seconds: float = 60.0
    pause_s: tuple[float, float] = (0.1, 1.0)
    history: list[Strike] = field(default_factory=list)

    def run(self, until: Callable[[], bool] = lambda: False) -> list[Strike]:
        """Strike until the count is reached, the time is over or `until` says so; returns what happened."""
        rng = random.Random(self.seed)
        began = time.monotonic()
        weights = [fault.weight for fault in self.faults]
        for _ in range(self.count):
            fault = rng.choices(self.faults, weights)[0]
            if self._wait(rng.uniform(*self.pause_s), began, until):
                break
            start = time.monotonic()
            fault.strike(random.Random(rng.random()))  # its own, so that it cannot change what comes next
            self.history.append(Strike(fault.name, start - began, time.monotonic() - began))
        return self.history

    def _wait(self, pause_s: float, began: float, until: Callable[[], bool]) -> bool:
        """Pause; true if it is over before the pause is."""
        end = time.monotonic() + pause_s
        while not until() and time.monotonic() - began < self.seconds:
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, _STEP_S))
        return True


class Victim:
    """A process under test. `start` makes it; its output should go to a file, since nobody reads a pipe here.

    `whole_tree` kills the processes it started together with it; otherwise they are left to notice, as after a crash,
    and only leaving the block ends what is left of them.
    """

    def __init__(
        self, start: Callable[[], subprocess.Popen[Any]], *, whole_tree: bool = False, may_end_with: int | None = None
    ) -> None:
        self.starts = 0
        self._may_end_with = may_end_with
        self._start = start
        self._whole_tree = whole_tree
        self._process: subprocess.Popen[Any] | None = None
        self._orphans: list[psutil.Process] = []

    @property
    def pid(self) -> int:
        """That of the process started last."""
        assert self._process is not None, "the process was not started"
        return self._process.pid

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it. It must not run."""
        assert not self.alive(), "the process runs already"
        self._process = self._start()
        self.starts += 1

    def kill(self) -> None:
        """Kill with -9. It is a failure if the process has ended by itself before, unless it may with this code."""
        assert self._process is not None, "the process was not started"
        code = self._process.poll()
        if code is not None and code == self._may_end_with:
            return
        assert code is None, f"the process ended by itself with exit code {code}"
        children = _descendants(self._process.pid)
        self._process.kill()
        self._process.wait(_KILLED_S)
        if self._whole_tree:
            _end(children)
        else:
            self._orphans += children

    def terminate(self, timeout_s: float = 60.0) -> int:
        """Ask it to end, and wait; its exit code."""
        assert self._process is not None, "the process was not started"
        self._orphans += _descendants(self._process.pid)
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.alive():
            self.kill()
        _end(self._orphans)


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _end(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        end(process, ((signal.SIGKILL, _KILLED_S),))


def kill(victim: Victim, weight: int = 1) -> Fault:
    """Kill a process with -9 and start it again."""

    def strike(_rng: random.Random) -> None:
        victim.kill()
        victim.start()

    return Fault("kill -9", strike, weight)


def restart(server: Server, weight: int = 1) -> Fault:
    """Stop a server in good order and start it again."""
    return Fault(f"restart of {server.name}", lambda _rng: server.restart(), weight)


def crash(server: Server, weight: int = 1) -> Fault:
    """Kill a server and start it again on what it left behind."""

    def strike(_rng: random.Random) -> None:
        server.kill()
        server.start()

    return Fault(f"crash of {server.name}", strike, weight)


def end_walsender(url: str, slot: str, weight: int = 1) -> Fault:
    """End the connection that reads a slot, from the server's side. `url` is a superuser's."""

    def strike(_rng: random.Random) -> None:
        query = "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s and active"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(query, [slot])

    return Fault("end of the walsender", strike, weight)


def cut(proxy: Proxy, weight: int = 1) -> Fault:
    """Reset all connections of a proxy."""

    def strike(_rng: random.Random) -> None:
        proxy.cut()

    return Fault("cut connections", strike, weight)


def stall(proxy: Proxy, longest_s: float = 2.0, weight: int = 1) -> Fault:
    """Hold everything back for a while; then either let it go or cut it off."""

    def strike(rng: random.Random) -> None:
        proxy.stall()
        time.sleep(rng.uniform(0, longest_s))
        if rng.random() < 0.5:
            proxy.cut()
        proxy.resume()

    return Fault("stalled connections", strike, weight)
