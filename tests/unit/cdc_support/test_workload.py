"""The workload does what it says, on a server that goes away, too; its stream folds to its tables."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from headgate.embedded import Endpoints, Stack
from headgate.wire.envelope import JsonEncoder
from tests.cdc import (
    Chaos,
    Connection,
    Ending,
    Fold,
    Form,
    Oracle,
    Outcome,
    Plan,
    Proxy,
    ReferenceBridge,
    Shop,
    Workload,
    WorkloadOptions,
    compare,
    crash,
    cut,
    decoded,
    identities,
    plan_transaction,
    restart,
    stall,
)
from tests.cdc.plan import Copy, Pause, Run

from .conftest import Recording

Connect = Callable[[], Connection]


def statements(plan: Plan) -> list[str]:
    return [step.query.as_string(None) for step in plan.steps if isinstance(step, Run)]


def test_the_seed_decides_what_every_transaction_does() -> None:
    def plans(seed: int) -> list[Plan]:
        options = WorkloadOptions(seed=seed, copied_rows=5)
        return [plan_transaction(Shop("x"), options, worker, number) for worker in range(2) for number in range(30)]

    assert plans(1) == plans(1)
    assert plans(1) != plans(2)
    assert len({str(plan.steps) for plan in plans(1)}) == 60


def test_plans_have_everything_in_them() -> None:
    options = WorkloadOptions(copied_rows=3)
    plans = [plan_transaction(Shop("x"), options, worker, number) for worker in range(8) for number in range(40)]
    text = "\n".join(statement for plan in plans for statement in statements(plan))
    for part in (
        "insert into", "on conflict do nothing", "do update set", "update ", "delete from", "not exists", "truncate",
        "cascade", "restart identity", "rollback to savepoint", "release savepoint", "savepoint two", "ctid",
    ):  # fmt: skip
        assert part in text, part
    assert {plan.ending for plan in plans} == set(Ending)
    assert any(isinstance(step, Copy) for plan in plans for step in plan.steps)
    assert any(isinstance(step, Pause) for plan in plans for step in plan.steps)
    assert all("state = 'done'" in statements(plan)[-1] for plan in plans)


def test_the_stream_folds_to_the_tables_and_so_does_the_subscription(recording: Recording, connect: Connect) -> None:
    connection = connect()
    fold = Fold(identities(connection, recording.shop.publication)).feed_all(recording.events)
    assert compare(fold, connection) == []
    assert recording.oracle_lines == []
    assert recording.tally.unknown_to(connection, recording.shop) == set()
    assert fold.transactions == len(recording.tally.committed)
    assert all(len(rows) > 0 for rows in fold.tables.values())


def test_the_workload_meets_what_it_is_for(recording: Recording) -> None:
    """Otherwise the tests that stand on it would prove nothing."""
    events = recording.events
    kinds = Counter((event["table"], event["operation"]) for event in events)
    for table in recording.shop.tables:
        assert kinds[table.name, "INSERT"], table.name
        assert kinds[table.name, "UPDATE"], table.name
    assert sum(count for (_, operation), count in kinds.items() if operation == "TRUNCATE") > 1
    documents = [event for event in events if event["table"] == "document" and event["operation"] == "UPDATE"]
    assert any("body" not in event["data"] for event in documents)
    assert any("old" in event and "body" not in event["data"] for event in documents)
    full = [event for event in events if event["schema"] == recording.shop.odd_schema and event["table"] == "account"]
    assert any("body" in event.get("old", {}) and "body" not in event["data"] for event in full)
    lsns = [event["commit_lsn"] for event in events if event["operation"] == "INSERT"]
    assert Counter(lsns).most_common(1)[0][1] >= 400
    rows = Counter(event["lsn"] for event in events)
    assert rows.most_common(1)[0][1] > 10  # COPY: many rows at one LSN
    assert recording.tally.outcomes[Outcome.ROLLED_BACK]
    assert recording.tally.outcomes[Outcome.DISCONNECTED]


def test_json_and_partitions_under_their_own_names(cdc: Endpoints, connect: Connect) -> None:
    assert cdc.postgres_url is not None
    assert cdc.postgres_tcp_url is not None
    shop, connection = Shop("leaves"), connect()
    shop.create(connection)
    shop.publish(connection, via_root=False)
    shop.grant(connection)
    url = shop.reader_url(cdc.postgres_tcp_url)
    bridge = ReferenceBridge(url, "leaves", shop.publication, protocol=1, encoder=JsonEncoder)
    bridge.create_slot()
    try:
        with Workload(cdc.postgres_url, shop, WorkloadOptions(seed=5, transactions=25, copied_rows=50)) as work:
            work.wait()
        keys = identities(connection, shop.publication)
        fold = Fold(keys).feed_all(decoded(bridge.read()))
        assert (shop.odd_schema, "measure south.east") in keys
        assert (shop.odd_schema, "measure") not in keys
        assert compare(fold, connection, Form.JSON) == []
        assert compare(fold, connection, Form.MESSAGE_PACK) != []  # the two forms are not mistaken for each other
    finally:
        bridge.drop_slot()
        shop.drop(connection)


def test_the_reader_may_read_and_nothing_else(cdc: Endpoints, connect: Connect, shop: Shop) -> None:
    assert cdc.postgres_tcp_url is not None
    connect().execute(shop.fill("create table {odd}.later ()"))
    with psycopg.connect(shop.reader_url(cdc.postgres_tcp_url), autocommit=True) as reader:
        for table in shop.tables:
            reader.execute(sql.SQL("select from {}").format(table.identifier))
        reader.execute(shop.fill("select from {odd}.later"))
        for statement in ("insert into {} default values", "truncate {}", "alter table {} add x int"):
            with pytest.raises(errors.InsufficientPrivilege):
                reader.execute(sql.SQL(statement).format(shop.account.identifier))
        rights = "select rolsuper, rolcreaterole, rolcreatedb, rolreplication from pg_roles where rolname = user"
        assert reader.execute(rights).fetchone() == (False, False, False, True)


def test_the_shop_leaves_nothing_behind(connect: Connect) -> None:
    connection, shop = connect(), Shop("brief")
    shop.create(connection)
    shop.publish(connection)
    shop.grant(connection)
    shop.drop(connection)
    left = """select nspname from pg_namespace where nspname like 'brief%' union all
              select rolname from pg_roles where rolname like 'brief%' union all
              select pubname from pg_publication where pubname like 'brief%'"""
    assert connection.execute(left).fetchall() == []
    shop.drop(connection)


def test_it_stops_by_itself_and_when_told(cdc: Endpoints, shop: Shop) -> None:
    assert cdc.postgres_url is not None
    began = time.monotonic()
    with Workload(cdc.postgres_url, shop, WorkloadOptions(transactions=10**6, seconds=0.5, copied_rows=0)) as work:
        assert work.wait().outcomes.total() > 0
        assert work.finished()
    with Workload(cdc.postgres_url, shop, WorkloadOptions(transactions=10**6, seconds=600, copied_rows=0)):
        pass
    assert time.monotonic() - began < 10


def test_an_unexpected_error_is_not_swallowed(cdc: Endpoints, connect: Connect, shop: Shop) -> None:
    assert cdc.postgres_url is not None
    connect().execute(sql.SQL("alter table {} add check (worker < 0)").format(shop.ledger.identifier))
    with Workload(cdc.postgres_url, shop) as work, pytest.raises(errors.CheckViolation):
        work.wait()


def _one_long_transaction(shop: Shop) -> WorkloadOptions:
    """A single transaction that is meant to commit, after pauses that outlast any test."""
    for seed in range(1000):
        options = WorkloadOptions(seed=seed, workers=1, transactions=1, longest_pause_s=600)
        plan = plan_transaction(shop, options, 0, 0)
        if plan.ending is Ending.COMMIT and any(isinstance(step, Pause) and step.seconds > 60 for step in plan.steps):
            return options
    raise AssertionError("no such transaction")


def _terminate(connection: Connection, condition: str, timeout_s: float = 20) -> None:
    """End the workload's backend as soon as the condition holds for it."""
    query = (
        f"select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'workload' and {condition}"
    )
    deadline = time.monotonic() + timeout_s
    while not connection.execute(query.encode()).fetchall():
        assert time.monotonic() < deadline, "the workload never came to that point"
        time.sleep(0.01)


