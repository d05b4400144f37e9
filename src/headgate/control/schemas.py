"""What requests and answers of the control plane look like, as JSON Schema: the components of the OpenAPI file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.model import Kind, Retry, Status

__all__ = ["LARGEST_NUMBER", "SCHEMAS", "refer"]

Schema = dict[str, Any]

LARGEST_NUMBER = 10**18 - 1  # in a path or a query


def refer(name: str) -> Schema:
    """A reference to one of `SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(
    fields: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None, *, closed: bool = False
) -> Schema:
    """All of `fields` are there. A closed one has no others, which is so of requests: unknown keys are refused."""
    made: Schema = {"type": "object", "properties": {**fields, **(optional or {})}}
    if fields:
        made["required"] = list(fields)
    return made | ({"additionalProperties": False} if closed else {})


def _list(of: Schema, **limits: int) -> Schema:
    return {"type": "array", "items": of, **limits}


def _map(of: Schema) -> Schema:
    return {"type": "object", "additionalProperties": of}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _fields(schema: Schema, *names: str) -> dict[str, Schema]:
    return dict.fromkeys(names, schema)


_TEXT: Schema = {"type": "string"}
_NONEMPTY: Schema = {"type": "string", "minLength": 1}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_LARGE: Schema = {**_COUNT, "maximum": 2**63 - 1}
_NUMBER: Schema = {"type": "number"}
_FLAG: Schema = {"type": "boolean"}
_ANYTHING: Schema = {"type": "object"}
_STATUS: Schema = {"type": "string", "enum": [each.value for each in Status]}
_ERROR = _maybe(refer("Error"))

_SUMMARY = {
    **_fields(_TEXT, "pipeline", "source"),
    "destinations": _list(_TEXT),
    "status": _STATUS,
    "rows_total": _COUNT,
    "error": _ERROR,
}
_REPORT = {
    **_SUMMARY,
    **_fields(
        _COUNT, "bytes_total", "duplicates_total", "batches_total", "restarts_total", "errors_total",
        "last_batch_rows", "failures_in_row", "abandoned_total",
    ),
    **_fields(_NUMBER, "status_since", "rows_per_second", "last_batch_seconds", "batch_seconds_p50"),
    **_fields(_maybe(_NUMBER), "last_delivery", "lag_seconds", "last_abandon_at"),
    **_fields(_maybe(_COUNT), "lag_rows", "lag_bytes", "failing_batch"),
    "last_error": _ERROR,
    "history": _list(_object({"status": _STATUS, "at": _NUMBER, "error": _maybe(_TEXT)})),
    **_fields(_ANYTHING, "batch_durations", "phase_durations", "commit_to_ack", "spark"),
    **_fields(_ANYTHING, "routing", "source_details", "destination_details"),
}  # fmt: skip
_SERVER = _object(
    {"status": _STATUS, "restarts_total": _COUNT, "troubles": _map(_TEXT), "error": _ERROR},
)
_LETTER = {
    **_fields(_COUNT, "number", "payload_bytes"),
    "reason": _TEXT,
    **_fields(_maybe(_TEXT), "stream", "topic", "destination", "position", "message_id", "error"),
    **_fields(_maybe({"type": "integer"}), "epoch", "batch_id"),
    "at": _NUMBER,
}
_SNAPSHOT = {
    **_fields(_TEXT, "pipeline", "id", "schema", "table", "method", "lsn", "schema_version"),
    "state": {"type": "string", "enum": ["queued", "running", "done", "failed", "cancelled"]},
    **_fields(_COUNT, "chunk_rows", "rows", "chunks", "bytes", "rows_expected", "relation_id"),
    **_fields(_NUMBER, "requested_at", "started_at", "finished_at", "rows_per_second"),
    "percent": _maybe(_NUMBER),
    "error": _maybe(_ANYTHING),
    "replaces": _list(_TEXT),
}
_SELECTORS: list[dict[str, Schema]] = [
    {"numbers": _list(_LARGE, minItems=1)},
    {"reason": _NONEMPTY},
    {"all": {"const": True}},
]
_TO = _object({"topic": _NONEMPTY}, {"stream": _NONEMPTY}, closed=True)

SCHEMAS: dict[str, Schema] = {
    "Problem": _object({"status": {"type": "integer"}, "title": _TEXT, "remedy": _TEXT}),
    "Error": _object(
        {
            "kind": {"type": "string", "enum": [each.value for each in Kind]},
            **_fields(_TEXT, "message", "where", "remedy"),
            "retry": {"type": "string", "enum": [each.value for each in Retry]},
        }
    ),
    "Health": _object({"status": {"const": "ok"}}),
    "Ready": _object({"ready": _FLAG, "pipelines": _map(_STATUS)}, {"failures_in_row": _map(_COUNT)}),
    "Status": _object(
        {
            "phase": {"type": "string", "enum": ["starting", "running", "stopping"]},
            "pipelines": _list(refer("Report")),
        },
        {
            **_fields(_TEXT, "project", "version"),
            "pid": _COUNT,
            "doing": _maybe(_TEXT),
            "uptime_seconds": _NUMBER,
            "spark": _object({"master": _TEXT}),
            **_fields(_maybe(refer("Server")), "gateway", "broker", "registry", "relay"),
        },
    ),
    "Server": _SERVER,
    "Report": _object(_REPORT),
    "Pipelines": _object({"pipelines": _list(_object({**_SUMMARY, "mode": _TEXT}))}),
    "Pipeline": _object(
        {
            **_REPORT,
            "mode": _TEXT,
            "config": _object({"pipeline": _ANYTHING, "source": _ANYTHING, "destinations": _map(_ANYTHING)}),
        }
    ),
    "Offsets": _object(
        {
            "pipeline": _TEXT,
            "state": _maybe(
                _object({"source": _TEXT, "query_id": _maybe(_TEXT), "batch_id": {"type": "integer"}, "rows": _COUNT})
            ),
            **_fields({}, "end_offset", "latest_offset", "reached"),
            **_fields(_maybe(_COUNT), "lag_rows", "lag_bytes"),
            "lag_seconds": _maybe(_NUMBER),
        }
    ),
    "Destinations": _object(
        {
            "destinations": _list(
                _object(
                    {
                        **_fields(_TEXT, "pipeline", "destination"),
                        **_fields(_maybe(_TEXT), "stream", "topic"),
                        "rows_total": _COUNT,
                    },
                    {
                        "partitions": _maybe(_COUNT),
                        "circuit": _TEXT,
                        "retry_in_seconds": _NUMBER,
                        "failures_total": _COUNT,
                        "error": _ERROR,
                    },
                )
            )
        }
    ),
    "Ordered": _object({"pipeline": _TEXT, "order": _TEXT, "status": _STATUS}),
    "Abandon": {
        "oneOf": [_object({"batch_id": _LARGE}, closed=True), _object({"all": {"const": True}}, closed=True)],
    },
    "Abandoned": _object({"pipeline": _TEXT, "abandoned_batch": _COUNT}),
    "Reloaded": _object({"epochs": _map(_COUNT), "needs_restart": _list(_TEXT)}),
    "Samples": _object({"rows": _list(_ANYTHING, maxItems=1000)}, closed=True),
    "Explained": _object(
        {
            "rows": _list(
                _object(
                    {
                        "row": _ANYTHING,
                        "looked_at": _map(_maybe(_TEXT)),
                        **_fields(_TEXT, "rule", "note"),
                        "verdicts": _list(
                            _object(
                                {
                                    **_fields(_TEXT, "destination", "admission"),
                                    "partition": _maybe({"type": ["integer", "string"]}),
                                    "creates": _list(_TEXT),
                                }
                            )
                        ),
                    }
                )
            ),
            "remarks": _list(_TEXT),
        }
    ),
    "DeadLetters": _object({"counts": _map(_COUNT), "dead_letters": _list(_object(_LETTER))}),
    "DeadLetter": _object({**_LETTER, "payload": {}}),
    "Chosen": {"oneOf": [_object(each, closed=True) for each in _SELECTORS]},
    "Replay": {"oneOf": [_object(each, {"to": _TO}, closed=True) for each in _SELECTORS]},
    "Replayed": _object({"pipeline": _TEXT, "delivered": _COUNT, "kept": _map(_COUNT)}),
    "Purged": _object({"purged": _COUNT}),
    "Snapshots": _object({"snapshots": _list(refer("Snapshot"))}),
    "Snapshot": _object(_SNAPSHOT),
    "SnapshotRequest": _object(
        {"table": _NONEMPTY},
        {
            "method": {"type": "string", "enum": ["export", "filter", "watermark"]},
            "chunk_rows": {"type": "integer", "minimum": 0, "maximum": 1_000_000},  # 0: as configured
        },
        closed=True,
    ),
    "SnapshotAccepted": _object(
        {"accepted": {"const": True}},
        {
            **_fields(
                _TEXT, "snapshot_id", "schema", "table", "method", "stream", "cdc_stream", "subject", "meta_subject"
            ),
            "shared": _FLAG,
        },
    ),
    "Stream": _object(
        {
            **_fields(_TEXT, "name", "storage", "retention", "discard", "created"),
            "subjects": _list(_TEXT),
            **_fields(_NUMBER, "max_age_s", "duplicate_window_s"),
            **_fields(
                {"type": "integer"}, "replicas", "max_bytes", "max_msgs", "messages", "bytes", "first_sequence",
                "last_sequence", "deleted_count",
            ),
        }
    ),
    "Stopping": _object({"status": {"const": "stopping"}}),
    "OpenApi": _object({"openapi": _TEXT, "info": _ANYTHING, "paths": _ANYTHING}),
}  # fmt: skip
