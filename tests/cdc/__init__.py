"""What the correctness tests of change data capture stand on. Knows the message format and no bridge.

shop = Shop("w1")                              tables, publication and a role that may only read
Workload(url, shop, WorkloadOptions(seed=1))   random transactions on several connections
Chaos(seed=1, faults=[...]).run(...)           processes killed, servers restarted, connections cut
Fold(identities(...)).feed_all(events)         the stream, distrusted event by event, as tables
compare(fold, connection) == []                these tables beside the real ones
Oracle(url, shop).compare() == []              a native subscription beside the real ones
ReferenceBridge(url, slot, publication)        a correct stream, to test all this with
"""

from __future__ import annotations

from tests.cdc.catalog import identities, pin_session, published_columns, read_types
from tests.cdc.chaos import Chaos, Fault, Strike, Victim, crash, cut, end_walsender, kill, restart, stall
from tests.cdc.compare import Form, compare, read_rows
from tests.cdc.fold import Event, Fold, FoldError, KeyedRows, Row, RowBag, TableName
from tests.cdc.oracle import SERVER_SETTINGS, Oracle
from tests.cdc.plan import Ending, Plan, WorkloadOptions, plan_transaction
from tests.cdc.proxy import Proxy
from tests.cdc.reference import ReferenceBridge, decoded
from tests.cdc.shop import Connection, Shop
from tests.cdc.tables import Column, Table
from tests.cdc.workload import Outcome, Tally, Workload

__all__ = [
    "SERVER_SETTINGS",
    "Chaos",
    "Column",
    "Connection",
    "Ending",
    "Event",
    "Fault",
    "Fold",
    "FoldError",
    "Form",
    "KeyedRows",
    "Oracle",
    "Outcome",
    "Plan",
    "Proxy",
    "ReferenceBridge",
    "Row",
    "RowBag",
    "Shop",
    "Strike",
    "Table",
    "TableName",
    "Tally",
    "Victim",
    "Workload",
    "WorkloadOptions",
    "compare",
    "crash",
    "cut",
    "decoded",
    "end_walsender",
    "identities",
    "kill",
    "pin_session",
    "plan_transaction",
    "published_columns",
    "read_rows",
    "read_types",
    "restart",
    "stall",
]