def test_a_commit_that_nobody_confirmed_is_found_in_the_ledger(cdc: Endpoints, connect: Connect, shop: Shop) -> None:
    """The commit waits for a standby that does not exist, after it is in the log: there the connection breaks."""
    assert cdc.postgres_url is not None
    connection = connect()
    connection.execute("alter system set synchronous_standby_names = 'nobody'")
    connection.execute("select pg_reload_conf()")
    try:
        with Workload(cdc.postgres_url, shop, WorkloadOptions(workers=1, transactions=10**6)) as work:
            _terminate(connection, "wait_event = 'SyncRep'")
            work.stop()
            connection.execute("alter system reset synchronous_standby_names")
            connection.execute("select pg_reload_conf()")
            tally = work.wait()
    finally:
        connection.execute("alter system reset synchronous_standby_names")
        connection.execute("select pg_reload_conf()")
    assert tally.outcomes[Outcome.FOUND] == 1
    assert tally.reconnects == 1
    assert tally.unknown_to(connection, shop) == set()


def test_a_transaction_cut_off_before_its_commit_is_lost(cdc: Endpoints, connect: Connect, shop: Shop) -> None:
    assert cdc.postgres_url is not None
    connection = connect()
    with Workload(cdc.postgres_url, shop, _one_long_transaction(shop)) as work:
        _terminate(connection, "state = 'idle in transaction' and state_change < now() - interval '0.2 s'")
        work.stop()  # ends the pause, and so lets the worker see that its connection is gone
        tally = work.wait()
    assert tally.outcomes == {Outcome.LOST: 1}
    assert tally.unknown_to(connection, shop) == set()


@pytest.mark.timeout(120)
def test_it_survives_restarts_and_cut_connections(
    cdc_stack: Stack, shop: Shop, bridge: ReferenceBridge, connect: Connect
) -> None:
    endpoints, postgres = cdc_stack.endpoints, cdc_stack.postgres
    assert postgres is not None
    assert endpoints.postgres_url is not None
    options = WorkloadOptions(seed=3, transactions=10**6, seconds=90, copied_rows=100)
    with Oracle(endpoints.postgres_url, shop) as oracle, Proxy(postgres.port) as proxy:
        url = make_conninfo(endpoints.postgres_tcp_url or "", port=proxy.port)
        faults = [crash(postgres), restart(postgres), cut(proxy, 2), stall(proxy, 0.3, 2)]
        chaos = Chaos(seed=1, faults=faults, count=7, pause_s=(0.1, 0.5))
        with Workload(url, shop, options) as work:
            history = chaos.run(until=work.finished)
            messages = bridge.read()
            work.stop()
            tally = work.wait()
        messages += bridge.read()
        oracle.wait_for()
        assert oracle.compare() == [], history
    connection = connect()
    fold = Fold(identities(connection, shop.publication)).feed_all(decoded(messages))
    assert compare(fold, connection) == [], history
    assert tally.unknown_to(connection, shop) == set()
    assert tally.reconnects > 0
    assert {strike.fault for strike in history} == {fault.name for fault in faults}
