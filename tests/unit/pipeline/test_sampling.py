"""Sample rows as their source would make them."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.types import BinaryType, StringType, StructType

from headgate.model import UsageError
from headgate.pipeline.sampling import _as_source

CHANGES = StructType()
for name in ("_op", "_schema", "_table", "_before", "_after"):
    CHANGES.add(name, StringType())
REQUESTS = StructType().add("body", StringType()).add("path", StringType())


def test_a_row_of_a_table_is_the_new_row_of_a_change() -> None:
    made = _as_source({"id": 1, "kind": "a", "_schema": "public", "_table": "t"}, CHANGES)
    assert (made["_op"], made["_schema"], made["_table"]) == ("insert", "public", "t")
    assert json.loads(made["_after"]) == {"id": 1, "kind": "a"}
    given = {"_op": "delete", "_before": '{"id": 1}', "_after": None}
    assert _as_source(given, CHANGES) == given


def test_an_event_is_the_body_of_a_request() -> None:
    assert _as_source({"type": "x"}, REQUESTS) == {"body": '{"type": "x"}'}
    assert _as_source({"path": "/a", "type": "x"}, REQUESTS) == {"path": "/a", "type": "x"}


def test_bytes_are_given_as_text() -> None:
    values = StructType().add("value", BinaryType())
    assert _as_source({"value": "ab"}, values) == {"value": "YWI="}
    assert _as_source({"value": None}, values) == {"value": None}
    with pytest.raises(UsageError, match="bytes"):
        _as_source({"value": 1}, values)
