"""The small parts of the replica: which shapes it can follow, and what a target's URL says."""

from __future__ import annotations

from pathlib import Path

import pytest

import headgate.replica
from headgate.consume import Column, Schema
from headgate.model import UsageError
from headgate.replica import open_target
from headgate.replica.duckdb import _iso
from headgate.replica.shapes import can_reshape
from headgate.replica.values import Form, form_of

BEFORE = [Column("id", "integer", type_oid=23), Column("v", "text", type_oid=25)]


def _schema(columns: list[Column], key: tuple[str, ...] = ("id",), identity: str = "default") -> Schema:
    return Schema("public", "t", "1", columns, key=list(key), primary_key=list(key), replica_identity=identity)


def test_what_the_package_offers() -> None:
    assert headgate.replica.__all__ == [
        "Difference", "Progress", "Replica", "TableReport", "Target", "open_target", "stop", "verify",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("after", "possible"),
    [
        (_schema(BEFORE), True),
        (_schema([*BEFORE, Column("n", "date")]), True),
        (_schema(BEFORE[:1]), True),
        (_schema([*BEFORE, Column("n", "date", default="now()")]), False),
        (_schema([*BEFORE, Column("n", "date", nullable=False)]), False),
        (_schema([BEFORE[0], Column("renamed", "text", type_oid=25)]), False),
        (_schema([BEFORE[0], Column("v", "integer", type_oid=23)]), False),
        (_schema(BEFORE, key=("v",)), False),
        (_schema(BEFORE, identity="full"), True),
    ],
)
def test_shapes_it_can_take_where_it_is(after: Schema, possible: bool) -> None:
    assert can_reshape(_schema(BEFORE), after) is possible


def test_a_table_without_a_key_needs_its_rows_when_its_identity_changes() -> None:
    assert not can_reshape(_schema(BEFORE, key=()), _schema(BEFORE, key=(), identity="full"))


@pytest.mark.parametrize("url", ["", "file.db", "sqlite://", "sqlite:///", "mysql://x/y"])
def test_urls_that_name_no_target(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_target(url)
    assert "sqlite:///shop.db" in caught.value.remedy


def test_a_relative_and_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_target("sqlite:///here.db").close()
    open_target(f"sqlite:///{tmp_path}/there.db").close()
    assert {path.name for path in tmp_path.glob("*.db")} == {"here.db", "there.db"}


@pytest.mark.parametrize(
    ("column", "form"),
    [
        (Column("c", "numeric(5,2)"), Form.TEXT),
        (Column("c", "double precision"), Form.FLOAT),
        (Column("c", "score", kind="domain", base_type="smallint"), Form.INT),
        (Column("c", "tags", kind="domain", base_type="text[]"), Form.TREE),
        (Column("c", "integer", kind="enum"), Form.TEXT),
        (Column("c", "integer[]", kind="array"), Form.TREE),
    ],
)
def test_what_values_are(column: Column, form: Form) -> None:
    assert form_of(column) is form


@pytest.mark.parametrize(
    ("duckdb", "wire"),
    [
        ("2025-01-31", "2025-01-31"),
        ("12345-06-07", "+12345-06-07"),
        ("0044-03-15 (BC) 00:00:00+00", "-0043-03-15T00:00:00Z"),
        ("0001-01-01 (BC)", "0000-01-01"),
        ("2025-12-12 12:00:34.5+00", "2025-12-12T12:00:34.5Z"),
        ("-infinity", "-infinity"),
    ],
)
def test_times_of_duckdb(duckdb: str, wire: str) -> None:
    assert _iso(duckdb) == wire
