"""What is wrong with a file whose every key is right: names that lead nowhere, things that do not fit together.

Offline: it looks at the file only.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import get_args

from headgate.config.destinations import WebhookDestinationSection
from headgate.config.explain import Problem, dotted, line_of, nearest
from headgate.config.models import Config, PipelineSection
from headgate.config.needs import used_destinations, used_sources
from headgate.config.places import KeyPath
from headgate.config.sources import SourceSection
from headgate.config.transforms import DropTransform, FilterTransform, RenameTransform

__all__ = ["FIXED_COLUMNS", "meaning_problems"]

# Sources whose columns are known without looking; a test compares them with what Spark is told.
FIXED_COLUMNS: dict[str, tuple[str, ...]] = {
    get_args(each.model_fields["type"].annotation)[0]: each.fixed_columns
    for each in get_args(get_args(SourceSection)[0])
    if each.fixed_columns
}
_ANYWHERE = {"0.0.0.0", "::"}  # noqa: S104 - compared with, not listened on
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def meaning_problems(config: Config, lines: dict[KeyPath, int], elsewhere: Container[KeyPath] = ()) -> list[Problem]:
    """All of them. Tables of `elsewhere` are in the file, too, with problems of their own."""
    found = _Finder(config, lines, elsewhere)
    return [*found.dangling(), *found.pipelines(), *found.ports()]


class _Finder:
    def __init__(self, config: Config, lines: dict[KeyPath, int], elsewhere: Container[KeyPath]) -> None:
        self._config, self._lines, self._elsewhere = config, lines, elsewhere

    def _problem(self, path: KeyPath, message: str, remedy: str) -> Problem:
        return Problem(dotted(path), line_of(path, self._lines), message, remedy)

    def dangling(self) -> Iterator[Problem]:
        """Pipelines name their source and destinations; a name that leads nowhere is a typing error."""
        for name, pipeline in self._config.pipelines.items():
            wanted = [("source", "sources", pipeline.source, list(self._config.sources))]
            wanted += [
                ("destinations", "destinations", d, list(self._config.destinations)) for d in pipeline.destinations
            ]
            for key, table, target, known in wanted:
                if target not in known and (table, target) not in self._elsewhere:
                    remedy = nearest(target, known) or f"add a table [{table}.{target}]"
                    yield self._problem(("pipelines", name, key), f"there is no [{table}.{target}]", remedy)

    def pipelines(self) -> Iterator[Problem]:
        for name, pipeline in self._config.pipelines.items():
            path = ("pipelines", name)
            source = self._config.sources.get(pipeline.source)
            if source is not None and not source.has_envelope and not source.has_batches:
                yield from self._needs_topic(path, pipeline)
            if pipeline.topic is not None:
                yield from self._topic((*path, "topic"), pipeline, source)
            yield from self._partitions((*path, "routing", "partition_key_encoding"), pipeline)
            yield from self._streams(path, pipeline)
            if source is not None:
                yield from self._batches(path, pipeline, source)

    def _batches(self, path: KeyPath, pipeline: PipelineSection, source: SourceSection) -> Iterator[Problem]:
        """Yield what is wrong with whole batches: only a mirror takes them, and it takes nothing else."""
        for name in pipeline.destinations:
            section = self._config.destinations.get(name)
            if section is None:
                continue
            if self._gets_both(name):
                message = f"the destination {name} gets messages and whole batches"
                yield self._problem((*path, "destinations"), message, "give one of them a destination of its own")
            if source.type in section.batches_from if source.has_batches else section.takes_rows:
                continue
            if source.has_batches:
                message = f"the destination {name} ({section.type}) takes no whole batches of {source.type}"
                remedy = f'set unit = "messages" in [sources.{pipeline.source}], or use a destination of type shadow'
            else:
                message = f"the destination {name} ({section.type}) takes whole batches alone"
                remedy = 'use a source of type log with unit = "batches"'
            yield self._problem((*path, "destinations"), message, remedy)
        if source.has_batches:
            for key in ("transforms", "topic", "format", "payload_column", "routing"):
                if key in pipeline.model_fields_set:
                    message = "whole batches go as they are"
                    yield self._problem((*path, key), message, f"take {key} out, or read messages instead of batches")

    def _gets_both(self, destination: str) -> bool:
        """Whether rows of a destination are whole batches in one pipeline, and something else in another."""
        writers = [each for each in self._config.pipelines.values() if destination in each.destinations]
        sources = [self._config.sources.get(each.source) for each in writers]
        return len({each.has_batches for each in sources if each is not None}) > 1

    def _needs_topic(self, path: KeyPath, pipeline: PipelineSection) -> Iterator[Problem]:
        """Rows of a CDC source know their topic and payload; others must be told."""
        if pipeline.topic is None and not pipeline.routed:
            remedy = 'add: topic = "...", or routing if each row says where it goes'
            yield self._problem((*path, "topic"), "this key is required", remedy)
        if pipeline.format == "envelope":
            remedy = 'use "json" or "raw", or a source of type postgres-cdc'
            yield self._problem((*path, "format"), "the source has no envelope", remedy)

    def _topic(self, path: KeyPath, pipeline: PipelineSection, source: SourceSection | None) -> Iterator[Problem]:
        """`orders.{kind}`: whole braces, around a column that there is."""
        template = pipeline.topic or ""
        if set("{}") & set(_PLACEHOLDER.sub("", template)):
            yield self._problem(path, f"a brace of {template!r} has no partner", "write columns as {column}")
        known = _columns(pipeline, source)
        for column in _PLACEHOLDER.findall(template):
            if known is not None and column not in known:
                remedy = nearest(column, sorted(known)) or f"columns here: {', '.join(sorted(known))}"
                yield self._problem(path, f"there is no column {column!r}", remedy)

    def _partitions(self, path: KeyPath, pipeline: PipelineSection) -> Iterator[Problem]:
        if pipeline.routing.partition_key_encoding != "partition_id":
            return
        for name in pipeline.destinations:
            section = self._config.destinations.get(name)
            if section is not None and not section.has_partitions:
                message = f"the destination {name} ({section.type}) has no partitions"
                yield self._problem(path, message, "use bytes, or a destination of type nats, kafka, log or iggy")

    def _streams(self, path: KeyPath, pipeline: PipelineSection) -> Iterator[Problem]:
        """A route that names no stream, to an address that has one in it."""
        needing = [
            name
            for name in pipeline.destinations
            if isinstance(section := self._config.destinations.get(name), WebhookDestinationSection)
            and "{stream}" in section.url.get_secret_value()
        ]
        if not needing:
            return
        remedy = "name a stream, or take {stream} out of the url"
        if not pipeline.routed:
            message = f"the url of {needing[0]} asks for a stream, and rows of this pipeline have none"
            yield self._problem(path, message, remedy)
        for number, route in enumerate(pipeline.transforms):
            if route.type != "route" or route.stream is not None:
                continue
            for value, targets in route.mapping.items():
                if any(target.stream is None for target in targets):
                    place = (*path, "transforms", str(number), "mapping", value)
                    yield self._problem(
                        place, f"the url of {needing[0]} asks for a stream, and this names none", remedy
                    )

    def ports(self) -> Iterator[Problem]:
        """Two servers of one file that would listen at the same place."""
        taken: list[tuple[KeyPath, str, int]] = []
        for path, host, port in _listeners(self._config):
            for other, where, number in taken:
                if port and port == number and path != other and (host == where or {host, where} & _ANYWHERE):
                    remedy = f"give one of them another port; {dotted(other)} has this one"
                    yield self._problem((*path, "port"), f"{host}:{port} is used twice", remedy)
            taken.append((path, host, port))


def _columns(pipeline: PipelineSection, source: SourceSection | None) -> set[str] | None:
    """The columns at the end of the transforms; None if only Spark can tell."""
    if source is None or not source.fixed_columns:
        return None
    known = set(source.fixed_columns)
    for transform in pipeline.transforms:
        if isinstance(transform, DropTransform):
            known -= set(transform.columns)
        elif isinstance(transform, RenameTransform):
            known = {transform.columns.get(name, name) for name in known}
        elif not isinstance(transform, FilterTransform):
            return None
    return known | {name for name in _PLACEHOLDER.findall(pipeline.topic or "") if name.startswith("_")}


def _listeners(config: Config) -> Iterator[tuple[KeyPath, str, int]]:
    yield ("control",), config.control.host, config.control.port
    for name in ("broker", "relay"):
        section = getattr(config, name)
        if section.enabled:
            yield (name,), section.host, section.port
    if config.gateway.enabled:
        for host in config.gateway.hosts:
            yield ("gateway",), host, config.gateway.port
    for room, tables in (("sources", used_sources(config)), ("destinations", used_destinations(config))):
        for name, table in tables.items():
            if (place := table.listens_on) is not None:
                yield (room, name), *place
