"""What each transaction of a workload does. Pure: the seed, the worker and the number decide, never the data.

Statements are written so that they find rows whatever other workers did meanwhile: they take the next rows at or
after a random key. Every transaction begins by entering itself in the ledger and ends by marking its entry, so that
its fate can be looked up, and so that a stream which lost a transaction's first or last change cannot equal the tables.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from psycopg import sql

from tests.cdc.shop import Shop, raw
from tests.cdc.tables import Column, Table

__all__ = ["Copy", "Ending", "Pause", "Plan", "Run", "Step", "WorkloadOptions", "abandon", "plan_transaction"]

Query: TypeAlias = sql.SQL | sql.Composed

_BIG_BATCH = 0
_SAVEPOINTS = ("one", "two")


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """How much work: `transactions` for each of the `workers`, at most `seconds` in all.

    Every twentieth transaction copies `copied_rows` in; with `big_rows` one late transaction writes that many.
    """

    seed: int = 1
    workers: int = 4
    transactions: int = 40
    seconds: float = 60.0
    longest_pause_s: float = 0.05
    copied_rows: int = 2000
    big_rows: int = 0

    def at(self, share: float) -> int:
        """The number of the transaction when this share of a worker's work is done."""
        return int(self.transactions * share)


@dataclass(frozen=True, slots=True)
class Run:
    """One statement. Its text is for execution with parameters, even if there are none."""

    query: Query
    params: tuple[str | int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """COPY of rows into a table."""

    query: Query
    rows: tuple[tuple[str | int | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """The transaction stays open while others go on."""

    seconds: float


Step: TypeAlias = Run | Copy | Pause


class Ending(enum.Enum):
    """How a transaction is meant to end."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    DISCONNECT = "disconnect"


@dataclass(frozen=True, slots=True)
class Plan:
    """One transaction, from after BEGIN to before its end."""

    worker: int
    number: int
    steps: tuple[Step, ...]
    ending: Ending


def plan_transaction(shop: Shop, options: WorkloadOptions, worker: int, number: int) -> Plan:
    """The transaction that this worker does as its number so and so."""
    rng = random.Random(f"{options.seed}/{worker}/{number}")
    body = _body(shop, options, worker, number, rng)
    ending = rng.choices(tuple(Ending), (85, 10, 5))[0]
    if options.big_rows and (worker, number) == (0, options.at(0.7)):
        body, ending = _big(shop.bulk, options.big_rows), Ending.COMMIT
    enter = sql.SQL("insert into {} values (%s, %s, 'open', 0)").format(shop.ledger.identifier)
    close = sql.SQL("update {} set state = 'done', steps = %s where worker = %s and number = %s")
    first = Run(enter, (worker, number))
    last = Run(close.format(shop.ledger.identifier), (len(body), worker, number))
    return Plan(worker, number, (first, *body, last), ending)


def abandon(shop: Shop, plan: Plan) -> tuple[Run, Run]:
    """Two statements that decide a transaction whose end nobody heard, and tell how it ended.

    The first waits while the transaction is still going on, and takes its place in the ledger if it left none.
    """
    take = sql.SQL("insert into {} values (%s, %s, 'abandoned', 0) on conflict do nothing")
    look = sql.SQL("select state from {} where worker = %s and number = %s")
    place = (plan.worker, plan.number)
    return Run(take.format(shop.ledger.identifier), place), Run(look.format(shop.ledger.identifier), place)


def _body(shop: Shop, options: WorkloadOptions, worker: int, number: int, rng: random.Random) -> list[Step]:
    steps: list[Step] = []
    is_long = rng.random() < 0.15
    for _ in range(rng.randint(1, 6)):
        # No table is emptied near the end: a wrong value is found only in a row that is still there.
        empties = rng.random() < 0.02 and number < options.at(0.6)
        work = _emptying(shop, rng) if empties else _work(shop, rng)
        steps += _inside_savepoint(work, rng) if rng.random() < 0.2 else work
        if is_long:
            steps.append(Pause(rng.uniform(0, options.longest_pause_s)))
    if number % 20 == 10 and options.copied_rows:
        steps.insert(
            rng.randint(0, len(steps)), _copy_batch(shop.bulk, worker * 10**6 + number, options.copied_rows, rng)
        )
    if number % 40 == 17:
        steps.append(_thin_out_batch(shop.bulk))
    return steps


def _work(shop: Shop, rng: random.Random) -> list[Step]:
    """One or two statements."""
    table = rng.choice(shop.everyday)
    kinds = (_insert, _upsert, _update, _delete, _change_key) if table.key else (_insert, _copy, _update, _delete)
    weights = (30, 10, 30, 12, 10)[: len(kinds)]
    makers = rng.choices(kinds, weights, k=rng.randint(1, 2))
    return [make(table, shop, rng) for make in makers]


def _emptying(shop: Shop, rng: random.Random) -> list[Step]:
    table = rng.choice(shop.everyday)
    others = [other for other in shop.everyday if other is not table and rng.random() < 0.05]
    restart = " restart identity" if rng.random() < 0.5 else ""
    cascade = " cascade" if shop.account in (table, *others) or rng.random() < 0.3 else ""
    names = _listed([each.identifier for each in (table, *others)])
    return [Run(sql.SQL("truncate {}").format(names) + raw(restart + cascade))]


def _inside_savepoint(work: list[Step], rng: random.Random) -> list[Step]:
    """Rolled back or released, sometimes one inside the other."""
    for name in _SAVEPOINTS[: rng.randint(1, 2)]:
        end = rng.choice(("rollback to savepoint", "release savepoint"))
        work = [Run(raw(f"savepoint {name}")), *work, Run(raw(f"{end} {name}"))]
    return work


# Names in statements that take parameters: the client reads a percent sign as a parameter, also inside quotes.


def _name(column: str) -> sql.Identifier:
    return sql.Identifier(column.replace("%", "%%"))


def _names(columns: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(_name, columns))


def _listed(items: Sequence[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(items)


def _values(columns: Iterable[Column], rng: random.Random) -> tuple[str | None, ...]:
    return tuple(column.make(rng) for column in columns if column.make is not None)


def _insert_query(table: Table, shop: Shop, rows: int) -> sql.Composed:
    row = sql.SQL("({})").format(_listed([shop.fill(column.expression) for column in table.written]))
    names = _names(column.name for column in table.written)
    return sql.SQL("insert into {} ({}) values {}").format(table.identifier, names, _listed([row] * rows))


def _insert(table: Table, shop: Shop, rng: random.Random) -> Run:
    rows = rng.randint(1, 4)
    query = _insert_query(table, shop, rows) + sql.SQL(" on conflict do nothing")
    return Run(query, tuple(value for _ in range(rows) for value in _values(table.written, rng)))


def _upsert(table: Table, shop: Shop, rng: random.Random) -> Run:
    changed = [_name(column.name) for column in _some(table.payload, rng)]
    taken = _listed([sql.SQL("{} = excluded.{}").format(name, name) for name in changed])
    tail = sql.SQL(" on conflict ({}) do update set {}").format(_names(table.key), taken)
    return Run(_insert_query(table, shop, 1) + tail, _values(table.written, rng))


def _update(table: Table, shop: Shop, rng: random.Random) -> Run:
    columns = _some(table.payload, rng)
    which, params = _rows_at(table, rng, rng.randint(1, 3))
    query = sql.SQL("update {} set {} where {}").format(table.identifier, _assigned(columns, shop), which)
    return Run(query, (*_values(columns, rng), *params))


def _change_key(table: Table, shop: Shop, rng: random.Random) -> Run:
    """One row gets another key that is free, and sometimes another value beside it."""
    columns = (*table.key_columns, *(_some(table.payload, rng) if rng.random() < 0.5 else ()))
    which, params = _rows_at(table, rng, 1)
    new = _values(columns, rng)
    taken = sql.SQL("select from {} where ({}) = ({})").format(
        table.identifier, _names(table.key), _listed([sql.SQL("%s")] * len(table.key))
    )
    query = sql.SQL("update {} set {} where {} and not exists ({})")
    query_now = query.format(table.identifier, _assigned(columns, shop), which, taken)
    return Run(query_now, (*new, *params, *new[: len(table.key)]))


def _delete(table: Table, _shop: Shop, rng: random.Random) -> Run:
    which, params = _rows_at(table, rng, rng.randint(1, 2))
    return Run(sql.SQL("delete from {} where {}").format(table.identifier, which), params)


def _copy(table: Table, _shop: Shop, rng: random.Random) -> Copy:
    return _copy_rows(table, table.written, [_values(table.written, rng) for _ in range(rng.randint(1, 9))])


def _some(columns: Sequence[Column], rng: random.Random) -> Sequence[Column]:
    """Few of them, mostly: the others are the ones that an UPDATE must not lose."""
    return rng.sample(columns, min(len(columns), rng.choice((1, 1, 2, 3))))


def _assigned(columns: Sequence[Column], shop: Shop) -> sql.Composed:
    each = [sql.SQL("{} = {}").format(_name(column.name), shop.fill(column.expression)) for column in columns]
    return _listed(each)


def _rows_at(table: Table, rng: random.Random, limit: int) -> tuple[sql.Composed, tuple[str | int | None, ...]]:
    """A condition for the next few rows at a random place."""
    if not table.key:
        place = sql.SQL("ctid = any (array(select ctid from {} order by ctid offset %s limit %s))")
        return place.format(table.identifier), (rng.randint(0, 15), limit)
    key = _names(table.key)
    start = _listed([sql.SQL("%s")] * len(table.key))
    query = sql.SQL("({}) in (select {} from {} where ({}) >= ({}) order by {} limit %s)")
    return query.format(key, key, table.identifier, key, start, key), (*_values(table.key_columns, rng), limit)


# Batches


def _copy_rows(table: Table, columns: Sequence[Column], rows: Iterable[tuple[str | int | None, ...]]) -> Copy:
    names = _listed([sql.Identifier(column.name) for column in columns])
    return Copy(sql.SQL("copy {} ({}) from stdin").format(table.identifier, names), tuple(rows))


def _copy_batch(bulk: Table, batch: int, rows: int, rng: random.Random) -> Copy:
    columns = (*bulk.key_columns, *bulk.written)
    return _copy_rows(bulk, columns, ((batch, n, *_values(bulk.written, rng)) for n in range(rows)))


def _thin_out_batch(bulk: Table) -> Run:
    oldest = "delete from {} where batch = (select min(batch) from {} where batch > %s) and n %% 2 = 0"
    return Run(sql.SQL(oldest).format(bulk.identifier, bulk.identifier), (_BIG_BATCH,))


def _big(bulk: Table, rows: int) -> list[Step]:
    """One large transaction with a part that is rolled back, and changes to its own rows."""
    texts = (
        "insert into {} (batch, n, price, label) select {}, n, n % 1000, 'row ' || n from generate_series(1, {}) n",
        "savepoint big",
        "update {} set label = 'never' where batch = {} and n <= {} / 20",
        "rollback to savepoint big",
        "update {} set price = price + 1 where batch = {} and n <= {} / 10",
        "delete from {} where batch = {} and n > {} * 0.99",
    )
    numbers = sql.Literal(_BIG_BATCH), sql.Literal(rows)
    return [Run(sql.SQL(text.replace("%", "%%")).format(bulk.identifier, *numbers)) for text in texts]
