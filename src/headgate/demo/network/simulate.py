"""A network on loopback: hosts with signed repositories, a directory of DIDs, and liars among them.

    async with Network(hosts=3, accounts=20, seed=1) as network:
        network.commit()                       # somebody writes something
        network.lie("omitted_op")              # a host tells a lie; the honest commit follows it
        ... follow network.options().plc_url and network.hostnames ...
        network.honest, network.lies           # what must come out, and what must not

The same seed gives the same accounts and writes. Ports are the system's choice. Frames are signed when they are made,
so `prepare` makes many of them ahead of time, and `release` lets the hosts send them as fast as they are read.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final

from headgate.demo.network.host import SimulatedDirectory, SimulatedHost
from headgate.demo.network.liars import LIES
from headgate.demo.network.repository import Repository, Write, create, delete, time_text, update
from headgate.relay.options import RelayOptions
from headgate.wire.atproto import Reason, read_frame, resequence, tid_of

__all__ = ["Network", "Told"]

_TICK_US: Final = 100
_AGE_US: Final = 60_000_000  # the network's clock begins this long ago, so that no rev is of the future
_PROFILE = "app.bsky.actor.profile/self"
# What people do, roughly as often as they do it.
_ACTIONS = (("like", 50), ("post", 20), ("follow", 12), ("repost", 10), ("profile", 3), ("delete", 5))
_COLLECTIONS = {
    "like": "app.bsky.feed.like",
    "post": "app.bsky.feed.post",
    "follow": "app.bsky.graph.follow",
    "repost": "app.bsky.feed.repost",
}
_WORDS = ("water", "over", "the", "weir", "slowly", "gate", "opens", "at", "dawn", "and", "falls", "again")


@dataclass(frozen=True, slots=True)
class Told:
    """An event that a host has sent, and the reason for which it must be dropped, if it is a lie."""

    host: str
    seq: int
    did: str
    reason: Reason | None = None


class Network:
    """See the module."""

    def __init__(self, hosts: int = 2, accounts: int = 10, *, seed: int = 0, lies: float = 0.0) -> None:
        self._random = random.Random(seed)
        self._account_count, self._seed, self._lies_share = accounts, seed, lies
        self.hosts = [SimulatedHost() for _ in range(hosts)]
        self.directory = SimulatedDirectory()
        self.repos: list[Repository] = []
        self.honest: list[Told] = []
        self.lies: list[Told] = []
        self._now_us = 0

    async def __aenter__(self) -> Network:
        self._now_us = time.time_ns() // 1_000 - _AGE_US
        for server in (*self.hosts, self.directory):
            await server.start()
        for number in range(self._account_count):
            self.add_account(f"user{self._seed}x{number}", self.hosts[number % len(self.hosts)])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in (*self.hosts, self.directory):
            await server.stop()

    @property
    def hostnames(self) -> list[str]:
        return [host.name for host in self.hosts]

    def options(self, **changes: Any) -> RelayOptions:
        """What a relay needs to follow this network to its last event, without waiting for more than it must."""
        base = RelayOptions(
            plc_url=self.directory.url,
            allow_private=True,
            backlog=True,
            rates=False,
            account_limit=1_000_000,
            total_per_s=1_000_000.0,
            new_hosts_per_day=1_000_000,
            refresh_s=0.0,
            backoff_s=(0.02, 0.1),
            save_cursors_s=0.2,
        )
        return replace(base, **changes)

    # Accounts.

    def add_account(self, name: str, host: SimulatedHost, *, curve: str | None = None) -> Repository:
        """A new account, told of as hosts do: #identity, #account, and a first commit."""
        curve = curve or ("p256" if self._random.random() < 0.1 else "k256")
        repo = Repository(name, host.name, curve=curve, scheme="http")
        self.repos.append(repo)
        host.repos[repo.did] = repo
        self.directory.documents[repo.did] = repo.document()
        self.identity(repo)
        self.account(repo)
        self._tell(repo, [create(_PROFILE, {"$type": "app.bsky.actor.profile", "displayName": name})])
        return repo

    def host_of(self, repo: Repository) -> SimulatedHost:
        return next(host for host in self.hosts if host.name == repo.host)

    def identity(self, repo: Repository, *, handle: str | None = None) -> Told:
        host = self.host_of(repo)
        return self._send(repo, host, repo.identity(seq=host.next_seq, now_us=self._tick(), handle=handle))

    def account(self, repo: Repository, *, active: bool = True, status: str | None = None) -> Told:
        host = self.host_of(repo)
        frame = repo.account(seq=host.next_seq, now_us=self._tick(), active=active, status=status)
        return self._send(repo, host, frame)

    def sync(self, repo: Repository) -> Told:
        host = self.host_of(repo)
        return self._send(repo, host, repo.sync(seq=host.next_seq, now_us=self._tick()))

    def migrate(self, repo: Repository, host: SimulatedHost) -> None:
        """Move an account: its document and its repository are at the new host, which says so."""
        self.host_of(repo).repos.pop(repo.did, None)
        repo.host = host.name
        host.repos[repo.did] = repo
        self.directory.documents[repo.did] = repo.document()
        self.identity(repo)
        self.account(repo)

    # Writes.

    def commit(self, repo: Repository | None = None) -> Told:
        """Somebody writes something; now and then a host lies about it first."""
        repo = repo or self._random.choice(self.repos)
        if self._lies_share and self._random.random() < self._lies_share:
            return self.lie(self._random.choice(_ORDINARY_LIES), repo)
        return self._tell(repo, [self._write(repo)])

    def lie(self, name: str, repo: Repository | None = None) -> Told:
        """Tell a lie, then the truth that it was made of. The truth is returned, the lie is among `lies`."""
        repo, lie = repo or self._random.choice(self.repos), LIES[name]
        host = self.host_of(repo)
        teller = host if lie.host is None else next(other for other in self.hosts if other is not host)
        writes = [
            update(_PROFILE, {"displayName": self._text(3)}),
            self._create(repo, "post"),
            self._create(repo, "like"),
        ]
        frame = repo.commit(writes, seq=teller.next_seq, now_us=self._tick())
        self.lies.append(Told(teller.name, teller.next_seq, repo.did, lie.reason))
        teller.append(lie.tell(repo, frame))
        return self._send(repo, host, resequence(read_frame(frame), host.next_seq))

    def lose(self, repo: Repository) -> None:
        """A commit that the host never tells anybody of."""
        repo.commit([self._write(repo)], seq=1, now_us=self._tick())

    def prepare(self, count: int) -> None:
        """Make commits that no host sends before `release`."""
        for host in self.hosts:
            host.hold()
        for _ in range(count):
            self.commit()

    def release(self) -> None:
        for host in self.hosts:
            host.release()

    def _tell(self, repo: Repository, writes: Iterable[Write]) -> Told:
        host = self.host_of(repo)
        return self._send(repo, host, repo.commit(list(writes), seq=host.next_seq, now_us=self._tick()))

    def _send(self, repo: Repository, host: SimulatedHost, frame: bytes) -> Told:
        told = Told(host.name, host.next_seq, repo.did)
        host.append(frame)
        self.honest.append(told)
        return told

    def _write(self, repo: Repository) -> Write:
        names, weights = zip(*_ACTIONS, strict=True)
        action = self._random.choices(names, weights)[0]
        if action == "profile":
            return update(_PROFILE, {"$type": "app.bsky.actor.profile", "displayName": self._text(2)})
        if action == "delete":
            paths = [path for path in list(repo.records)[:50] if path != _PROFILE]
            if paths:
                return delete(self._random.choice(paths))
            action = "post"
        return self._create(repo, action)

    def _create(self, repo: Repository, action: str) -> Write:
        collection = _COLLECTIONS[action]
        now_us = self._tick()
        record: dict[str, Any] = {"$type": collection, "createdAt": time_text(now_us)}
        if action == "post":
            record |= {"text": self._text(12), "langs": ["en"]}
        else:
            other = self._random.choice(self.repos).did
            record |= {"subject": other if action == "follow" else {"uri": f"at://{other}/{_PROFILE}"}}
        return create(f"{collection}/{tid_of(now_us)}", record)

    def _text(self, words: int) -> str:
        return " ".join(self._random.choice(_WORDS) for _ in range(words))

    def _tick(self) -> int:
        self._now_us += _TICK_US
        return self._now_us


# Lies that a host can tell on and on: those that are no frame at all end its connection, and one is two megabytes.
_ORDINARY_LIES = sorted(
    name
    for name, lie in LIES.items()
    if lie.reason not in (Reason.BAD_CBOR, Reason.BLOCKS_TOO_BIG) and lie.host is None
)
