"""From the configuration to pipelines that can run: names resolved, addresses filled in."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

from headgate.config import Config
from headgate.config.models import PipelineSection
from headgate.config.plugins import PluginDestinationSection, PluginSourceSection
from headgate.config.routing import RouteTransform
from headgate.destinations.base import Destination
from headgate.destinations.context import DestinationContext
from headgate.model import ConfigError
from headgate.model.position import renewed_origin
from headgate.pipeline.fitting import misfits
from headgate.pipeline.places import pipeline_dir
from headgate.pipeline.registry import build_destination, build_source
from headgate.pipeline.resetting import checkpoint_of, resets_of
from headgate.pipeline.routing.settings import routing_settings
from headgate.pipeline.spec import PipelineSpec
from headgate.runtime.listening import address_towards
from headgate.sources.base import Source
from headgate.sources.context import DeadLetterLimits, SourceContext
from headgate.spool.dead_letters import DEAD_LETTERS, DeadLetters

__all__ = ["assemble", "misfits_offline", "source_of"]

_KINDS_WITH_KEYS = frozenset({"kafka", "log"})


def assemble(
    config: Config, *, nats_url: str | None, postgres_url: str | None, until_caught_up: bool = False
) -> list[PipelineSpec]:
    """Every enabled pipeline. The URLs are those behind `[nats]` and `[postgres]`, embedded or not."""
    built = {
        name: build_destination(section, _destination_context(config, name, nats_url, postgres_url))
        for name, section in config.destinations.items()
    }
    return [
        _pipeline(name, section, config, built, postgres_url, until_caught_up)
        for name, section in config.pipelines.items()
        if section.enabled
    ]


def misfits_offline(config: Config, pipeline: str) -> Iterator[ConfigError]:
    """Yield what `assemble` would refuse of a pipeline's `trigger` and `ordering`. Asks no server, writes nothing.

    Plugins are not built: what one of them cannot do is told by `assemble` alone.
    """
    section = config.pipelines[pipeline]
    source = config.sources.get(section.source)
    if source is None or isinstance(source, PluginSourceSection):
        return
    if not set(section.destinations) <= config.destinations.keys():
        return  # a name that leads nowhere is another problem
    # Without this our own address would be looked for, in the network.
    offline = config.model_copy(update={"spark": config.spark.model_copy(update={"shared_data_dir": True})})
    tables = {each: config.destinations[each] for each in section.destinations}
    try:
        built = tuple(
            build_destination(table, _destination_context(offline, each, None, None))
            for each, table in tables.items()
            if not isinstance(table, PluginDestinationSection)
        )
        spec = _unrouted(pipeline, section, offline, source_of(offline, pipeline), built)
        yield from misfits(spec, section, config)
    except ConfigError as error:
        yield error


def source_of(config: Config, pipeline: str, postgres_url: str | None = None) -> Source:
    """The source of one pipeline, for what it can say without its server."""
    section = config.sources[config.pipelines[pipeline].source]
    return build_source(section, _source_context(config, pipeline, postgres_url))


def _pipeline(
    name: str,
    section: PipelineSection,
    config: Config,
    built: dict[str, Destination],
    postgres_url: str | None,
    until_caught_up: bool,
) -> PipelineSpec:
    source = source_of(config, name, postgres_url)
    spec = _unrouted(name, section, config, source, tuple(built[each] for each in section.destinations))
    for misfit in misfits(spec, section, config):
        raise misfit
    routing = routing_settings(section, source.mode(), where=spec.where) if section.routed else None
    return replace(spec, routing=routing, until_caught_up=until_caught_up)


def _unrouted(
    name: str, section: PipelineSection, config: Config, source: Source, destinations: tuple[Destination, ...]
) -> PipelineSpec:
    """The pipeline without its routes, for which servers may have to be asked."""
    directory = pipeline_dir(config, name)
    letters = section.dead_letters
    resets = resets_of(directory)
    return PipelineSpec(
        name=name,
        source=source,
        destinations=destinations,
        state_path=directory / "state.json",
        checkpoint=checkpoint_of(name, directory, config.spark.checkpoint_dir, resets),
        topic=section.topic,
        transforms=section.transforms,
        payload_format=section.format or ("envelope" if source.has_envelope else "json"),
        payload_column=section.payload_column,
        trigger_interval_s=section.trigger_interval,
        realtime=_is_realtime(section, config),
        dead_letters=DeadLetters(directory / DEAD_LETTERS, max_rows=letters.max_rows, max_bytes=letters.max_bytes),
        failure_threshold=section.failure_threshold,
        stop_grace_s=section.stop_grace,
        resets=resets,
        renews_origin=isinstance(config.sources[section.source], PluginSourceSection),
    )


def _is_realtime(section: PipelineSection, config: Config) -> bool:
    """Following needs the reader's spool on the executors' own disk."""
    unless_said = section.trigger is None and not section.trigger_interval and section.ordering == "total"
    return (section.trigger == "realtime" or unless_said) and config.spark.master.startswith("local")


def _serve_on(config: Config) -> str:
    """The address of this machine for executors on others; empty where they see its files."""
    spark = config.spark
    if spark.master.startswith("local") or spark.shared_data_dir:
        return ""
    return spark.conf.get("spark.driver.host") or address_towards(_master_host(spark.master))


def _master_host(master: str) -> str:
    """Of `spark://host:7077` or `k8s://https://host:443`; of `yarn` only the machine itself is known."""
    return urlsplit(f"//{master.rpartition('//')[2].split(',')[0]}").hostname or socket.gethostname()


def _source_context(config: Config, pipeline: str, postgres_url: str | None) -> SourceContext:
    section = config.pipelines[pipeline]
    directory = pipeline_dir(config, pipeline)
    return SourceContext(
        name=section.source,
        project=config.project.name,
        origin=renewed_origin(f"{config.project.name}-{section.source}", resets_of(directory)),
        directory=directory,
        data_dir=config.project.data_dir,
        dead_letters=DeadLetterLimits(section.dead_letters.max_rows, section.dead_letters.max_bytes),
        postgres_url=postgres_url or "",
        ordering=section.ordering,
        tasks=section.tasks,
        serve_on=_serve_on(config),
        needs_images=_needs_images(section),
        has_keys=_has_keys(section, config),
    )


def _needs_images(pipeline: PipelineSection) -> bool:
    """Routes of a CDC pipeline read columns of the changed rows. Without other transforms their sender picks them."""
    plain = [each for each in pipeline.transforms if not isinstance(each, RouteTransform)]
    return pipeline.routed and bool(plain or pipeline.format not in (None, "envelope"))


def _has_keys(pipeline: PipelineSection, config: Config) -> bool:
    """Only who decodes changes itself makes keys of them, so with other transforms there are none."""
    is_plain = all(isinstance(each, RouteTransform) for each in pipeline.transforms)
    kinds = {config.destinations[name].type for name in pipeline.destinations if name in config.destinations}
    return is_plain and pipeline.format in (None, "envelope") and bool(kinds & _KINDS_WITH_KEYS)


def _destination_context(
    config: Config, name: str, nats_url: str | None, postgres_url: str | None
) -> DestinationContext:
    writers = [each for each in config.pipelines.values() if name in each.destinations]
    return DestinationContext(
        name=name,
        project=config.project.name,
        data_dir=config.project.data_dir,
        nats=config.nats,
        nats_url=nats_url,
        postgres_url=postgres_url or "",
        spark_master=config.spark.master,
        is_alone=name in _fed_by_cdc(config),
        has_streams=any(each.names_streams for each in writers),
        has_batches=any(each.source in config.sources and config.sources[each.source].has_batches for each in writers),
    )


def _fed_by_cdc(config: Config) -> set[str]:
    """Destinations that a single CDC pipeline, and no other pipeline, writes to."""
    writers = [(d, p.source) for p in config.pipelines.values() if p.enabled for d in p.destinations]
    counts = Counter(destination for destination, _ in writers)
    return {d for d, source in writers if counts[d] == 1 and config.sources[source].type == "postgres-cdc"}
