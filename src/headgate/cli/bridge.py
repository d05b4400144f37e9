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


def bridge(
    slot: Annotated[str, typer.Option("--slot", help="Replication slot; created when missing.")],
    pub: Annotated[str, typer.Option("--pub", help="Publication; several separated by commas.")],
    postgres: Annotated[
        str | None, typer.Option("--postgres", envvar="HEADGATE_POSTGRES", help="postgres://..., or `embedded`.")
    ] = None,
    nats: Annotated[
        str | None, typer.Option("--nats", envvar="HEADGATE_NATS", help="nats://..., or `embedded`.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the control plane.")] = 9090,
    stream: Annotated[str, typer.Option("--stream", help="JetStream stream; created when missing.")] = "CDC",
    subject: Annotated[str, typer.Option("--subject", help="Where an event goes.")] = "cdc.{schema}.{table}.{op}",
    max_age: Annotated[
        float | None,
        typer.Option("--max-age", parser=duration, metavar="TIME", help="Drop older events: 7d, 12h; 0 keeps them."),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option("--max-bytes", parser=size, metavar="SIZE", help="The most the stream holds: 10GiB; 0: no limit."),
    ] = None,
    discard: Annotated[
        Discard | None, typer.Option("--discard", help="At --max-bytes: wait (new), or drop the oldest (old).")
    ] = None,
    duplicate_window: Annotated[
        float | None,
        typer.Option(
            "--duplicate-window", parser=duration, metavar="TIME", help="How long the server remembers message ids: 2m."
        ),
    ] = None,
    init_stream: Annotated[
        str, typer.Option("--init-stream", help="Stream of snapshots.", show_default="INIT, or INIT_STREAM")
    ] = "",
    schema_bucket: Annotated[
        str, typer.Option("--schema-bucket", help="Bucket of schemas.", show_default="schemas, or schemas_STREAM")
    ] = "",
    table: Annotated[
        list[str] | None, typer.Option("--table", help="Create a missing publication for this table; repeatable.")
    ] = None,
    json_format: Annotated[bool, typer.Option("--json", help="JSON events instead of MessagePack.")] = False,
    debezium: Annotated[bool, typer.Option("--debezium", help="Events in Debezium's JSON envelope.")] = False,
    snapshot_mode: Annotated[
        SnapshotMode, typer.Option("--snapshot-mode", help="With --debezium: begin with the rows that are there.")
    ] = "initial",
    heartbeat_interval_ms: Annotated[
        int, typer.Option("--heartbeat-interval-ms", min=0, help="With --debezium: how often to send a heartbeat.")
    ] = 0,
    zstd: Annotated[bool, typer.Option("--zstd", help="Compress events and snapshots.")] = False,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="State and spool.", show_default=".headgate/bridge-SLOT")
    ] = None,
    failover: Annotated[
        bool, typer.Option("--failover", help="Standbys keep the slot, too. Needs PostgreSQL 17.")
    ] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="After a refused gap: begin anew, and tell consumers of it.")
    ] = False,
    trigger: Annotated[
        Trigger, typer.Option("--trigger", help="Send changes as they come, or together, batch by batch.")
    ] = "realtime",
    once: Annotated[bool, typer.Option("--once", help="Deliver what is there now, then stop.")] = False,
) -> None:
    """Stream every committed change of a publication to NATS JetStream, until Ctrl-C.

    Where --postgres and --nats are left out, PG_HOST, PG_PORT, PG_DB, POSTGRES_BRIDGE_USER, POSTGRES_BRIDGE_PASSWORD,
    NATS_HOST, NATS_PORT, NATS_BRIDGE_USER and NATS_BRIDGE_PASSWORD are used; without PG_HOST or NATS_HOST, the
    embedded server is. Several bridges run side by side, each with its own --slot, --stream and
    --subject; what consumers need beside the stream is named after it.

    Example: headgate bridge --slot shop --pub shop --postgres postgres://bridge@localhost/shop
    """
    envelope: Literal["msgpack", "json", "debezium"] = "debezium" if debezium else "json" if json_format else "msgpack"
    settings = bridge_settings(slot, pub, postgres, nats, stream=stream, subject=subject, data_dir=data_dir)
    settings["control"] = {"port": port}
    settings["sources"]["changes"] |= {
        "tables": table or [],
        "format": envelope,
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
    settings["pipelines"][pipeline_of(slot)] |= {
        "snapshots": {"stream": init_stream, "bucket": schema_bucket},
        "trigger": trigger,
    }
    config = Config.model_validate(settings)
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
