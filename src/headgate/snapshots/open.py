"""From the configuration to the snapshot services of its pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from headgate.config import Config
from headgate.config.sources import PostgresCdcSourceSection
from headgate.destinations.nats import NatsDestination
from headgate.model.places import init_prefix, init_stream, schema_bucket
from headgate.pipeline.places import pipeline_dir
from headgate.pipeline.spec import PipelineSpec
from headgate.snapshots.copying import CopyOptions
from headgate.snapshots.service import SnapshotService, SnapshotServiceOptions

__all__ = ["open_snapshot_services"]


def open_snapshot_services(
    config: Config, specs: Sequence[PipelineSpec], spark: SparkSession
) -> dict[str, SnapshotService]:
    """One for each pipeline that can serve consumers: from a CDC source, to a NATS stream, in our own envelope."""
    found = {spec.name: _options(config, spec) for spec in specs if not spec.until_caught_up}
    return {name: SnapshotService(options, spark) for name, options in found.items() if options is not None}


def _options(config: Config, spec: PipelineSpec) -> SnapshotServiceOptions | None:
    section = config.pipelines[spec.name].snapshots
    source = config.sources[spec.source.name]
    destination = next((each for each in spec.destinations if isinstance(each, NatsDestination)), None)
    is_cdc = isinstance(source, PostgresCdcSourceSection) and spec.payload_format == "envelope"
    if not (section.enabled and is_cdc and destination):
        return None
    assert isinstance(source, PostgresCdcSourceSection)
    if source.format == "debezium":
        return None
    cdc_stream = destination.options.stream
    init = section.stream or init_stream(cdc_stream)
    stream = replace(
        destination.options,
        stream=init,
        subjects=(f"{init_prefix(init)}.>",),
        max_age_s=section.max_age,
        max_bytes=section.max_bytes or -1,
        discard=None,
        duplicate_window_s=None,
    )
    copy = CopyOptions(
        url=spec.source.options()["url"],
        publications=tuple(name.strip() for name in source.publication.split(",")),
        nats=stream,
        cdc_stream=cdc_stream,
        format=source.format,
        zstd=destination.zstd,
        parallelism=section.parallelism,
        point_timeout_s=section.timeout,
    )
    directory = pipeline_dir(config, spec.name)
    return SnapshotServiceOptions(
        copy,
        section.bucket or schema_bucket(cdc_stream),
        source.subject,
        directory / "spool",
        directory / "snapshots.json",
        section.chunk_rows,
        section.method,
    )
