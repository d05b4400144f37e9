"""`headgate bridge`: PostgreSQL's changes to NATS JetStream, from the command line alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from pydantic import TypeAdapter, ValidationError

from headgate.cli.environment import nats_url, postgres_url
from headgate.cli.reset import reset_stopped
from headgate.cli.run import run_service
from headgate.config import Config
from headgate.config.base import Duration, Size
from headgate.wire.envelope import DebeziumOptions

__all__ = ["bridge", "bridge_settings", "pipeline_of"]

T = TypeVar("T")
_HEARTBEATS = DebeziumOptions().topic_heartbeat_prefix
Discard = Literal["new", "old"]
SnapshotMode = Literal["initial", "no_data"]
Trigger = Literal["realtime", "batch"]


def duration(text: str) -> float:
    """Seconds, from `7d` or a plain number."""
    return _quantity(TypeAdapter(Duration), text)


def size(text: str) -> int:
    """Bytes, from `10GiB` or a plain number."""
    return _quantity(TypeAdapter(Size), text)


def _quantity(kind: TypeAdapter[T], text: str) -> T:
    try:
        return kind.validate_python(int(text) if text.isdecimal() else text)
    except ValidationError as error:
        raise typer.BadParameter(error.errors()[0]["msg"].removeprefix("Value error, ")) from None


SlotOption = Annotated[str, typer.Option("--slot", help="Replication slot; created when missing.")]
PublicationOption = Annotated[str, typer.Option("--pub", help="Publication; several separated by commas.")]
PostgresOption = Annotated[
    str | None, typer.Option("--postgres", envvar="HEADGATE_POSTGRES", help="postgres://..., or `embedded`.")
]
NatsOption = Annotated[str | None, typer.Option("--nats", envvar="HEADGATE_NATS", help="nats://..., or `embedded`.")]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the control plane.")]
StreamOption = Annotated[str, typer.Option("--stream", help="JetStream stream; created when missing.")]
SubjectOption = Annotated[str, typer.Option("--subject", help="Template of an event's subject.")]
MaxAgeOption = Annotated[
    float | None,
    typer.Option("--max-age", parser=duration, metavar="TIME", help="Drop older events: 7d, 12h; 0 keeps them."),
]
MaxBytesOption = Annotated[
    int | None,
    typer.Option("--max-bytes", parser=size, metavar="SIZE", help="The most the stream holds: 10GiB; 0: no limit."),
]
DiscardOption = Annotated[
    Discard | None, typer.Option("--discard", help="At --max-bytes: wait (new), or drop the oldest (old).")
]
DuplicateWindowOption = Annotated[
    float | None,
    typer.Option(
        "--duplicate-window", parser=duration, metavar="TIME", help="How long the server remembers message ids: 2m."
    ),
]
InitStreamOption = Annotated[
    str, typer.Option("--init-stream", help="Stream of snapshots.", show_default="INIT, or INIT_STREAM")
]
SchemaBucketOption = Annotated[
    str, typer.Option("--schema-bucket", help="Bucket of schemas.", show_default="schemas, or schemas_STREAM")
]
TableOption = Annotated[
    list[str] | None, typer.Option("--table", help="Create a missing publication for this table; repeatable.")
]
JsonFormatOption = Annotated[bool, typer.Option("--json", help="JSON events instead of MessagePack.")]
DebeziumOption = Annotated[bool, typer.Option("--debezium", help="Events in Debezium's JSON envelope.")]
SnapshotModeOption = Annotated[
    SnapshotMode, typer.Option("--snapshot-mode", help="With --debezium: begin with the rows that are there.")
]
HeartbeatIntervalMsOption = Annotated[
    int, typer.Option("--heartbeat-interval-ms", min=0, help="With --debezium: how often to send a heartbeat.")
]
ZstdOption = Annotated[bool, typer.Option("--zstd", help="Compress events and snapshots.")]
DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", help="State and spool.", show_default=".headgate/bridge-SLOT")
]
FailoverOption = Annotated[bool, typer.Option("--failover", help="Standbys keep the slot, too. Needs PostgreSQL 17.")]
ResetOption = Annotated[
    bool, typer.Option("--reset", help="After a refused gap: begin anew, and tell consumers of it.")
]
TriggerOption = Annotated[
    Trigger, typer.Option("--trigger", help="Send changes as they come, or together, batch by batch.")
]
OnceOption = Annotated[bool, typer.Option("--once", help="Deliver what is there now, then stop.")]


def bridge(
    slot: SlotOption,
    pub: PublicationOption,
    postgres: PostgresOption = None,
    nats: NatsOption = None,
    port: PortOption = 9090,
    stream: StreamOption = "CDC",
    subject: SubjectOption = "cdc.{schema}.{table}.{op}",
    max_age: MaxAgeOption = None,
    max_bytes: MaxBytesOption = None,
    discard: DiscardOption = None,
    duplicate_window: DuplicateWindowOption = None,
    init_stream: InitStreamOption = "",
    schema_bucket: SchemaBucketOption = "",
    table: TableOption = None,
    json_format: JsonFormatOption = False,
    debezium: DebeziumOption = False,
    snapshot_mode: SnapshotModeOption = "initial",
    heartbeat_interval_ms: HeartbeatIntervalMsOption = 0,
    zstd: ZstdOption = False,
    data_dir: DataDirOption = None,
    failover: FailoverOption = False,
    reset: ResetOption = False,
    trigger: TriggerOption = "realtime",
    once: OnceOption = False,
) -> None:
    """Stream every committed change of a publication to NATS JetStream, until Ctrl-C.

    Where --postgres and --nats are left out, PG_HOST, PG_PORT, PG_DB, POSTGRES_BRIDGE_USER, POSTGRES_BRIDGE_PASSWORD,
    NATS_HOST, NATS_PORT, NATS_BRIDGE_USER and NATS_BRIDGE_PASSWORD are used; without PG_HOST or NATS_HOST, the
    embedded server is. Several bridges run side by side, each with its own --slot, --stream and
    --subject; what consumers need beside the stream is named after it.

    Example: headgate bridge --slot shop --pub shop --postgres postgres://bridge@localhost/shop
    """
    settings = bridge_settings(slot, pub, postgres, nats, stream=stream, subject=subject, data_dir=data_dir)
    settings["control"] = {"port": port}
    settings["sources"]["changes"] |= {
        "tables": table or [],
        "format": "debezium" if debezium else "json" if json_format else "msgpack",
        "failover": failover,
        "debezium": {"snapshot_mode": snapshot_mode, "heartbeat_interval_ms": heartbeat_interval_ms},
    }
    if debezium and heartbeat_interval_ms:
        settings["destinations"]["stream"]["subjects"].append(f"{_HEARTBEATS}.{slot}")
    settings["destinations"]["stream"] |= {
        "compression": "zstd" if zstd else "none",
        "max_age": max_age,
        "max_bytes": max_bytes,
        "discard": discard,
        "duplicate_window": duplicate_window,
    }
    snapshots = {"stream": init_stream, "bucket": schema_bucket}
    settings["pipelines"][pipeline_of(slot)] |= {"snapshots": snapshots, "trigger": trigger}
    _run(Config.model_validate(settings), reset=reset, once=once)


def _run(config: Config, *, reset: bool, once: bool) -> None:
    if reset:
        reset_stopped(config, *config.pipelines)
    run_service(config, once=once)


def bridge_settings(
    slot: str,
    pub: str,
    postgres: str | None,
    nats: str | None,
    *,
    stream: str = "CDC",
    subject: str = "cdc.{schema}.{table}.{op}",
    data_dir: Path | None = None,
) -> dict[str, Any]:
    """What a bridge would have in its file, if it had one."""
    subjects = [subject.split("{", 1)[0].rstrip(".") + ".>"]
    return {
        "project": {"name": "bridge", "data_dir": (data_dir or Path(f".headgate/bridge-{slot}")).resolve()},
        "postgres": {"url": postgres or postgres_url(os.environ)},
        "nats": {"url": nats or nats_url(os.environ)},
        "sources": {"changes": {"type": "postgres-cdc", "slot": slot, "publication": pub, "subject": subject}},
        "destinations": {"stream": {"type": "nats", "stream": stream, "subjects": subjects}},
        "pipelines": {pipeline_of(slot): {"source": "changes", "destinations": ["stream"]}},
    }


def pipeline_of(slot: str) -> str:
    """The name of a bridge's pipeline."""
    return slot.replace("_", "-")
