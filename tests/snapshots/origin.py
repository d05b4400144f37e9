"""What a bridge does for consumers, in the simplest way: a slot read by SQL, schemas, and snapshots on request."""

from __future__ import annotations

import contextlib
import hashlib
import json
from functools import partial
from typing import Any

import msgspec
import nats
import nats.js.errors
import psycopg
import zstandard
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import StreamConfig
from psycopg.rows import dict_row

from headgate.model.places import init_prefix, init_stream, schema_bucket
from headgate.postgres.describe import describe_tables
from headgate.wire.envelope import (
    DEFAULT_SUBJECT,
    JsonEncoder,
    MessagePackEncoder,
    encode_fields,
    events,
    key_token,
    schema_event,
    subject_of,
    subject_token,
)
from headgate.wire.envelope.layout import Rows
from headgate.wire.pgoutput import (
    Decoder,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    Transaction,
    format_lsn,
    parse_lsn,
)
from tests.cdc import read_types
from tests.cdc.assembler import Assembler
from tests.snapshots.servers import Database

__all__ = ["Origin"]

_PUBLICATION = "p"
_SLOT_OPTIONS = "'proto_version', '1', 'publication_names', 'p', 'messages', 'on'"


class Origin:
    """One database's bridge. `chunk_rows` and `method` are for snapshots that say nothing else."""

    def __init__(
        self,
        database: Database,
        *,
        is_json: bool = False,
        method: str = "export",
        stream: str = "CDC",
        subject: str = DEFAULT_SUBJECT,
        zstd: bool = False,
    ) -> None:
        self.database = database
        self.connection = database.connect()
        self.is_json = is_json
        self.method = method
        self.stream = stream
        self.subject = subject
        self.zstd = zstd
        self.init_stream = init_stream(stream)
        self.prefix = init_prefix(self.init_stream)
        self.bucket = schema_bucket(stream)
        self.chunk_rows = 3
        self.requests: list[str] = []
        self.slot = f"s_{self.connection.info.dbname}"
        self._versions: dict[tuple[str, str], tuple[str, int]] = {}
        self._client: Client | None = None

    @classmethod
    async def open(cls, database: Database, statements: str, **options: Any) -> Origin:
        """With tables that are there before anything else; all tables are published."""
        origin = cls(database, **options)
        origin.sql(statements)
        origin.sql("create publication p for all tables")
        origin.sql(f"select pg_create_logical_replication_slot('{origin.slot}', 'pgoutput')")
        await origin.connect()
        await origin.forget_streams()
        await origin.create_streams()
        return origin

    async def connect(self) -> None:
        self._client = await nats.connect(self.database.nats_url, max_reconnect_attempts=-1, reconnect_time_wait=0.1)
        await self._client.subscribe("snapshot.request.>", cb=self._requested)

    async def create_streams(self) -> None:
        subjects = self.subject.partition("{")[0] + ">"
        await self.jetstream.add_stream(StreamConfig(name=self.stream, subjects=[subjects]))
        await self.jetstream.add_stream(StreamConfig(name=self.init_stream, subjects=[f"{self.prefix}.>"]))
        await self.jetstream.add_stream(
            StreamConfig(name=f"KV_{self.bucket}", subjects=[f"$KV.{self.bucket}.>"], max_msgs_per_subject=10)
        )
        await self.describe_all()

    async def describe_all(self) -> None:
        for description in self.descriptions():
            await self._describe(description)

    async def forget_streams(self) -> None:
        for name in (self.stream, self.init_stream, f"KV_{self.bucket}"):
            with contextlib.suppress(nats.js.errors.NotFoundError):
                await self.jetstream.delete_stream(name)

    async def close(self) -> None:
        assert self._client is not None
        await self.forget_streams()
        await self._client.close()
        self.connection.close()

    @property
    def jetstream(self) -> Any:
        assert self._client is not None
        return self._client.jetstream()

    def sql(self, statements: str, *params: Any) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(statements.encode(), params or None)
        return list(cursor.fetchall()) if cursor.description else []

    def descriptions(self) -> list[dict[str, Any]]:
        with self.database.connect(row_factory=dict_row) as connection:
            return describe_tables(connection, [_PUBLICATION])

    async def pump(self) -> int:
        """Publish what is new; the number of events."""
        types = read_types(self.connection)
        encoder = (JsonEncoder if self.is_json else MessagePackEncoder)(
            7, types, partial(subject_of, template=self.subject)
        )
        count = 0
        transactions = self._transactions()
        now = {(each["schema"], each["table"]): each for each in self.descriptions()}
        for transaction in transactions:
            await self._announce(transaction, now)
            for event in events(transaction):
                await self.publish(subject_of(event, self.subject), encoder.encode(event), f"7-{event.position}")
                count += 1
        return count

    async def publish(self, subject: str, payload: bytes, message_id: str, **headers: str) -> None:
        headers["Nats-Msg-Id"] = message_id
        if self.zstd:
            payload, headers["Headgate-Encoding"] = zstandard.ZstdCompressor().compress(payload), "zstd"
        await self.jetstream.publish(subject, payload, headers=headers)

    async def snapshot(self, name: str, options: dict[str, Any], snapshot_id: str) -> None:
        description = next(each for each in self.descriptions() if _token(each) == name)
        method = options.get("method", self.method)
        sequence = (await self.jetstream.stream_info(self.stream)).state.last_seq
        place, rows = self._read(description, method)
        chunk_rows = options.get("chunk_rows", self.chunk_rows)
        checksum = 0
        starts = range(0, len(rows), chunk_rows)
        for number, start in enumerate(starts):
            chunk = {
                "table": description["table"], "schema": description["schema"], "operation": "snapshot",
                "snapshot_id": snapshot_id, "chunk": number, "lsn": place["lsn"],
                "schema_version": description["version"],
            }  # fmt: skip
            payload = self._chunk(chunk, rows[start : start + chunk_rows])
            checksum += int.from_bytes(hashlib.sha256(payload).digest()[:8], "big")
            subject = f"{self.prefix}.snap.{name}.{snapshot_id}.{number}"
            await self.publish(subject, payload, f"{snapshot_id}-{number}-{sequence}")
        end = {
            "table": description["table"], "schema": description["schema"], "snapshot_id": snapshot_id,
            "operation": "snapshot_end", "method": method, "cdc_stream": self.stream, "cdc_sequence": sequence,
            "row_count": len(rows), "batch_count": len(starts), "checksum": f"{checksum % 2**64:016x}",
            "schema_version": description["version"], "relation_id": description["relation_id"],
            "timestamp": 0.0, "replaces": [], **place,
        }  # fmt: skip
        await self.jetstream.publish(f"{self.prefix}.meta.{name}", encode_fields(end, is_json=self.is_json))

    async def forget(self, table: str, schema: str = "public") -> None:
        """The table is published no more."""
        self._versions.pop((schema, table), None)
        key = f"{key_token(schema)}.{key_token(table)}"
        await self.jetstream.publish(f"$KV.{self.bucket}.{key}", b"", headers={"KV-Operation": "DEL"})

    async def _requested(self, msg: Msg) -> None:
        name = msg.subject.removeprefix("snapshot.request.")
        if json.loads(msg.data or b"{}").get("cdc_stream", self.stream) != self.stream:
            return
        if name not in [_token(each) for each in self.descriptions()]:
            error = {"kind": "config", "message": f"the publication has no table {name}", "remedy": "name another"}
            await msg.respond(json.dumps({"accepted": False, "error": error}).encode())
            return
        self.requests.append(name)
        snapshot_id = f"s{len(self.requests):013x}"
        await msg.respond(json.dumps({"accepted": True, "snapshot_id": snapshot_id}).encode())
        await self.snapshot(name, json.loads(msg.data or b"{}"), snapshot_id)

    def _chunk(self, chunk: dict[str, Any], rows: list[Any]) -> bytes:
        if self.is_json:
            head = json.dumps(chunk, separators=(",", ":"))
            return f'{head[:-1]},"data":[{",".join(rows)}]}}'.encode()
        return encode_fields({**chunk, "data": rows}, is_json=False)

    def _read(self, description: dict[str, Any], method: str) -> tuple[dict[str, Any], list[Any]]:
        """The consistent point, and the rows as they stand in events."""
        if method == "filter":
            with self.database.connect() as reader, reader.transaction():
                reader.execute("set transaction isolation level repeatable read")
                rows = self._rows(reader, description)
                row = reader.execute(
                    "select pg_snapshot_xmin(s)::text::int8, pg_snapshot_xmax(s)::text::int8,"
                    " array(select x::text::int8 from pg_snapshot_xip(s) x), pg_current_wal_lsn()::text"
                    " from pg_current_snapshot() s"
                ).fetchone()
                assert row is not None
                return {"xmin": row[0], "xmax": row[1], "xip": row[2], "lsn": row[3]}, rows
        with psycopg.connect(self.database.url, autocommit=True, replication="database") as exporter:
            query = f"CREATE_REPLICATION_SLOT {self.slot}_snap TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')"
            result = exporter.pgconn.exec_(query.encode())
            assert result.ntuples == 1, result.error_message
            lsn, name = (result.get_value(0, column) or b"" for column in (1, 2))
            with self.database.connect() as reader, reader.transaction():
                reader.execute("set transaction isolation level repeatable read")
                reader.execute(b"set transaction snapshot '" + name + b"'")
                return {"lsn": lsn.decode()}, self._rows(reader, description)

    def _rows(self, reader: psycopg.Connection[Any], description: dict[str, Any]) -> list[Any]:
        columns = [column for column in description["columns"] if column["replicated"]]
        relation = Relation(
            description["relation_id"], description["schema"], description["table"], ReplicaIdentity.DEFAULT,
            tuple(RelationColumn(False, c["name"], c["type_oid"], c["typmod"]) for c in columns),
        )  # fmt: skip
        names = ", ".join(f'"{column["name"]}"' for column in columns)
        filters = reader.execute(
            "select rowfilter from pg_publication_tables where schemaname = %s and tablename = %s and pubname = 'p'",
            [description["schema"], description["table"]],
        ).fetchall()
        where = f" where {filters[0][0]}" if filters and filters[0][0] else ""
        query = f'select {names} from "{description["schema"]}"."{description["table"]}"{where}'
        result = reader.pgconn.exec_(query.encode())
        assert not result.error_message, result.error_message
        encode = Rows(read_types(reader))
        values = [
            tuple(result.get_value(row, column) for column in range(result.nfields)) for row in range(result.ntuples)
        ]
        make = encode.json if self.is_json else encode.values
        return [make(relation, row) for row in values]

    async def _announce(self, transaction: Transaction, now: dict[tuple[str, str], dict[str, Any]]) -> None:
        touched = {(c.relation.schema, c.relation.name) for c in transaction.changes if c.relation is not None}
        for name in sorted(touched):
            if name not in now or self._versions.get(name) == _shape(now[name]):
                continue
            description = {**now[name], "lsn": format_lsn(transaction.commit_lsn)}
            await self._describe(description)
            event = schema_event(
                description, origin="7", subject=self.subject,
                position=f"{transaction.commit_lsn:016X}-!{description['relation_id']}",
                commit_lsn=transaction.commit_lsn, commit_time=transaction.commit_time, xid=transaction.xid,
            )  # fmt: skip
            await self.publish(event["subject"], encode_fields(event, is_json=self.is_json), event["msg_id"])

    async def _describe(self, description: dict[str, Any]) -> None:
        self._versions[description["schema"], description["table"]] = _shape(description)
        key = f"{key_token(description['schema'])}.{key_token(description['table'])}"
        payload = encode_fields({**description, "subject": self.subject}, is_json=self.is_json)
        assert msgspec.json.decode(payload) if self.is_json else msgspec.msgpack.decode(payload)
        await self.jetstream.publish(f"$KV.{self.bucket}.{key}", payload)

    def _transactions(self) -> list[Transaction]:
        call = f"pg_logical_slot_get_binary_changes('{self.slot}', null, null, {_SLOT_OPTIONS})"
        query = f"select lsn::text, data from {call}"
        decoder, assembler = Decoder(1), Assembler()
        fed = [assembler.feed(decoder.decode(bytes(data)), parse_lsn(lsn)) for lsn, data in self.sql(query)]
        return [transaction for transaction in fed if transaction is not None]


def _shape(description: dict[str, Any]) -> tuple[str, int]:
    return description["version"], description["relation_id"]


def _token(description: dict[str, Any]) -> str:
    table = subject_token(description["table"])
    return table if description["schema"] == "public" else f"{subject_token(description['schema'])}.{table}"
