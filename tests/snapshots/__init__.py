"""A small origin for tests of the consumer's side: real PostgreSQL, real NATS, real bytes, one step at a time.

origin = await Origin.open(database)       streams, bucket, slot; answers snapshot.request.>
origin.sql("insert into users ...")
await origin.pump()                        what committed since the last time goes into the stream
"""

from __future__ import annotations

from tests.snapshots.origin import Origin
from tests.snapshots.servers import Database, fresh_database, shared_stack, target_url

__all__ = ["Database", "Origin", "fresh_database", "shared_stack", "target_url"]
