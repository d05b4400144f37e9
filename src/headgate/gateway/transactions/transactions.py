"""Requests about transactions: read the state, decide, and change it if it is still the one that was read.

What was decided on an old state is decided anew. All that a gateway has in memory is who waits for an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import psycopg

from headgate.commitlog.append import Membership
from headgate.gateway.cluster import Broker, Cluster
from headgate.gateway.groups import Commit, Coordinator
from headgate.gateway.groups.store import Term
from headgate.gateway.store import Store
from headgate.gateway.store.duty import Duty
from headgate.gateway.transactions.settings import TransactionSettings
from headgate.gateway.transactions.states import (
    Asked,
    Change,
    Identity,
    State,
    Transactional,
    aborted,
    check_producer,
    ended,
    initialized,
    needs_new_id,
)
from headgate.gateway.transactions.store import TransactionStore
from headgate.runtime.ending import end
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

__all__ = ["Transactions", "check_transactional_id"]

logger = logging.getLogger(__name__)

_TRIES = 20
_MAX_NAME_BYTES = 1_000  # what fits into an index
_PATIENCE_S = 30.0


class Transactions:
    """What any gateway does for any transactional id."""

    def __init__(
        self, store: Store, cluster: Cluster, groups: Coordinator, settings: TransactionSettings | None = None
    ) -> None:
        self.settings = settings or TransactionSettings()
        self._log = store
        self._cluster = cluster
        self._groups = groups
        self._store = TransactionStore(store.pool)
        self._sweeping: asyncio.Task[None] | None = None
        self._changing: set[asyncio.Task[bool]] = set()
        self._old_gateways: list[str] = []

    def start(self, url: str) -> None:
        """Begin to abort what has been open for too long; one gateway does it for all."""
        interval_s = self.settings.sweep_interval_s
        duty = Duty("transactions", url, interval_s, self._sweep, self._log.health, _PATIENCE_S)
        self._sweeping = asyncio.create_task(self._log.health.tend(duty.name, duty.run), name=duty.name)

    async def close(self) -> None:
        """Stop."""
        if self._sweeping is not None:
            await end(self._sweeping)
        await asyncio.gather(*self._changing, return_exceptions=True)

    def find(self, transactional_id: str) -> Broker:
        """The gateway that is asked about a transactional id. Any would do; tools ask for a list each of its own."""
        check_transactional_id(transactional_id)
        return self._cluster.choose(f"transaction {transactional_id}")

    # --- producers --------------------------------------------------------------------------------------------------

    async def begin(self, transactional_id: str, asked: Asked) -> Identity:
        """Give a producer its id and epoch; whoever had the transactional id before is fenced."""
        check_transactional_id(transactional_id)
        if not 0 < asked.timeout_ms <= self.settings.max_timeout_ms:
            raise Refused(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transactions may take from 1 to {self.settings.max_timeout_ms} ms",
            )
        await self._check_gateways()
        for _ in range(_TRIES):
            known = await self._store.find(transactional_id)
            new_id = await self._store.new_producer_id() if needs_new_id(known) else None
            change = initialized(known, asked, new_id)
            if change is None:
                assert known is not None
                return known.identity
            if await self._make(transactional_id, known, change):
                return change.identity
        raise _crowded()

    async def _check_gateways(self) -> None:
        """Refuse while a gateway lives that would serve what is not committed. Logged once: clients ask again."""
        before, self._old_gateways = self._old_gateways, await self._store.old_gateways()
        if self._old_gateways:
            text = f"the gateway at {self._old_gateways[0]} is of a version that knows no transactions; stop it first"
            if self._old_gateways != before:
                logger.warning("transactional producers must wait", extra={"why": text})
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)

    async def add(
        self, transactional_id: str, identity: Identity, parts: Sequence[int] = (), groups: Sequence[str] = ()
    ) -> None:
        """Make partitions and groups part of a producer's transaction; the first ones begin it."""
        check_transactional_id(transactional_id)
        for _ in range(_TRIES):
            known = check_producer(await self._store.find(transactional_id), identity)
            if known.state is State.ONGOING and set(parts) <= {*known.parts} and set(groups) <= {*known.groups}:
                return
            if await self._store.extend(known, parts, groups):
                return
        raise _crowded()

    async def parts_of(self, transactional_id: str, identity: Identity) -> frozenset[int]:
        """The partitions of a producer's open transaction."""
        check_transactional_id(transactional_id)
        known = check_producer(await self._store.find(transactional_id), identity)
        return frozenset(known.parts if known.state is State.ONGOING else ())

    async def end(self, transactional_id: str, identity: Identity, *, is_commit: bool, bumps: bool) -> Identity:
        """End a producer's transaction, all of it at once. Returns who the producer is from now on."""
        check_transactional_id(transactional_id)
        for _ in range(_TRIES):
            known = await self._store.find(transactional_id)
            new_id = await self._store.new_producer_id() if bumps and needs_new_id(known) else None
            change = ended(known, identity, new_id, is_commit=is_commit, bumps=bumps)
            if change is None:
                assert known is not None
                return known.identity
            if await self._make(transactional_id, known, change):
                return change.identity
        raise _crowded()

    async def commit_offsets(
        self,
        within: Membership,
        identity: Identity,
        group_id: str,
        member: tuple[str, str | None, int],
        commits: Sequence[Commit],
    ) -> None:
        """Keep offsets of a group until a producer's transaction commits. Raises `Refused`."""
        check_transactional_id(within.transactional_id)

        async def pend(term: Term) -> ErrorCode:
            return await self._store.pend(within, identity, term, commits)

        await self._groups.commit_later(group_id, member, pend)

    # --- administrators ---------------------------------------------------------------------------------------------

    async def abort(self, identity: Identity, part_id: int) -> None:
        """Abort the open transaction of a producer that writes to a partition, in all of its partitions."""
        for _ in range(_TRIES):
            transactional_id = await self._store.of_producer(identity.producer_id)
            known = await self._store.find(transactional_id) if transactional_id is not None else None
            if known is None or known.state is not State.ONGOING or part_id not in known.parts:
                return  # nothing of it is open there
            if identity.epoch < known.identity.epoch:
                raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH, f"the producer's epoch is {known.identity.epoch}")
            if await self._make(known.transactional_id, known, aborted(known)):
                return
        raise _crowded()

    async def describe(self, transactional_id: str) -> Transactional:
        """A transactional id. Raises `Refused` if there is none."""
        check_transactional_id(transactional_id)
        known = await self._store.find(transactional_id)
        if known is None:
            raise Refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return known

    async def listed(self, pattern: str | None) -> list[Transactional]:
        """The transactional ids that this gateway is asked about, of those that match a regular expression."""
        if pattern is not None and "\0" in pattern:
            return []
        found = await self._store.all(pattern or None)
        return [each for each in found if self.find(each.transactional_id).node_id == self._cluster.node_id]

    async def open_in(self, part_id: int) -> dict[int, int]:
        """The first offset of every producer that writes to a partition in a transaction."""
        return await self._store.open_in(part_id)

    # --- both -------------------------------------------------------------------------------------------------------

    async def _make(self, transactional_id: str, known: Transactional | None, change: Change) -> bool:
        """Whether a change was made. Once it has begun it is finished, also if whoever asked goes away."""
        task = asyncio.create_task(self._change(transactional_id, known, change))
        self._changing.add(task)
        task.add_done_callback(self._changed)
        return await asyncio.shield(task)

    def _changed(self, task: asyncio.Task[bool]) -> None:
        self._changing.discard(task)
        if not task.cancelled():
            task.exception()  # seen, even if nobody waits any more

    async def _change(self, transactional_id: str, known: Transactional | None, change: Change) -> bool:
        ends = await self._store.change(transactional_id, known, change)
        for part_id, marker, outcome in ends or ():
            self._log.committed(part_id, marker, outcome)
        return ends is not None

    async def _sweep(self, connection: psycopg.AsyncConnection) -> None:
        """Abort what has been open for longer than its producer has asked for. One that cannot be holds up no other."""
        failed: list[Exception] = []
        for transactional_id, version in await self._store.overdue(connection):
            try:
                await self._expire(transactional_id, version)
            except Refused as outage:
                logger.warning("an abort waits for the database", extra={"why": str(outage)})
                return
            except Exception as error:
                logger.exception("a transaction cannot be aborted", extra={"transactional_id": transactional_id})
                failed.append(error)
        if failed:
            raise failed[0]

    async def _expire(self, transactional_id: str, version: int) -> None:
        known = await self._store.find(transactional_id)
        if known is None or known.version != version:
            return  # it has gone on meanwhile; another one may be open by now
        if await self._make(transactional_id, known, aborted(known)):
            logger.warning(
                "a transaction was open for too long, and is aborted",
                extra={"transactional_id": transactional_id, "timeout_ms": known.timeout_ms},
            )


def check_transactional_id(transactional_id: str) -> None:
    """Refuse what is none."""
    if not transactional_id or "\0" in transactional_id or len(transactional_id.encode()) > _MAX_NAME_BYTES:
        raise Refused(ErrorCode.INVALID_REQUEST, f"a transactional id has 1 to {_MAX_NAME_BYTES} bytes")


def _crowded() -> Refused:
    return Refused(ErrorCode.CONCURRENT_TRANSACTIONS, "several producers use this transactional id")
