"""Rows that may not go where they want: counted, and dropped, an error, or dead letters."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headgate.model import DeliveryError, record
from headgate.model.address import Address
from headgate.pipeline.routing.admission import Reason
from headgate.pipeline.routing.job import Job, Report
from headgate.pipeline.routing.router import key_columns

__all__ = ["DEAD_SCHEMA", "Refusals"]

_SAMPLES = 5
_NOWHERE = Address("", "")
_REMEDIES = {
    Reason.CAP: "raise admission.max_destinations",
    Reason.DENYLIST: "take it off the denylist",
    Reason.UNKNOWN: "add it to the allowlist",
    Reason.CIRCUIT_OPEN: "mend the destination; it is tried again after the cool-down",
    Reason.PARTITION_OUT_OF_RANGE: "correct the rows, or give the topic more partitions",
    Reason.INVALID_NAME: "names are letters, digits, _ and -, with single dots between",
}

DEAD_SCHEMA = pa.schema(
    [
        ("destination", pa.string()),
        (record.STREAM, pa.string()),
        (record.TOPIC, pa.string()),
        ("reason", pa.string()),
        (record.MESSAGE_ID, pa.string()),
        (record.PARTITION_KEY, pa.binary()),
        (record.PARTITION, pa.int64()),
        (record.PAYLOAD, pa.binary()),
        ("error", pa.string()),
    ]
)


class Refusals:
    """Of one round of one task."""

    def __init__(self, job: Job, report: Report) -> None:
        self._job = job
        self._report = report
        self.dead: list[pa.RecordBatch] = []

    def missing(self, rows: pa.RecordBatch) -> None:
        """Rows that no rule gives a destination."""
        rows = _without_descriptions(rows)
        if not rows.num_rows:
            return
        self._report.missing += rows.num_rows
        names = [name for name in key_columns(self._job.rules) if name in rows.schema.names]
        examples = rows.select(names).slice(0, _SAMPLES).to_pylist()
        self._report.samples = sorted({"/".join(str(value) for value in row.values()) for row in examples})
        if self._job.on_missing == "error":
            raise DeliveryError(
                f"{rows.num_rows} rows have no destination, such as message {rows.column(record.MESSAGE_ID)[0]}",
                remedy="add a route or a default, or set admission.on_missing_destination to drop or dlq",
            )
        if self._job.on_missing == "dlq":
            self.dead.append(_dead(rows, "", _NOWHERE, Reason.MISSING))

    def refuse(self, rows: pa.RecordBatch, wanted: Address, reason: Reason, name: str = "", cause: str = "") -> None:
        """Rows that may not have their destination: none of the configured ones, or that of a name."""
        if not rows.num_rows:
            return
        if self._job.on_refusal == "error":
            raise DeliveryError(
                f"{rows.num_rows} rows may not go to {wanted}: {reason.value}" + (f" ({cause})" if cause else ""),
                remedy=f"{_REMEDIES.get(reason, '')}; or set admission.on_admission_failure to drop or dlq",
            )
        counts = self._report.refused
        counts[reason.value] = counts.get(reason.value, 0) + rows.num_rows
        if self._job.on_refusal == "dlq":
            self.dead.append(_dead(rows, name, wanted, reason, cause))


def _without_descriptions(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Without events that describe a table: they are no rows, and are in the bucket of schemas as well."""
    if record.OP not in rows.schema.names:
        return rows
    return rows.filter(pc.fill_null(pc.not_equal(rows.column(record.OP), "schema"), True))


def _dead(rows: pa.RecordBatch, name: str, wanted: Address, reason: Reason, error: str = "") -> pa.RecordBatch:
    count = rows.num_rows

    def given(column: str, kind: pa.DataType) -> pa.Array:
        return rows.column(column).cast(kind) if column in rows.schema.names else pa.nulls(count, kind)

    columns = [
        *(pa.array([text] * count, pa.string()) for text in (name, wanted.stream, wanted.topic, reason.value)),
        rows.column(record.MESSAGE_ID).cast(pa.string()),
        given(record.PARTITION_KEY, pa.binary()),
        given(record.PARTITION, pa.int64()),
        rows.column(record.PAYLOAD).cast(pa.binary()),
        pa.array([error] * count, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DEAD_SCHEMA)
