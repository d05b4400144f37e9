"""The rows of a table at one exact point of its changes.

    with exported_point(url, "public", "users") as point:       or filtered_point, which needs no slot
        table = plan_table(url, "public", "users", ("shop",))
        for part in table.ranges(4):
            read_range(options, SnapshotRange(table, part, point.snapshot_name))  -> pa.RecordBatch ...

A row has the bytes that `data` of a change event has for the same row. Modules: `points` takes the point and holds it,
`plan` says what to read, `copying` reads it, `reading` makes it rows, `datasource` is Spark's `pgsnapshot`.
"""

from __future__ import annotations
