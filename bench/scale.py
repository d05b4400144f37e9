"""A backlog on a cluster: one executor and two, with all rows in order, those of a table, or those of a key.

Executors are processes with one core each. On a machine with fewer cores than they, PostgreSQL and NATS want together,
two of them share what one had: the figures then say what sharing a batch costs, and not what more machines give.
"""

from __future__ import annotations

import psycopg

from bench.cdc_backlog import FIRST, backlog_rate
from bench.cdc_load import fill, make_table
from bench.harness import Bench
from headgate.embedded import Endpoints, Stack

_TABLES = tuple(f"ledger{number}" for number in range(8))
_CONFIGURATION = """
project = {{ name = "scale", data_dir = "{data_dir}" }}
postgres = {{ url = "{postgres}" }}
nats = {{ url = "{nats}" }}
control = {{ port = 0 }}
spark = {{ master = "local-cluster[{executors},1,1024]" }}
sources.changes = {{ type = "postgres-cdc", slot = "{name}", publication = "bench", subject = "{name}.{{table}}" }}
destinations.stream = {{ type = "nats", stream = "{name}", subjects = ["{name}.>"] }}
pipelines.scale = {{ source = "changes", destinations = ["stream"], ordering = "{ordering}", tasks = {executors} }}
"""


def measure(bench: Bench) -> None:
    rows = FIRST + (100_000 if bench.quick else min(bench.rows, 500_000))
    with Stack(bench.directory / "stack") as endpoints:
        assert endpoints.postgres_url is not None
        with psycopg.connect(endpoints.postgres_url, autocommit=True) as admin:
            for name in _TABLES:
                make_table(admin, name)
            admin.execute(f"create publication bench for table {', '.join(_TABLES)}".encode())
            for ordering in ("key",) if bench.quick else ("total", "table", "key"):
                for executors in (1, 2):
                    slot = f"{ordering}_{executors}"
                    admin.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
                    fill(admin, rows, tables=_TABLES)
                    rate = _rate(bench, endpoints, slot, ordering, executors, rows)
                    bench.figure(f"{ordering}_{executors}_executors_rows_per_second", rate)
                    admin.execute("select pg_drop_replication_slot(%s)", [slot])


def _rate(bench: Bench, endpoints: Endpoints, slot: str, ordering: str, executors: int, rows: int) -> float:
    text = _CONFIGURATION.format(
        data_dir=bench.directory / slot,
        postgres=endpoints.postgres_url,
        nats=endpoints.nats_url,
        name=slot,
        ordering=ordering,
        executors=executors,
    )
    return backlog_rate(text, endpoints, slot, rows)
