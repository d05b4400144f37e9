"""The log with an event loop: what the gateway's handlers call.

store = await Store.open(url, settings=StoreSettings())
topic = await store.catalog.create("orders", 3, {})
await store.append(topic, 0, records)                       -> Appended
await store.fetch([Want(topic.parts[0], 0, 1 << 20)], ...)  -> [Fetched]

catalog     topics, in memory and in PostgreSQL
writer      one task, one connection: everything that waits becomes one commit
tails       how far each partition goes, its newest batches, and who waits for more
reader      batches from memory, or else from PostgreSQL
links       what gateways tell each other
retention, compaction, inbox        what one gateway at a time does for all, run by `duty`
"""

from headgate.commitlog.append import Appended
from headgate.gateway.store.catalog import Catalog, NewTopic, Topic
from headgate.gateway.store.reader import Fetched, Found, Want
from headgate.gateway.store.settings import StoreSettings
from headgate.gateway.store.store import Store
from headgate.gateway.store.tails import Tails
from headgate.gateway.store.writer import WRITING

__all__ = [
    "WRITING",
    "Appended",
    "Catalog",
    "Fetched",
    "Found",
    "NewTopic",
    "Store",
    "StoreSettings",
    "Tails",
    "Topic",
    "Want",
]
