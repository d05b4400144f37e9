"""Random transactions against a real PostgreSQL over several connections at once, bounded in count and time.

What each transaction does is fixed by the seed (`plan`); how they interleave is not, and what the server refuses
(deadlocks, lock timeouts, keys taken meanwhile) is rolled back and counted. When the server goes away under a
transaction, its worker waits for it to come back and looks in the ledger whether the transaction committed.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

import psycopg
from psycopg import errors, sql

from tests.cdc.plan import Copy, Ending, Pause, Plan, Run, Step, WorkloadOptions, abandon, plan_transaction
from tests.cdc.shop import Connection, Shop

__all__ = ["Outcome", "Tally", "Workload"]

_REFUSALS = (
    errors.DeadlockDetected,
    errors.ForeignKeyViolation,
    errors.LockNotAvailable,
    errors.SerializationFailure,  # a row moved to another partition under us
    errors.UniqueViolation,
)
_SETTINGS = "-c lock_timeout=300ms -c deadlock_timeout=100ms -c statement_timeout=60s -c client_min_messages=warning"
_RETRY_S = 0.05


class Outcome(enum.Enum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    DISCONNECTED = "disconnected"
    REFUSED = "refused by the server"
    FOUND = "committed, as the ledger told after a broken connection"
    LOST = "not committed, as the ledger told after a broken connection"


@dataclass
class Tally:
    """What a workload has done."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    committed: set[tuple[int, int]] = field(default_factory=set)
    reconnects: int = 0

    def add(self, plan: Plan, outcome: Outcome) -> None:
        """Count one transaction."""
        self.outcomes[outcome] += 1
        if outcome in (Outcome.COMMITTED, Outcome.FOUND):
            self.committed.add((plan.worker, plan.number))

    @classmethod
    def sum(cls, parts: Iterable[Tally]) -> Tally:
        """Those of all workers together."""
        whole = cls()
        for part in parts:
            whole.outcomes += part.outcomes
            whole.committed |= part.committed
            whole.reconnects += part.reconnects
        return whole

    def unknown_to(self, connection: Connection, shop: Shop) -> set[tuple[int, int]]:
        """Transactions in which client and ledger disagree: there must be none."""
        query = sql.SQL("select worker, number from {} where state = 'done'").format(shop.ledger.identifier)
        return self.committed ^ set(connection.execute(query).fetchall())


class _BrokenConnectionError(Exception):
    """The server is gone; what became of the transaction is not known yet."""


class Workload:
    """Workers in threads: `with Workload(...) as work`, then `work.wait()`. Leaving the block ends them early.

    `patience_s` is how long a worker waits for a server that is away before it gives up with an error.
    """

    def __init__(
        self, url: str, shop: Shop, options: WorkloadOptions | None = None, *, patience_s: float = 60.0
    ) -> None:
        options = options or WorkloadOptions()
        self._stop = threading.Event()
        self._seconds = options.seconds
        self._workers = [_Worker(url, shop, options, each, self._stop, patience_s) for each in range(options.workers)]
        self._pool = ThreadPoolExecutor(options.workers, "workload")
        self._futures: list[Future[None]] = []

    def start(self) -> Self:
        """Set the workers to work."""
        deadline = time.monotonic() + self._seconds
        self._futures = [self._pool.submit(worker.run, deadline) for worker in self._workers]
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._pool.shutdown()

    def stop(self) -> None:
        """Let each worker end the transaction it is in, without its pauses, and begin no other."""
        self._stop.set()

    @property
    def committed(self) -> int:
        """How many transactions have committed so far."""
        return sum(len(worker.tally.committed) for worker in self._workers)

    def finished(self) -> bool:
        """Whether all workers are done, or one of them has failed."""
        return all(future.done() for future in self._futures) or any(
            future.done() and future.exception() for future in self._futures
        )

    def wait(self) -> Tally:
        """What was done, when all is done. Raises what a worker met and did not expect."""
        for future in self._futures:
            future.result()
        return Tally.sum(worker.tally for worker in self._workers)


class _Worker:
    """One connection's work."""

    def __init__(
        self, url: str, shop: Shop, options: WorkloadOptions, number: int, stop: threading.Event, patience_s: float
    ) -> None:
        self.tally = Tally()
        self._url = url
        self._shop = shop
        self._options = options
        self._number = number
        self._stop = stop
        self._patience_s = patience_s
        self._connection: Connection | None = None

    def run(self, deadline: float) -> None:
        """Do the transactions, one after the other, until they or the time are at their end."""
        try:
            for number in range(self._options.transactions):
                if self._stop.is_set() or time.monotonic() > deadline:
                    break
                plan = plan_transaction(self._shop, self._options, self._number, number)
                self.tally.add(plan, self._outcome(plan))
        finally:
            self._disconnect()

    def _outcome(self, plan: Plan) -> Outcome:
        try:
            return self._attempt(plan)
        except _BrokenConnectionError:
            return self._resolve(plan)

    def _attempt(self, plan: Plan) -> Outcome:
        connection = self._connected()
        try:
            connection.execute("begin")
            for step in plan.steps:
                self._perform(connection, step)
            return self._end(connection, plan.ending)
        except psycopg.Error as error:
            if _is_broken(connection, error):
                raise _BrokenConnectionError from error
            if not isinstance(error, _REFUSALS):
                raise
        return self._refused(connection)

    def _refused(self, connection: Connection) -> Outcome:
        try:
            connection.execute("rollback")
        except psycopg.OperationalError as error:
            raise _BrokenConnectionError from error
        return Outcome.REFUSED

    def _perform(self, connection: Connection, step: Step) -> None:
        match step:
            case Run(query, params):
                connection.execute(query, params)
            case Copy(query, rows):
                with connection.cursor().copy(query) as copy:
                    for row in rows:
                        copy.write_row(row)
            case Pause(seconds):
                self._stop.wait(seconds)

    def _end(self, connection: Connection, ending: Ending) -> Outcome:
        if ending is Ending.DISCONNECT:
            self._disconnect()
            return Outcome.DISCONNECTED
        connection.execute(sql.SQL("commit" if ending is Ending.COMMIT else "rollback"))
        return Outcome.COMMITTED if ending is Ending.COMMIT else Outcome.ROLLED_BACK

    def _resolve(self, plan: Plan) -> Outcome:
        """Ask the ledger, for as long as it takes to get an answer."""
        take, look = abandon(self._shop, plan)
        while True:
            self._disconnect()
            self.tally.reconnects += 1
            connection = self._connected()
            try:
                connection.execute("set lock_timeout = 0")
                connection.execute(take.query, take.params)
                row = connection.execute(look.query, look.params).fetchone()
                connection.execute("reset lock_timeout")
            except psycopg.OperationalError as error:
                if not _is_broken(connection, error):
                    raise
            else:
                return Outcome.FOUND if row == ("done",) else Outcome.LOST

    def _connected(self) -> Connection:
        deadline = time.monotonic() + self._patience_s
        while self._connection is None or self._connection.closed:
            try:
                self._connection = psycopg.connect(
                    self._url,
                    autocommit=True,
                    connect_timeout=5,
                    application_name="workload",
                    options=_SETTINGS,
                    prepare_threshold=None,
                )
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)  # a server that starts tells nobody
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _is_broken(connection: Connection, error: psycopg.Error) -> bool:
    return connection.closed or isinstance(error, errors.AdminShutdown | errors.CrashShutdown)
