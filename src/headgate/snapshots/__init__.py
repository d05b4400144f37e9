"""What lets a consumer begin with nothing: descriptions of tables in a bucket, and snapshots on demand.

    schemas      the bucket of descriptions, kept in step with the reader's book of shapes
    jobs         a snapshot as it is asked for, made and remembered
    chunks       rows -> messages
    copying      one snapshot: a consistent point, a Spark job that reads and sends, the message that ends it
    requests     `snapshot.request.>` over NATS, and the progress that the senders report
    service      all of it, for one pipeline

The wire format is described in docs/snapshots.md.
"""

from __future__ import annotations

from headgate.snapshots.jobs import Job
from headgate.snapshots.open import open_snapshot_services
from headgate.snapshots.service import SnapshotService, SnapshotServiceOptions

__all__ = ["Job", "SnapshotService", "SnapshotServiceOptions", "open_snapshot_services"]
